//! The settings of an adapter, and the linear maps of a model that they select. Module names match as in PEFT: a name
//! is a whole module path or an end of it that starts after a dot.

use std::collections::BTreeSet;
use std::fmt;

use crate::configuration::Configuration;
use crate::decoder::site::Site;
use crate::error::{Error, Result};

/// Kind of adapter, or all weights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AdapterKind {
    /// Low-rank factors, scaled by alpha ÷ rank: W + (alpha/r)·B·A (Hu et al. 2021).
    #[default]
    Lora,
    /// Low-rank factors, scaled by alpha ÷ √rank: W + (alpha/√r)·B·A (Kalajdzievski 2023).
    RsLora,
    /// Low-rank factors and a magnitude for each output (Liu et al. 2024).
    Dora,
    /// No adapter: all weights are trained.
    Full,
}

impl AdapterKind {
    /// The factor of B·A: alpha/√rank for rsLoRA, alpha/rank for every other kind.
    #[must_use]
    pub fn scale(self, alpha: f64, rank: usize) -> f64 {
        let rank = rank as f64;
        match self {
            Self::RsLora => alpha / rank.sqrt(),
            _ => alpha / rank,
        }
    }
}

impl fmt::Display for AdapterKind {
    /// Writes the name that settings files use: `lora`, `rslora`, `dora` or `full`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        serde::Serialize::serialize(self, formatter)
    }
}

/// Modules that get an adapter.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Targets {
    /// Every linear layer of every block; never the embedding or the head.
    #[default]
    AllLinear,
    /// Modules whose path is one of these names or ends with one: `q_proj`, `mlp.down_proj`.
    #[serde(untagged)]
    Modules(Vec<String>),
}

/// The settings of an adapter.
#[derive(Debug, Clone, PartialEq)]
pub struct AdapterSettings {
    /// The kind.
    pub kind: AdapterKind,
    /// Rows of A and columns of B; at least 1. Ignored when all weights are trained.
    pub rank: usize,
    /// The numerator of the scale of B·A.
    pub alpha: f64,
    /// The probability with which dropout zeroes an input of the adapter while training, in `[0, 1)`.
    pub dropout: f64,
    /// The modules that get an adapter.
    pub targets: Targets,
    /// The blocks that get an adapter, counted from 0; `None` for all.
    pub layers: Option<Vec<usize>>,
    /// The random seed of the initial values of A and of the dropout masks.
    pub seed: u64,
}

impl Default for AdapterSettings {
    /// LoRA of rank 16 and alpha 32 on all linear maps of all blocks, without dropout, with seed 42.
    fn default() -> Self {
        Self {
            kind: AdapterKind::Lora,
            rank: 16,
            alpha: 32.0,
            dropout: 0.0,
            targets: Targets::AllLinear,
            layers: None,
            seed: 42,
        }
    }
}

impl AdapterSettings {
    /// Checks the settings that do not depend on a model. Does not look at rank and alpha of kind full.
    ///
    /// # Errors
    /// When dropout is outside [0, 1), or above 0 for DoRA or kind full; when kind full has layers, or targets other than
    /// all linear maps; when the rank is 0, or alpha is not a positive finite number.
    pub fn check(&self) -> Result<()> {
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(Error::Argument(format!("adapter dropout `{}` is outside [0, 1)", self.dropout)));
        }
        let no_dropout = match self.kind {
            AdapterKind::Dora => Some("use `lora`, or dropout 0"),
            AdapterKind::Full => Some("there is no adapter to drop from"),
            _ => None,
        };
        if let (Some(why), true) = (no_dropout, self.dropout > 0.0) {
            let (dropout, kind) = (self.dropout, self.kind);
            let what = format!("adapter dropout `{dropout}` with kind `{kind}` is not supported: {why}");
            return Err(Error::Unsupported(what));
        }
        if self.kind == AdapterKind::Full {
            if self.layers.is_some() || self.targets != Targets::AllLinear {
                let what = "kind `full` trains all weights; take `targets` and `layers` out, or use `lora`";
                return Err(Error::Unsupported(what.into()));
            }
            return Ok(());
        }
        if self.rank == 0 {
            return Err(Error::Argument("adapter rank `0` would train nothing; it is at least 1".into()));
        }
        if !(self.alpha.is_finite() && self.alpha > 0.0) {
            return Err(Error::Argument(format!("adapter alpha `{}` is not a positive number", self.alpha)));
        }
        Ok(())
    }
}

/// A linear map of a model: the index of its block, and the map within the block.
pub(crate) type ModuleKey = (usize, Site);

/// The linear maps that the settings select by layer and module name, sorted by layer, then in the order of a forward
/// pass. Names match by [`matches_module`].
///
/// # Errors
/// When a name matches no module in the selected layers, a layer does not exist, or the list of names or of layers is
/// empty.
pub(crate) fn target_modules(configuration: &Configuration, settings: &AdapterSettings) -> Result<Vec<ModuleKey>> {
    let layers = layers(configuration, settings.layers.as_deref())?;
    let sites = Site::all(configuration);
    let all: Vec<ModuleKey> = layers.iter().flat_map(|layer| sites.iter().map(|site| (*layer, *site))).collect();
    let Targets::Modules(names) = &settings.targets else {
        return Ok(all);
    };
    for name in names {
        if !all.iter().any(|(layer, site)| matches_module(name, &site.path(*layer))) {
            let known = sites.iter().map(|site| site.short_name()).collect();
            return Err(Error::NoModule { name: name.clone(), known });
        }
    }
    let chosen = |place: &ModuleKey| names.iter().any(|name| matches_module(name, &place.1.path(place.0)));
    let places: Vec<ModuleKey> = all.into_iter().filter(chosen).collect();
    if places.is_empty() {
        return Err(Error::Argument("the adapter has no targets; name modules, or use `all-linear`".into()));
    }
    Ok(places)
}

/// Whether a name matches a module path: the name is the whole path, or an end of it that starts after a dot. An empty
/// name matches no module.
pub(crate) fn matches_module(name: &str, path: &str) -> bool {
    match path.strip_suffix(name) {
        Some(before) => before.is_empty() || (!name.is_empty() && before.ends_with('.')),
        None => false,
    }
}

/// The selected layers, sorted and unique; all layers for `None`. Errors: a layer that the model does not have, or an
/// empty list.
fn layers(configuration: &Configuration, chosen: Option<&[usize]>) -> Result<Vec<usize>> {
    let Some(chosen) = chosen else {
        return Ok((0..configuration.layers).collect());
    };
    if let Some(layer) = chosen.iter().find(|layer| **layer >= configuration.layers) {
        return Err(Error::NoLayer { layer: *layer, layers: configuration.layers });
    }
    if chosen.is_empty() {
        return Err(Error::Argument("the adapter names no layer; leave `layers` out for all".into()));
    }
    Ok(BTreeSet::from_iter(chosen.iter().copied()).into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::matches_module;

    #[test]
    fn a_name_means_a_path_or_its_end_at_a_dot_and_no_end_inside_a_word() {
        let path = "model.layers.1.self_attn.q_proj";
        for (name, matches) in
            [("q_proj", true), ("self_attn.q_proj", true), (path, true), ("proj", false), ("", false)]
        {
            assert_eq!(matches_module(name, path), matches, "`{name}`");
        }
    }
}
