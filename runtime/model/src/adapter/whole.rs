//! Modules that are trained whole beside the low-rank factors of an adapter, as PEFT's `modules_to_save`.

use tunebox_compute::parameters::Slot;

use super::Adapter;
use super::settings::{AdapterKind, AdapterSettings};
use crate::configuration::Configuration;
use crate::error::{Error, Result};
use crate::families::{EMBEDDING, HEAD, weight_shapes};

/// The names and shapes of the weights and biases that the settings train whole beside the low-rank factors, in the
/// order of [`weight_shapes`]. A module is meant if its path ends with one of the names, as in PEFT. In a model with a
/// tied head, embedding and head are two weights; with [`AdapterSettings::ensure_weight_tying`] they are the embedding
/// alone.
///
/// # Errors
/// When a name is the end of no module with weights.
pub(crate) fn whole_weights(
    configuration: &Configuration,
    settings: &AdapterSettings,
) -> Result<Vec<(String, Vec<usize>)>> {
    let names = &settings.modules_to_save;
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let all = weight_shapes(&Configuration { tied: false, ..configuration.clone() });
    let ends = |weight: &str, name: &str| weight.rsplit_once('.').is_some_and(|(path, _)| path.ends_with(name));
    if let Some(name) = names.iter().find(|name| name.is_empty() || !all.iter().any(|(weight, _)| ends(weight, name))) {
        let what = format!("`{name}` is the end of the path of no module with weights");
        return Err(Error::AdapterSetting { key: "modules-to-save", what });
    }
    let is_named = |weight: &str| names.iter().any(|name| ends(weight, name));
    let is_one = configuration.tied && settings.ensure_weight_tying;
    let is_whole = |weight: &str| match weight {
        EMBEDDING if is_one => is_named(EMBEDDING) || is_named(HEAD),
        HEAD if is_one => false,
        _ => is_named(weight),
    };
    Ok(all.into_iter().filter(|(weight, _)| is_whole(weight)).collect())
}

/// Checks that the settings of a new adapter tie embedding and head only if the model does, and one of them is trained
/// whole.
pub(super) fn check_tying(configuration: &Configuration, settings: &AdapterSettings) -> Result<()> {
    let is_embedding = |(name, _): &(String, Vec<usize>)| name == EMBEDDING;
    if !settings.ensure_weight_tying
        || configuration.tied && whole_weights(configuration, settings)?.iter().any(is_embedding)
    {
        return Ok(());
    }
    let what = if configuration.tied {
        "`ensure-weight-tying` is for `modules-to-save` with `embed_tokens` or `lm_head`"
    } else {
        "`ensure-weight-tying` is for models with a tied head, and the head of this model is a matrix of its own"
    };
    Err(Error::AdapterSetting { key: "ensure-weight-tying", what: what.into() })
}

impl Adapter {
    /// Whether weights of the model are trained themselves: all of them, or some beside the low-rank factors.
    #[must_use]
    pub fn trains_weights(&self) -> bool {
        self.whole_slots().next().is_some()
    }

    /// The slots that are weights of the model, with their indices: all for kind full, else those after the factors.
    pub(crate) fn whole_slots(&self) -> impl Iterator<Item = (usize, &Slot)> {
        let factors = self.modules.iter().map(|module| 2 + usize::from(module.magnitude_slot.is_some())).sum();
        self.parameters.slots().iter().enumerate().skip(factors)
    }

    /// Whether embedding and head are two weights with this adapter, also if the model ties them: one of them is
    /// trained beside low-rank factors, and not as one matrix.
    pub(crate) fn separates_head(&self) -> bool {
        let settings = &self.settings;
        let is_trained = || [EMBEDDING, HEAD].iter().any(|name| self.parameters.index(name).is_some());
        settings.kind != AdapterKind::Full && !settings.ensure_weight_tying && is_trained()
    }

    /// The lowest block with something to train, 0 if the embedding is trained; `None` if there is nothing to train
    /// below the final norm.
    pub(crate) fn lowest_trained(&self) -> Option<usize> {
        let block = |slot: &Slot| match slot.name.strip_prefix("model.layers.") {
            Some(rest) => rest.split('.').next()?.parse().ok(),
            None => (slot.name == EMBEDDING).then_some(0),
        };
        self.parameters.slots().iter().filter_map(block).min()
    }
}
