//! Tracks which rows have a gradient since the last update: a second one is refused unless the method allowed repeats.

use std::sync::{Arc, Weak};

use tunebox_model::rows::Rows;

use crate::refusal::{Refusal, Result, ensure};

/// The rows that have a gradient since the last update. Holds no rows alive.
#[derive(Debug, Default)]
pub(crate) struct LearnedRows {
    rows: Vec<Weak<Rows>>,
    /// Whether rows may get several gradients for one update.
    pub(crate) allows_repeats: bool,
}

impl LearnedRows {
    /// Adds rows that get a gradient now. `begins` says that no gradient has accumulated since the last update: the
    /// rows of before are dropped first. Compares rows by identity, so a selection of rows differs from the rows that
    /// it was made of. The same rows may come several times in one call, since one loss may depend on several scores
    /// of them.
    ///
    /// Errors: `invalid-argument` for rows that have a gradient already, unless repeats are allowed; nothing is added
    /// then.
    pub(crate) fn add<'a>(&mut self, rows: impl Iterator<Item = &'a Arc<Rows>>, begins: bool) -> Result<()> {
        if begins {
            self.rows.clear();
        }
        let before = self.rows.len();
        for rows in rows {
            let rows = Arc::downgrade(rows);
            let repeated = !self.allows_repeats && self.rows.iter().take(before).any(|known| known.ptr_eq(&rows));
            let twice = "these rows have a gradient since the last update, so they would count twice; join the losses to one, \
                         clear the gradients between (`optimizer.clear-gradients`), or call `learn.allow-repeats` where that is meant";
            if repeated {
                self.rows.truncate(before);
            }
            ensure(!repeated, || Refusal::argument(twice))?;
            self.rows.push(rows);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Arc<Rows> {
        Arc::new(Rows::new(vec![vec![1, 2]], vec![vec![false, true]]).unwrap())
    }

    #[test]
    fn rows_get_one_gradient_for_an_update() {
        let (one, other, mut learned) = (rows(), rows(), LearnedRows::default());
        learned.add([&one].into_iter(), true).unwrap();
        learned.add([&other].into_iter(), false).unwrap();
        assert!(learned.add([&one].into_iter(), false).is_err());
        learned.add([&one].into_iter(), true).unwrap();
        learned.allows_repeats = true;
        learned.add([&one].into_iter(), false).unwrap();
    }

    #[test]
    fn one_loss_may_hang_on_two_scores_of_the_same_rows() {
        let (one, mut learned) = (rows(), LearnedRows::default());
        learned.add([&one, &one].into_iter(), true).unwrap();
    }
}
