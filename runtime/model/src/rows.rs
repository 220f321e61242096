//! Token rows: ragged lists of token ids, with a mark on each token that is a target. Only the tensors that are made
//! of them for a guest are padded. `chat` decides which tokens are targets.

use candle_core::WithDType;
use tunebox_compute::{Device, Tensor};

use crate::error::{Error, Result};

/// Ragged token rows. Position `t` of a mask or a score is about token `t` itself, not about the one that it predicts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rows {
    /// The tokens of each row, without padding.
    pub ids: Vec<Vec<u32>>,
    /// Whether a token is a target; as long as the row, never true at position 0.
    pub targets: Vec<Vec<bool>>,
}

impl Rows {
    /// Joins ids and target marks. Clears the mark of each row's first token: nothing predicts it.
    ///
    /// # Errors
    /// When the lists have different numbers of rows, or a row has another number of marks than of tokens.
    pub fn new(ids: Vec<Vec<u32>>, mut targets: Vec<Vec<bool>>) -> Result<Self> {
        let (rows, marked) = (ids.len(), targets.len());
        if rows != marked {
            return Err(Error::Argument(format!("`{rows}` rows of ids but `{marked}` rows of target marks")));
        }
        for (row, (tokens, marks)) in ids.iter().zip(&mut targets).enumerate() {
            let (length, marked) = (tokens.len(), marks.len());
            if length != marked {
                return Err(Error::Argument(format!("row `{row}` has `{length}` tokens but `{marked}` target marks")));
            }
            if let Some(first) = marks.first_mut() {
                *first = false;
            }
        }
        Ok(Self { ids, targets })
    }

    /// A copy of the rows in which every token but the first of each row is a target.
    #[must_use]
    pub fn whole(&self) -> Self {
        let targets = self.ids.iter().map(|ids| (0..ids.len()).map(|at| at > 0).collect()).collect();
        Self { ids: self.ids.clone(), targets }
    }

    /// The tokens before each row's first target, as rows without targets.
    ///
    /// # Errors
    /// The index of a row without a target.
    pub fn prompts(&self) -> std::result::Result<Self, usize> {
        let prompt = |(row, (ids, marks)): (usize, (&Vec<u32>, &Vec<bool>))| {
            let first = marks.iter().position(|mark| *mark).ok_or(row)?;
            Ok::<_, usize>((ids[..first].to_vec(), vec![false; first]))
        };
        let (ids, targets) =
            self.ids.iter().zip(&self.targets).enumerate().map(prompt).collect::<std::result::Result<_, usize>>()?;
        Ok(Self { ids, targets })
    }

    /// A copy of some rows, in the order of `numbers` (row indices, which may repeat); `None` if an index is past the last
    /// row.
    #[must_use]
    pub fn select(&self, numbers: &[u32]) -> Option<Self> {
        let row = |number: &u32| {
            let at = *number as usize;
            Some((self.ids.get(at)?.clone(), self.targets.get(at)?.clone()))
        };
        let (ids, targets) = numbers.iter().map(row).collect::<Option<_>>()?;
        Some(Self { ids, targets })
    }

    /// The number of rows.
    #[must_use]
    pub fn count(&self) -> usize {
        self.ids.len()
    }

    /// The length of the longest row, in tokens; 0 without rows.
    #[must_use]
    pub fn width(&self) -> usize {
        self.ids.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// The number of target tokens in all rows.
    #[must_use]
    pub fn targets(&self) -> usize {
        self.targets.iter().map(|row| marked(row)).sum()
    }

    /// The number of tokens of a row that scoring its targets needs: those before its last target, 0 without targets.
    pub(crate) fn scored_length(&self, row: usize) -> usize {
        self.targets[row].iter().rposition(|mark| *mark).unwrap_or(0)
    }

    /// The number of tokens in all rows, without padding.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.ids.iter().map(Vec::len).sum()
    }

    /// Token ids `[rows, width]`, `u32`, 0 in the padding.
    ///
    /// # Errors
    /// When the device has no room.
    pub fn ids_tensor(&self, device: &Device) -> Result<Tensor> {
        self.padded(device, |row, at| self.ids[row][at])
    }

    /// 1 where a token is a target, else 0: `[rows, width]`, `f32`.
    ///
    /// # Errors
    /// When the device has no room.
    pub fn mask_tensor(&self, device: &Device) -> Result<Tensor> {
        self.padded(device, |row, at| f32::from(u8::from(self.targets[row][at])))
    }

    /// 1 where there is a token, 0 in the padding: `[rows, width]`, `f32`.
    ///
    /// # Errors
    /// When the device has no room.
    pub fn presence_tensor(&self, device: &Device) -> Result<Tensor> {
        self.padded(device, |_, _| 1.0f32)
    }

    /// The number of target tokens of each row: `[rows]`, `f32`.
    ///
    /// # Errors
    /// When the device has no room.
    pub fn lengths_tensor(&self, device: &Device) -> Result<Tensor> {
        let lengths: Vec<f32> = self.targets.iter().map(|row| marked(row) as f32).collect();
        Ok(Tensor::from_vec(lengths, self.count(), device)?)
    }

    /// Creates a `[rows, width]` tensor on a device: `value(row, token)`, with the indices of a row and of a token in it,
    /// and 0 after the end of each row.
    fn padded<T: WithDType + Default>(&self, device: &Device, value: impl Fn(usize, usize) -> T) -> Result<Tensor> {
        let width = self.width();
        let padded = |row: usize| {
            let length = self.ids[row].len();
            let value = &value;
            (0..width).map(move |at| if at < length { value(row, at) } else { T::default() })
        };
        let values: Vec<T> = (0..self.count()).flat_map(padded).collect();
        Ok(Tensor::from_vec(values, (self.count(), width), device)?)
    }
}

/// The number of marks that are set.
fn marked(marks: &[bool]) -> usize {
    marks.iter().filter(|mark| **mark).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Rows {
        Rows::new(vec![vec![5, 6, 7], vec![8]], vec![vec![true, false, true], vec![true]]).unwrap()
    }

    #[test]
    fn the_first_token_of_a_row_is_never_a_target() {
        assert_eq!(sample().targets, vec![vec![false, false, true], vec![false]]);
    }

    #[test]
    fn rows_are_padded_on_the_right_to_the_widest() {
        let rows = sample();
        let ids = rows.ids_tensor(&Device::Cpu).unwrap().to_vec2::<u32>().unwrap();
        let mask = rows.mask_tensor(&Device::Cpu).unwrap().to_vec2::<f32>().unwrap();
        let there = rows.presence_tensor(&Device::Cpu).unwrap().to_vec2::<f32>().unwrap();
        assert_eq!(ids, vec![vec![5, 6, 7], vec![8, 0, 0]]);
        assert_eq!(mask, vec![vec![0.0, 0.0, 1.0], vec![0.0, 0.0, 0.0]]);
        assert_eq!(there, vec![vec![1.0, 1.0, 1.0], vec![1.0, 0.0, 0.0]]);
    }

    #[test]
    fn every_token_of_whole_rows_is_a_target_but_the_first() {
        assert_eq!(sample().whole().targets, vec![vec![false, true, true], vec![false]]);
    }

    #[test]
    fn selected_rows_come_in_the_order_asked_for() {
        let selected = sample().select(&[1, 0]).unwrap();
        assert_eq!(selected.ids, [vec![8], vec![5, 6, 7]]);
        assert_eq!(selected.targets[1], sample().targets[0]);
        assert_eq!(sample().select(&[2]), None);
    }

    #[test]
    fn marks_of_another_length_are_refused() {
        assert!(Rows::new(vec![vec![1, 2]], vec![vec![false]]).is_err());
    }
}
