//! The linear maps of a model that a list of names selects.
//! The rules are PEFT's: a name is a whole path or ends one at a dot.

use std::collections::BTreeSet;

use super::settings::{AdapterSettings, Targets};
use crate::configuration::Configuration;
use crate::decoder::site::Site;
use crate::error::{Error, Result};

/// A linear map of a model.
pub(crate) type ModuleKey = (usize, Site);

/// The linear maps that the settings select, sorted by layer, then in the order of a forward pass.
///
/// # Errors
/// When a name matches no module in the selected layers, a layer does not exist, or nothing is selected.
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

/// Whether a name matches a module path: the whole path, or an end of it that starts after a dot.
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
