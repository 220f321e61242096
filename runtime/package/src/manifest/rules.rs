//! Checks of a manifest that its types do not express.

use std::collections::BTreeSet;

use semver::Version;
use tunebox_foundation::contract::CONTRACT;
use tunebox_foundation::printable::{is_unprintable, printable};

use super::{Manifest, Setting, Value};
use crate::Error;
use crate::settings::convert_and_check;

/// The most settings, and the most metrics, of a manifest.
pub(super) const MAX_ENTRIES: usize = 64;
/// The longest name, in bytes.
pub(super) const MAX_NAME_BYTES: usize = 64;
/// The longest other text, in bytes.
pub(super) const MAX_TEXT_BYTES: usize = 4 << 10;

/// The names of the values that a run itself writes beside a method's metrics. A metric must not have one of them.
const RESERVED_METRICS: [&str; 14] = [
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

/// Whether a run itself writes a number of this name: one of [`RESERVED_METRICS`], or `reward-VERIFIER-mean`, `-std` or
/// `-failed` of the verdicts of a verifier.
fn is_metric_of_run(name: &str) -> bool {
    let of_verifier = |rest: &str| ["-mean", "-std", "-failed"].iter().any(|end| rest.ends_with(end));
    RESERVED_METRICS.contains(&name) || name.strip_prefix("reward-").is_some_and(of_verifier)
}

/// Fails unless a manifest keeps the rules that its types do not express: names, as [`check_name`] checks them, for
/// method and data shape, and distinct ones for settings, metrics and each setting's choices; a version, as
/// [`check_version`] checks it; every other text, such as description, license and a setting's doc, passes
/// [`check_printable`]; a contract version without pre-release and build parts; at most 64 settings and 64 metrics; no
/// metric of a run ([`is_metric_of_run`]), and no setting in [`World::reserved_settings`]. Of defaults, only texts are checked here.
pub(super) fn check(manifest: &Manifest) -> Result<(), Error> {
    check_name("the method", &manifest.name)?;
    check_name("the data shape", &manifest.shape)?;
    check_version(&manifest.version)?;
    let always = [&manifest.description, &manifest.interface];
    let mut texts = manifest.paper.iter().chain(&manifest.license).chain(always);
    texts.try_for_each(|text| check_printable(text))?;
    let released = |version: Version| version.pre.is_empty() && version.build.is_empty();
    if !Version::parse(&manifest.interface).is_ok_and(released) {
        let interface = &manifest.interface;
        return Err(Error::manifest(format!("`interface` is `{interface}`, a version is like `{CONTRACT}`")));
    }

    if manifest.settings.len() > MAX_ENTRIES || manifest.metrics.len() > MAX_ENTRIES {
        return Err(Error::manifest(format!("it lists more than {MAX_ENTRIES} settings or metrics")));
    }
    check_distinct_names("metric", manifest.metrics.iter())?;
    if let Some(taken) = manifest.metrics.iter().find(|metric| is_metric_of_run(metric)) {
        return Err(Error::manifest(format!("a metric is called `{taken}`, as the run itself calls a number")));
    }
    check_distinct_names("setting", manifest.settings.iter().map(|setting| &setting.name))?;
    let reserved = manifest.world.reserved_settings();
    if let Some(taken) = manifest.settings.iter().find(|setting| reserved.contains(&setting.name.as_str())) {
        let (world, name) = (manifest.world.name(), &taken.name);
        return Err(Error::manifest(format!("a setting is called `{name}`, as a key of every {world} in a run file")));
    }
    for setting in &manifest.settings {
        check_printable(&setting.doc)?;
        check_distinct_names("choice", setting.choices.iter())?;
        match &setting.default {
            Some(Value::Text(text)) => check_printable(text)?,
            Some(Value::Texts(texts)) => texts.iter().try_for_each(|text| check_printable(text))?,
            _ => {}
        }
    }
    Ok(())
}

/// Returns a setting's default as a value of the setting's kind, or `None` if it has none. An integer becomes a number
/// if the setting takes numbers. Errors: a default of another kind, or one outside of the setting's range or choices.
pub(super) fn default_value(setting: &Setting) -> Result<Option<Value>, Error> {
    let Some(value) = &setting.default else { return Ok(None) };
    match convert_and_check(setting, value.clone()) {
        Ok(value) => Ok(Some(value)),
        Err(problem) => Err(Error::manifest(format!("the default of `{}` is {problem}", setting.name))),
    }
}

/// Fails unless every name passes [`check_name`] and none occurs twice. `what` says in the error what the names are of.
fn check_distinct_names<'a>(what: &str, names: impl Iterator<Item = &'a String>) -> Result<(), Error> {
    let mut seen = BTreeSet::new();
    for entry in names {
        check_name(&format!("a {what}"), entry)?;
        if !seen.insert(entry) {
            return Err(Error::manifest(format!("the {what} `{entry}` is listed twice")));
        }
    }
    Ok(())
}

/// Fails unless `text` is a name: at most 64 lower-case letters, digits and hyphens, beginning with a letter. `what`
/// says in the error what is called so.
pub(crate) fn check_name(what: &str, text: &str) -> Result<(), Error> {
    let letters = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let good = text.len() <= MAX_NAME_BYTES && text.bytes().all(letters);
    if good && text.starts_with(|first: char| first.is_ascii_lowercase()) {
        return Ok(());
    }
    let shown: String = text.escape_debug().take(MAX_NAME_BYTES).collect();
    Err(Error::manifest(format!("{what} is called `{shown}`; names are lower-case words joined by hyphens")))
}

/// Fails unless `text` is like a version: 1 to 64 letters and digits of ASCII, `.`, `+` and `-`. Lines that show a
/// package have the version in their middle, where a longer text could claim a signature.
fn check_version(text: &str) -> Result<(), Error> {
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'+' | b'-');
    if (1..=MAX_NAME_BYTES).contains(&text.len()) && text.bytes().all(letters) {
        return Ok(());
    }
    let shown = printable(text, MAX_NAME_BYTES);
    Err(Error::manifest(format!("its version is `{shown}`; a version is like `1.2.3`")))
}

/// Fails if a text has more than 4 KiB or a character that [`is_unprintable`].
fn check_printable(text: &str) -> Result<(), Error> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(Error::manifest(format!("a text has {} bytes, {MAX_TEXT_BYTES} fit", text.len())));
    }
    match text.chars().find(|character| is_unprintable(*character)) {
        Some(character) => {
            Err(Error::manifest(format!("a text holds the control character {}", character.escape_unicode())))
        }
        None => Ok(()),
    }
}
