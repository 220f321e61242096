//! The settings of an adapter, and the linear maps of a model that they select. Module names match as in PEFT: a name
//! is a whole module path or an end of it that starts after a dot; a regular expression matches a whole path.

use std::collections::BTreeSet;
use std::f64::consts::SQRT_2;
use std::fmt;

use super::initial::Initialization;
use super::pattern::Pattern;
use super::whole::whole_weights;
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

    /// Twice a rank, and the alpha with which [`scale`](Self::scale) stays as with `rank` and `alpha`.
    pub(super) fn double_rank(self, rank: usize, alpha: f64) -> (usize, f64) {
        (2 * rank, alpha * if self == Self::RsLora { SQRT_2 } else { 2.0 })
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
    /// Every linear layer of every block; never the embedding or the head. In a model with experts, those of the
    /// attention only: never router and experts.
    #[default]
    AllLinear,
    /// Modules whose whole path matches this regular expression. Settings files have a key of its own for it.
    #[serde(skip)]
    Pattern(String),
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
    /// Ranks other than `rank`, each with a regular expression that matches a module's path or an end of it after a
    /// dot.
    pub rank_pattern: Vec<(String, usize)>,
    /// Alphas other than `alpha`, with regular expressions as for ranks.
    pub alpha_pattern: Vec<(String, f64)>,
    /// The modules that are trained whole beside the low-rank factors, each by an end of its path; empty for kind full.
    pub modules_to_save: Vec<String>,
    /// Whether the embedding and the head of a model that ties them are trained as one matrix, if `modules_to_save`
    /// names one of them. Else each that it names is a matrix of its own.
    pub ensure_weight_tying: bool,
    /// The first values of A and B.
    pub initialize: Initialization,
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
            rank_pattern: Vec::new(),
            alpha_pattern: Vec::new(),
            modules_to_save: Vec::new(),
            ensure_weight_tying: false,
            initialize: Initialization::Random,
            seed: 42,
        }
    }
}

impl AdapterSettings {
    /// Checks the settings that do not depend on a model. Does not look at rank and alpha of kind full.
    ///
    /// # Errors
    /// When dropout is outside [0, 1), or above 0 for DoRA or kind full; when kind full has layers, patterns, modules
    /// to save, or targets other than all linear maps; when a pattern for targets comes with layers; when a rank is 0,
    /// or an alpha is not a positive finite number; when `initialize` is not random for DoRA or kind full.
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
        if matches!(self.kind, AdapterKind::Dora | AdapterKind::Full) && !self.initialize.is_random() {
            let (initialize, kind) = (self.initialize, self.kind);
            let what = format!(
                "adapter `initialize` `{initialize}` with kind `{kind}` is not supported: use `lora` or `rslora`"
            );
            return Err(Error::Unsupported(what));
        }
        if self.kind == AdapterKind::Full {
            return self.check_full();
        }
        if self.layers.is_some() && matches!(self.targets, Targets::Pattern(_)) {
            let what = "a pattern for targets selects layers itself; take `layers` out";
            return Err(Error::Unsupported(what.into()));
        }
        if self.rank == 0 || self.rank_pattern.iter().any(|(_, rank)| *rank == 0) {
            return Err(Error::Argument("adapter rank `0` would train nothing; it is at least 1".into()));
        }
        let mut alphas = self.alpha_pattern.iter().map(|(_, alpha)| *alpha).chain([self.alpha]);
        if let Some(alpha) = alphas.find(|alpha| !(alpha.is_finite() && *alpha > 0.0)) {
            return Err(Error::Argument(format!("adapter alpha `{alpha}` is not a positive number")));
        }
        Ok(())
    }

    /// Fails if settings of kind full select modules, to adapt or to save, or give some another rank or alpha.
    fn check_full(&self) -> Result<()> {
        if self.layers.is_some() || self.targets != Targets::AllLinear {
            let what = "kind `full` trains all weights; take `targets` and `layers` out, or use `lora`";
            return Err(Error::Unsupported(what.into()));
        }
        if !(self.rank_pattern.is_empty() && self.alpha_pattern.is_empty()) {
            let what = "kind `full` has no ranks; take `rank-pattern` and `alpha-pattern` out, or use `lora`";
            return Err(Error::Unsupported(what.into()));
        }
        if !self.modules_to_save.is_empty() {
            let what = "kind `full` trains all weights; take `modules-to-save` out, or use `lora`";
            return Err(Error::Unsupported(what.into()));
        }
        Ok(())
    }
}

/// A linear map of a model: the index of its block, and the map within the block.
pub(crate) type ModuleKey = (usize, Site);

/// The linear maps that the settings select by layer and module name, without those that they train whole, sorted by
/// layer, then in the order of a forward pass. Names match by [`matches_module`].
///
/// # Errors
/// When a name or the pattern matches no module in the selected layers, or router or experts, the pattern matches the
/// embedding or the head, a layer does not exist, the list of names or of layers is empty, a name of a module that is
/// trained whole is that of none, or all selected maps are trained whole.
pub(crate) fn target_modules(configuration: &Configuration, settings: &AdapterSettings) -> Result<Vec<ModuleKey>> {
    let whole = whole_weights(configuration, settings)?;
    let is_whole = |(layer, site): &ModuleKey| {
        let weight = format!("{}.weight", site.path(*layer));
        whole.iter().any(|(name, _)| *name == weight)
    };
    let mut places = selected_modules(configuration, settings)?;
    places.retain(|place| !is_whole(place));
    if places.is_empty() {
        let what = "all modules that would get an adapter are trained whole".into();
        return Err(Error::AdapterSetting { key: "modules-to-save", what });
    }
    Ok(places)
}

/// The linear maps that the settings select by layer and module name, as [`target_modules`] returns them, with those
/// that are trained whole.
fn selected_modules(configuration: &Configuration, settings: &AdapterSettings) -> Result<Vec<ModuleKey>> {
    let layers = layers(configuration, settings.layers.as_deref())?;
    let sites = Site::all(configuration);
    let all: Vec<ModuleKey> = layers.iter().flat_map(|layer| sites.iter().map(|site| (*layer, *site))).collect();
    let names = match &settings.targets {
        Targets::AllLinear => return Ok(all),
        Targets::Pattern(text) => return matching_modules(configuration, text, all),
        Targets::Modules(names) => names,
    };
    for name in names {
        refuse_experts(configuration, name, "targets", |path| Ok(matches_module(name, path)))?;
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

/// Fails if a name or pattern selects the router or a map of the experts, by the path of the module in the first block.
/// Adapters are for the attention of a model with experts. `key` is the setting that holds the name.
fn refuse_experts(
    configuration: &Configuration,
    name: &str,
    key: &'static str,
    selects: impl Fn(&str) -> Result<bool>,
) -> Result<()> {
    if configuration.experts.is_none() {
        return Ok(());
    }
    let names = configuration.expert_names;
    for module in names.of_expert(0).into_iter().chain([names.router()]) {
        if selects(&format!("model.layers.0.{module}"))? {
            let what = format!("`{name}` matches `{module}`; in a model with experts, adapters are for its attention");
            return Err(Error::AdapterSetting { key, what });
        }
    }
    Ok(())
}

/// The modules among `all` whose whole path matches a regular expression. Errors: it matches none, or the embedding or
/// the head, which PEFT would adapt, or router or experts.
fn matching_modules(configuration: &Configuration, text: &str, all: Vec<ModuleKey>) -> Result<Vec<ModuleKey>> {
    let error = |what: String| Error::AdapterSetting { key: "target-pattern", what };
    let pattern = Pattern::of_path(text).map_err(|found| error(found.to_string()))?;
    for other in ["model.embed_tokens", "lm_head"] {
        if pattern.is_match(other)? {
            let what = format!("`{text}` matches `{other}`; low-rank factors are for the linear maps of blocks");
            return Err(error(format!("{what}, `modules-to-save` trains this module whole")));
        }
    }
    refuse_experts(configuration, text, "target-pattern", |path| pattern.is_match(path))?;
    let mut places = Vec::new();
    for (layer, site) in all {
        if pattern.is_match(&site.path(layer))? {
            places.push((layer, site));
        }
    }
    if places.is_empty() {
        return Err(error(format!("`{text}` matches the whole path of no linear map")));
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
