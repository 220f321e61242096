//! What a method says about itself, in the custom section `tunebox:manifest`.
//!
//! The section is foreign text: sizes and counts are capped, unknown fields refused, and nothing
//! in it may carry control characters to a terminal.

use std::collections::BTreeSet;
use std::fmt;

use semver::Version;
use serde::{Deserialize, Serialize};
use tunebox_compute::printable::{acts, printable as shown};

use crate::settings::fits;
use crate::{Error, section};

/// The name of the custom section.
pub const SECTION: &str = "tunebox:manifest";

/// The version of the contract that this program keeps, and with it all that came before in its track. The sandbox has
/// the same.
pub const CONTRACT: Version = Version::new(0, 1, 0);

const MOST_BYTES: usize = 64 << 10;
const MOST_ENTRIES: usize = 64;
const LONGEST_NAME: usize = 64;
const LONGEST_TEXT: usize = 4 << 10;

/// What a run writes beside a method's numbers: a metric of such a name would pass for the run's own.
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

/// What a method says about itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Its name: lower-case words joined by hyphens.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What it does, in one sentence.
    pub description: String,
    /// Where its mathematics comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<String>,
    /// The licence, as an SPDX expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub licence: Option<String>,
    /// What it is: a method, or a verifier.
    #[serde(default, skip_serializing_if = "World::is_method")]
    pub world: World,
    /// The shape of the records that it learns from, such as `supervised` or `preference`.
    pub shape: String,
    /// How many records a call of `step` gets.
    #[serde(default, skip_serializing_if = "Cadence::is_micro")]
    pub batch: Cadence,
    /// What people may set.
    pub settings: Vec<Setting>,
    /// The names of the numbers that it reports.
    pub metrics: Vec<String>,
    /// The version of `tunebox:method` that it was built for.
    pub interface: String,
}

/// The world of the contract that a component belongs to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum World {
    /// It trains or edits a model.
    #[default]
    Method,
    /// It judges completions, and asks the host for nothing.
    Verifier,
}

impl World {
    /// Whether it trains or edits a model.
    #[must_use]
    pub fn is_method(&self) -> bool {
        *self == Self::Method
    }
}

/// How many records a call of `step` gets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cadence {
    /// Those of one micro-batch.
    #[default]
    Micro,
    /// Those of the whole accumulation window, in one call: for losses that couple records.
    Window,
}

impl Cadence {
    /// Whether a step gets one micro-batch.
    #[must_use]
    pub fn is_micro(&self) -> bool {
        *self == Self::Micro
    }
}

/// One setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// Its name in `run.toml`.
    pub name: String,
    /// What it does.
    pub doc: String,
    /// The kind of its values.
    pub kind: Kind,
    /// The value of a run that does not say; a setting without one must be given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// The least value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// The largest value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// What the value must exceed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above: Option<f64>,
    /// What the value must stay below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below: Option<f64>,
    /// The only texts that it takes; empty for any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
}

/// The kind of a setting's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// `true` or `false`.
    Boolean,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// A text.
    Text,
}

/// The value of a setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// `true` or `false`.
    Boolean(bool),
    /// A whole number.
    Integer(i64),
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
}

impl fmt::Display for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean(value) => value.fmt(formatter),
            Self::Integer(value) => value.fmt(formatter),
            Self::Number(value) => value.fmt(formatter),
            Self::Text(value) => value.fmt(formatter),
        }
    }
}

/// Reads the manifest of a component. Errors: none there, or one that breaks a rule of this file.
pub fn read_manifest(bytes: &[u8]) -> Result<Manifest, Error> {
    let text = section::find(bytes, SECTION)?;
    parse(text.ok_or_else(|| Error::manifest(format!("there is no section `{SECTION}`")))?)
}

/// Reads and checks the contents of the section. Errors: text that breaks a rule of this file.
pub fn parse(text: &[u8]) -> Result<Manifest, Error> {
    if text.len() > MOST_BYTES {
        return Err(Error::manifest(format!("it has {} bytes, {MOST_BYTES} fit", text.len())));
    }
    let stamp = Stamp::read(text)?;
    let mut manifest: Manifest = serde_json::from_slice(text).map_err(|error| {
        let problem = shown(&error.to_string(), LONGEST_TEXT);
        match stamp {
            // What it was built for may know more than this program does.
            Some((name, wants)) if wants > CONTRACT => Error::OtherVersion { name, wants, problem: Some(problem) },
            _ => Error::manifest(problem),
        }
    })?;
    check(&manifest)?;
    for setting in &mut manifest.settings {
        setting.default = default(setting)?;
    }
    Ok(manifest)
}

/// What every manifest says, whatever else is in it.
#[derive(Deserialize)]
struct Stamp {
    name: String,
    interface: String,
}

impl Stamp {
    /// The method's name and the version that it wants, unless that is no manifest at all. Errors: another track.
    fn read(text: &[u8]) -> Result<Option<(String, Version)>, Error> {
        let Ok(Self { name, interface }) = serde_json::from_slice(text) else { return Ok(None) };
        let Ok(wants) = Version::parse(&interface) else { return Ok(None) };
        let name = shown(&name, LONGEST_NAME);
        let kept = (wants.major, wants.minor) == (CONTRACT.major, CONTRACT.minor);
        if kept { Ok(Some((name, wants))) } else { Err(Error::OtherVersion { name, wants, problem: None }) }
    }
}

/// The rules that the types do not express.
fn check(manifest: &Manifest) -> Result<(), Error> {
    name("the method", &manifest.name)?;
    name("the data shape", &manifest.shape)?;
    let optional = [manifest.paper.as_ref(), manifest.licence.as_ref()];
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
        if let Some(Value::Text(text)) = &setting.default {
            printable(text)?;
        }
    }
    Ok(())
}

/// The default as a value of the setting's kind. Errors: it is outside its own range.
fn default(setting: &Setting) -> Result<Option<Value>, Error> {
    let Some(value) = &setting.default else { return Ok(None) };
    match fits(setting, value.clone()) {
        Ok(value) => Ok(Some(value)),
        Err(problem) => Err(Error::manifest(format!("the default of `{}` is {problem}", setting.name))),
    }
}

/// Names, each once, each of them usable.
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

/// Lower-case words, digits and hyphens.
pub(crate) fn name(what: &str, text: &str) -> Result<(), Error> {
    let letters = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let good = text.len() <= LONGEST_NAME && text.bytes().all(letters);
    if good && text.starts_with(|first: char| first.is_ascii_lowercase()) {
        return Ok(());
    }
    let shown: String = text.escape_debug().take(LONGEST_NAME).collect();
    Err(Error::manifest(format!("{what} is called `{shown}`; names are lower-case words joined by hyphens")))
}

/// Text that a terminal may show.
fn printable(text: &str) -> Result<(), Error> {
    if text.len() > LONGEST_TEXT {
        return Err(Error::manifest(format!("a text has {} bytes, {LONGEST_TEXT} fit", text.len())));
    }
    match text.chars().find(|character| acts(*character)) {
        Some(character) => {
            Err(Error::manifest(format!("a text holds the control character {}", character.escape_unicode())))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
