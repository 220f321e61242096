//! Checks of a manifest that its types do not express.

use std::collections::BTreeSet;

use semver::Version;
use tunebox_foundation::contract::CONTRACT;
use tunebox_foundation::printable::is_unprintable;

use super::{Manifest, Setting, Value};
use crate::Error;
use crate::settings::fits;

pub(super) const MOST_ENTRIES: usize = 64;
pub(super) const LONGEST_NAME: usize = 64;
pub(super) const LONGEST_TEXT: usize = 4 << 10;

/// The names of the values that a run itself writes beside a method's metrics. A metric must not have one of them.
const RESERVED: [&str; 14] = [
    "closing",
    "epoch",
    "gradient-norm",
    "rate",
    "seconds",
    "skipped-updates",
    "step",
    "targets",
    "tokens",
    "tokens-per-second",
    "used",
    "validation-loss",
    "validation-pass-at-1",
    "validation-reward",
];

/// Fails unless a manifest keeps the rules that its types do not express: names, as [`name`] checks them, for method
/// and data shape, and distinct ones for settings, metrics and each setting's choices; every other text, such as
/// version, description, license and a setting's doc, passes [`printable`]; a contract version without pre-release and
/// build parts; at most 64 settings and 64 metrics; no metric in [`RESERVED`]. Of defaults, only texts are checked
/// here.
pub(super) fn check(manifest: &Manifest) -> Result<(), Error> {
    name("the method", &manifest.name)?;
    name("the data shape", &manifest.shape)?;
    let optional = [manifest.paper.as_ref(), manifest.license.as_ref()];
    let always = [Some(&manifest.version), Some(&manifest.description), Some(&manifest.interface)];
    optional.into_iter().chain(always).flatten().try_for_each(|text| printable(text))?;
    let released = |version: Version| version.pre.is_empty() && version.build.is_empty();
    if !Version::parse(&manifest.interface).is_ok_and(released) {
        let interface = &manifest.interface;
        return Err(Error::manifest(format!("`interface` is `{interface}`, a version is like `{CONTRACT}`")));
    }

    if manifest.settings.len() > MOST_ENTRIES || manifest.metrics.len() > MOST_ENTRIES {
        return Err(Error::manifest(format!("it lists more than {MOST_ENTRIES} settings or metrics")));
    }
    distinct("metric", manifest.metrics.iter())?;
    if let Some(taken) = manifest.metrics.iter().find(|metric| RESERVED.contains(&metric.as_str())) {
        return Err(Error::manifest(format!("a metric is called `{taken}`, as the run itself calls a number")));
    }
    distinct("setting", manifest.settings.iter().map(|setting| &setting.name))?;
    for setting in &manifest.settings {
        printable(&setting.doc)?;
        distinct("choice", setting.choices.iter())?;
        match &setting.default {
            Some(Value::Text(text)) => printable(text)?,
            Some(Value::Texts(texts)) => texts.iter().try_for_each(|text| printable(text))?,
            _ => {}
        }
    }
    Ok(())
}

/// Returns a setting's default as a value of the setting's kind, or `None` if it has none. An integer becomes a number if
/// the setting takes numbers. Errors: a default of another kind, or one outside of the setting's range or choices.
pub(super) fn default(setting: &Setting) -> Result<Option<Value>, Error> {
    let Some(value) = &setting.default else { return Ok(None) };
    match fits(setting, value.clone()) {
        Ok(value) => Ok(Some(value)),
        Err(problem) => Err(Error::manifest(format!("the default of `{}` is {problem}", setting.name))),
    }
}

/// Fails unless every name passes [`name`] and none occurs twice. `what` says in the error what the names are of.
fn distinct<'a>(what: &str, names: impl Iterator<Item = &'a String>) -> Result<(), Error> {
    let mut seen = BTreeSet::new();
    for entry in names {
        name(&format!("a {what}"), entry)?;
        if !seen.insert(entry) {
            return Err(Error::manifest(format!("the {what} `{entry}` is listed twice")));
        }
    }
    Ok(())
}

/// Fails unless `text` is a name: at most 64 lower-case letters, digits and hyphens, beginning with a letter. `what`
/// says in the error what is called so.
pub(crate) fn name(what: &str, text: &str) -> Result<(), Error> {
    let letters = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let good = text.len() <= LONGEST_NAME && text.bytes().all(letters);
    if good && text.starts_with(|first: char| first.is_ascii_lowercase()) {
        return Ok(());
    }
    let shown: String = text.escape_debug().take(LONGEST_NAME).collect();
    Err(Error::manifest(format!("{what} is called `{shown}`; names are lower-case words joined by hyphens")))
}

/// Fails if a text has more than 4 KiB or a character that [`is_unprintable`].
fn printable(text: &str) -> Result<(), Error> {
    if text.len() > LONGEST_TEXT {
        return Err(Error::manifest(format!("a text has {} bytes, {LONGEST_TEXT} fit", text.len())));
    }
    match text.chars().find(|character| is_unprintable(*character)) {
        Some(character) => {
            Err(Error::manifest(format!("a text holds the control character {}", character.escape_unicode())))
        }
        None => Ok(()),
    }
}
