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

    /// Builds rows from padded ids and masks, `[rows, width]` each in row-major order. `presence` is 1 where there is a
    /// token and 0 in the padding after it, `mask` is 1 at targets, else 0. Clears the mark of each row's first token.
    /// The lists have equal lengths, a multiple of `width`.
    ///
    /// # Errors
    /// When a mask has another number than 0 and 1, a row has no token, or a token or a target follows its padding.
    pub fn from_padded(ids: &[u32], presence: &[f32], mask: &[f32], width: usize) -> Result<Self> {
        let width = width.max(1);
        let (mut rows, mut targets) = (Vec::new(), Vec::new());
        for (row, marks) in presence.chunks(width).zip(mask.chunks(width)).enumerate() {
            let refuse = |what: &str| Err(Error::Argument(format!("row `{row}` {what}")));
            if marks.0.iter().chain(marks.1).any(|mark| *mark != 0.0 && *mark != 1.0) {
                return refuse("has a mask with another number than 0 and 1");
            }
            let length = marks.0.iter().take_while(|there| **there == 1.0).count();
            if length == 0 {
                return refuse("does not begin with a token");
            }
            if marks.0[length..].contains(&1.0) || marks.1[length..].contains(&1.0) {
                return refuse("has a token or a target after its padding begins");
            }
            rows.push(ids[row * width..row * width + length].to_vec());
            targets.push(marks.1[..length].iter().map(|mark| *mark == 1.0).collect());
        }
        Self::new(rows, targets)
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
    /// The index of the first row without a target.
    pub fn prompts(&self) -> std::result::Result<Self, usize> {
        let prompt = |(row, (ids, marks)): (usize, (&Vec<u32>, &Vec<bool>))| {
            let first = marks.iter().position(|mark| *mark).ok_or(row)?;
            Ok::<_, usize>((ids[..first].to_vec(), vec![false; first]))
        };
        let (ids, targets) =
            self.ids.iter().zip(&self.targets).enumerate().map(prompt).collect::<std::result::Result<_, usize>>()?;
        Ok(Self { ids, targets })
    }

    /// A copy of some rows, in the order of `numbers` (row indices, which may repeat); `None` if an index is past the
    /// last row.
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
        self.targets.iter().map(|row| count_marks(row)).sum()
    }

    /// How many tokens of a row, from the first, a pass has to run to score the row's targets: those before the last
    /// target; 0 without targets.
    pub(crate) fn scored_length(&self, row: usize) -> usize {
        self.targets[row].iter().rposition(|mark| *mark).unwrap_or(0)
    }

    /// The number of tokens in all rows, without padding.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.ids.iter().map(Vec::len).sum()
    }

    /// Copies the token ids to a device: `[rows, width]`, `u32`, 0 in the padding.
    ///
    /// # Errors
    /// When the device has no room.
    pub fn ids_tensor(&self, device: &Device) -> Result<Tensor> {
        self.padded(device, |row, at| self.ids[row][at])
    }

    /// Creates the target mask on a device: `[rows, width]`, `f32`, 1 where a token is a target, else 0.
    ///
    /// # Errors
    /// When the device has no room.
    pub fn mask_tensor(&self, device: &Device) -> Result<Tensor> {
        self.padded(device, |row, at| f32::from(u8::from(self.targets[row][at])))
    }

    /// Creates the mask of tokens on a device: `[rows, width]`, `f32`, 1 where there is a token, 0 in the padding.
    ///
    /// # Errors
    /// When the device has no room.
    pub fn presence_tensor(&self, device: &Device) -> Result<Tensor> {
        self.padded(device, |_, _| 1.0f32)
    }

    /// Places the numbers of each row in `values` at the row's targets, in order: `[rows, width]`, `f32`, on a device,
    /// 0 elsewhere. A target without a number gets 0; a number without a target is left out.
    ///
    /// # Errors
    /// When the device has no room.
    pub fn target_tensor(&self, values: &[Vec<f32>], device: &Device) -> Result<Tensor> {
        let width = self.width();
        let mut padded = vec![0.0f32; self.count() * width];
        for ((row, marks), values) in self.targets.iter().enumerate().zip(values) {
            let places = marks.iter().enumerate().filter(|(_, mark)| **mark);
            places.zip(values).for_each(|((at, _), value)| padded[row * width + at] = *value);
        }
        Ok(Tensor::from_vec(padded, (self.count(), width), device)?)
    }

    /// Counts the target tokens of each row: `[rows]`, `f32`, on a device.
    ///
    /// # Errors
    /// When the device has no room.
    pub fn lengths_tensor(&self, device: &Device) -> Result<Tensor> {
        let lengths: Vec<f32> = self.targets.iter().map(|row| count_marks(row) as f32).collect();
        Ok(Tensor::from_vec(lengths, self.count(), device)?)
    }

    /// Creates a `[rows, width]` tensor on a device: calls `value` with the index of a row and of a token in the row,
    /// and fills up each row with 0.
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
fn count_marks(marks: &[bool]) -> usize {
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
    fn padded_tensors_of_rows_make_the_rows_again() {
        let rows = sample();
        let ids = rows.ids_tensor(&Device::Cpu).unwrap().flatten_all().unwrap().to_vec1::<u32>().unwrap();
        let mask = rows.mask_tensor(&Device::Cpu).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let presence = rows.presence_tensor(&Device::Cpu).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(Rows::from_padded(&ids, &presence, &mask, 3).unwrap(), rows);
    }

    #[test]
    fn padded_masks_that_no_rows_have_are_refused() {
        let message =
            |presence: &[f32], mask: &[f32]| Rows::from_padded(&[1, 2, 3], presence, mask, 3).unwrap_err().to_string();
        assert!(message(&[1.0, 0.5, 0.0], &[0.0; 3]).contains("0 and 1"));
        assert!(message(&[1.0; 3], &[0.0, f32::NAN, 0.0]).contains("0 and 1"));
        assert!(message(&[0.0, 1.0, 1.0], &[0.0; 3]).contains("does not begin"));
        assert!(message(&[1.0, 0.0, 1.0], &[0.0; 3]).contains("after its padding"));
        assert!(message(&[1.0, 1.0, 0.0], &[0.0, 0.0, 1.0]).contains("after its padding"));
    }

    #[test]
    fn numbers_for_targets_stand_at_the_targets() {
        let numbers = sample().target_tensor(&[vec![0.5], Vec::new()], &Device::Cpu).unwrap();
        assert_eq!(numbers.to_vec2::<f32>().unwrap(), [[0.0, 0.0, 0.5], [0.0; 3]]);
    }

    #[test]
    fn marks_of_another_length_are_refused() {
        assert!(Rows::new(vec![vec![1, 2]], vec![vec![false]]).is_err());
    }
}
