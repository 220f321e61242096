//! Which linear maps of a model get an adapter, and the rank and alpha of each.

use super::pattern::Pattern;
use super::settings::{AdapterSettings, ModuleKey, target_modules};
use crate::configuration::Configuration;
use crate::error::{Error, Result};

/// A linear map to adapt, with the rank and alpha of its adapter.
pub(crate) struct ModulePlan {
    pub(crate) place: ModuleKey,
    pub(crate) rank: usize,
    pub(crate) alpha: f64,
}

/// Plans the modules of a new adapter: those that the settings select, with the rank and alpha of the patterns that
/// match them, else those of the settings.
///
/// # Errors
/// When [`target_modules`] fails, a pattern is no regular expression or matches no selected module, or two patterns of
/// one list match a module.
pub(super) fn plan_new(configuration: &Configuration, settings: &AdapterSettings) -> Result<Vec<ModulePlan>> {
    let places = target_modules(configuration, settings)?;
    let ranks = Values::compile(&settings.rank_pattern).map_err(in_key("rank-pattern"))?;
    let alphas = Values::compile(&settings.alpha_pattern).map_err(in_key("alpha-pattern"))?;
    ranks.check(&places).map_err(in_key("rank-pattern"))?;
    alphas.check(&places).map_err(in_key("alpha-pattern"))?;
    plan(places, settings, &ranks, &alphas)
}

/// Plans the given modules with the rank and alpha of the first pattern of the settings that matches each, as PEFT
/// does, else those of the settings. Errors: a pattern is no regular expression.
pub(super) fn plan_modules(places: Vec<ModuleKey>, settings: &AdapterSettings) -> Result<Vec<ModulePlan>> {
    let (ranks, alphas) = (Values::compile(&settings.rank_pattern)?, Values::compile(&settings.alpha_pattern)?);
    plan(places, settings, &ranks, &alphas)
}

/// Plans the given modules, each with the value of the first pattern in `ranks` and in `alphas` that matches its path,
/// else with the rank or alpha of the settings. Errors: matching a path takes too long.
fn plan(
    places: Vec<ModuleKey>,
    settings: &AdapterSettings,
    ranks: &Values<usize>,
    alphas: &Values<f64>,
) -> Result<Vec<ModulePlan>> {
    let plan = |place: ModuleKey| {
        let path = place.1.path(place.0);
        let rank = ranks.first(&path)?.unwrap_or(settings.rank);
        Ok(ModulePlan { place, rank, alpha: alphas.first(&path)?.unwrap_or(settings.alpha) })
    };
    places.into_iter().map(plan).collect()
}

/// Wraps the message of an error as one about the setting `key` of a new adapter.
fn in_key(key: &'static str) -> impl Fn(Error) -> Error {
    move |error| Error::AdapterSetting { key, what: error.to_string() }
}

/// Values by the patterns of the modules that they are for.
struct Values<T>(Vec<(Pattern, String, T)>);

impl<T: Copy> Values<T> {
    /// Compiles pairs of a pattern and a value. Errors: a pattern is no regular expression.
    fn compile(pairs: &[(String, T)]) -> Result<Self> {
        let compile = |(text, value): &(String, T)| Ok((Pattern::of_path_end(text)?, text.clone(), *value));
        Ok(Self(pairs.iter().map(compile).collect::<Result<_>>()?))
    }

    /// The value of the first pattern that matches a path; `None` if none does.
    fn first(&self, path: &str) -> Result<Option<T>> {
        for (pattern, _, value) in &self.0 {
            if pattern.is_match(path)? {
                return Ok(Some(*value));
            }
        }
        Ok(None)
    }

    /// Checks that each pattern matches one of the modules, and that each module is matched by at most one pattern. A
    /// run file has no order of keys that could decide between two.
    fn check(&self, places: &[ModuleKey]) -> Result<()> {
        let mut used = vec![false; self.0.len()];
        for (layer, site) in places {
            let path = site.path(*layer);
            let mut matched: Option<&String> = None;
            for ((pattern, text, _), used) in self.0.iter().zip(&mut used) {
                if !pattern.is_match(&path)? {
                    continue;
                }
                *used = true;
                if let Some(other) = matched.replace(text) {
                    return Err(Error::Argument(format!("`{other}` and `{text}` both match `{path}`")));
                }
            }
        }
        match self.0.iter().zip(used).find(|(_, used)| !used) {
            Some(((_, text, _), _)) => Err(Error::Argument(format!("`{text}` matches no module that gets an adapter"))),
            None => Ok(()),
        }
    }
}
