//! Rotation tables of a model, made as far as sequences have reached and shared from then on.
//! Leaves the frequencies to `configuration` and the rotation to `fused`.

use std::sync::{Arc, Mutex, PoisonError};

use tunebox_compute::fused::RopeTable;

use crate::configuration::Configuration;
use crate::error::{Error, Result};

/// The tables of one model, one for each kind of rotation.
#[derive(Debug, Default)]
pub struct Tables {
    made: Mutex<Vec<Option<Made>>>,
}

#[derive(Debug, Clone)]
struct Made {
    positions: usize,
    table: Arc<RopeTable>,
}

impl Tables {
    /// A table that covers at least this many positions.
    pub(crate) fn covering(
        &self,
        configuration: &Configuration,
        number: usize,
        positions: usize,
    ) -> Result<Arc<RopeTable>> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.len() <= number {
            made.resize(number + 1, None);
        }
        if let Some(found) = made[number].as_ref().filter(|found| found.positions >= positions) {
            return Ok(Arc::clone(&found.table));
        }
        let positions = positions.next_power_of_two().max(256);
        let Some(setting) = configuration.ropes.get(number) else {
            return Err(Error::Argument(format!(
                "a layer asks for rotation `{number}`, which the model does not have"
            )));
        };
        let frequencies = setting.frequencies(configuration.head_dim);
        let table = RopeTable::from_frequencies(&frequencies, positions, setting.attention_factor());
        let table = Arc::new(table);
        made[number] = Some(Made { positions, table: Arc::clone(&table) });
        Ok(table)
    }
}
