//! Undoes what the writers of GGUF files do to weights, so that names and values are those of Hugging Face.

use crate::configuration::Configuration;
use crate::families::GgufLayout;

/// What has to be undone on one tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repair {
    /// Nothing.
    Nothing,
    /// The rows of each of so many heads lie as rotation pairs: 0, d/2, 1, d/2 + 1, …; row `2i + p` of a head becomes
    /// row `p·d/2 + i`.
    Pairs {
        /// Heads in the tensor.
        heads: usize,
    },
    /// 1 was added.
    PlusOne,
}

impl Repair {
    /// What the GGUF layout of the family changed on the weight of this name.
    pub(super) fn of(name: &str, form: GgufLayout, configuration: &Configuration) -> Self {
        if form.pairs_adjacent && name.contains(".q_proj.") {
            Self::Pairs { heads: configuration.heads }
        } else if form.pairs_adjacent && name.contains(".k_proj.") {
            Self::Pairs { heads: configuration.kv_heads }
        } else if form.norms_plus_one && name.ends_with("norm.weight") {
            Self::PlusOne
        } else {
            Self::Nothing
        }
    }

    /// The order of rows before the GGUF writer moved them: row `i` of the repaired matrix is row `order[i]` of the
    /// stored one. `None` if rows do not move.
    pub(super) fn order(self, rows: usize) -> Option<Vec<usize>> {
        let Self::Pairs { heads } = self else { return None };
        let half = rows / heads.max(1) / 2;
        let of_head =
            |head: usize| (0..2).flat_map(move |part| (0..half).map(move |at| head * 2 * half + 2 * at + part));
        Some((0..heads).flat_map(of_head).collect())
    }

    /// The values of a weight of this shape, in row-major order, with the change of the GGUF writer undone.
    pub(super) fn undo(self, mut values: Vec<f32>, shape: &[usize]) -> Vec<f32> {
        match self {
            Self::Nothing => values,
            Self::PlusOne => {
                values.iter_mut().for_each(|value| *value -= 1.0);
                values
            }
            Self::Pairs { .. } => {
                // Biases are rows of one value.
                let rows = shape.first().copied().unwrap_or(1).max(1);
                let width = values.len() / rows;
                let order = self.order(rows).unwrap_or_default();
                order.iter().flat_map(|row| values[row * width..(row + 1) * width].iter().copied()).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_taken_apart_head_by_head() {
        let stored = vec![0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0];
        let rows = Repair::Pairs { heads: 2 }.undo(stored.clone(), &[8]);
        assert_eq!(rows, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        let pairs: Vec<f32> = stored.iter().flat_map(|value| [*value, -value]).collect();
        let rows = Repair::Pairs { heads: 2 }.undo(pairs, &[8, 2]);
        assert_eq!(rows.iter().step_by(2).copied().collect::<Vec<_>>(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    }

    #[test]
    fn the_one_that_was_added_to_a_norm_is_taken_off() {
        assert_eq!(Repair::PlusOne.undo(vec![1.0, 1.5], &[2]), [0.0, 0.5]);
    }
}
