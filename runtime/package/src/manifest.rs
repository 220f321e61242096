//! The manifest of a method: what it states about itself, in the custom section `tunebox:manifest`.
//!
//! The section is untrusted text: sizes and counts are limited, unknown fields are errors, and texts may hold no
//! control characters, which could act on a terminal.

mod rules;

use semver::Version;
use serde::{Deserialize, Serialize};
use tunebox_foundation::contract::{CONTRACT, is_of_track, version_mismatch};
use tunebox_foundation::printable::printable;
pub use tunebox_foundation::setting::Value;

pub(crate) use self::rules::check_name;
use self::rules::{MAX_NAME_BYTES, MAX_TEXT_BYTES};
use crate::error::Reason;
use crate::{Error, section};

/// The name of the custom section.
pub const SECTION: &str = "tunebox:manifest";

/// The largest manifest, in bytes.
const MAX_BYTES: usize = 64 << 10;

/// The manifest of a method, verifier or environment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Its name: lower-case words joined by hyphens.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What it does, in one sentence.
    pub description: String,
    /// The paper that describes its mathematics, such as `arXiv:2305.18290`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<String>,
    /// The license, as an SPDX expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub license: Option<String>,
    /// What it is: a method, a verifier, or an environment.
    #[serde(default, skip_serializing_if = "World::is_method")]
    pub world: World,
    /// The shape of the records that it learns from, such as `supervised` or `preference`.
    pub shape: String,
    /// How many records a call of `step` gets.
    #[serde(default, skip_serializing_if = "Cadence::is_micro")]
    pub batch: Cadence,
    /// Who updates the trained parameters.
    #[serde(default, skip_serializing_if = "Updates::is_host")]
    pub update: Updates,
    /// The settings that a run file can give.
    pub settings: Vec<Setting>,
    /// The names of the metrics that it reports.
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
    /// It answers completions, and asks the host for nothing.
    Environment,
}

impl World {
    /// Returns the name of this world in the contract: `method`, `verifier` or `environment`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Method => "method",
            Self::Verifier => "verifier",
            Self::Environment => "environment",
        }
    }

    /// The keys that a run file has in the table of every component of this world, beside the component's settings: no
    /// setting can have such a name.
    #[must_use]
    pub fn reserved_settings(self) -> &'static [&'static str] {
        match self {
            Self::Method => &["use", "grants"],
            Self::Verifier => &["use", "name", "weight", "answer", "on-failure", "fresh"],
            Self::Environment => &["use", "weight", "answer", "max-turns"],
        }
    }

    /// Whether this is the world of methods, which train or edit a model.
    #[must_use]
    pub fn is_method(&self) -> bool {
        *self == Self::Method
    }
}

/// How many records a call of `step` gets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cadence {
    /// The records of one micro-batch.
    #[default]
    Micro,
    /// The records of the whole accumulation window, in one call: for losses in which several records occur.
    Window,
}

impl Cadence {
    /// Whether a call of `step` gets the records of one micro-batch; false if it gets the whole accumulation window.
    #[must_use]
    pub fn is_micro(&self) -> bool {
        *self == Self::Micro
    }
}

/// Who updates the trained parameters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Updates {
    /// The host, with the optimizer of the run.
    #[default]
    Host,
    /// The method, through the interface `optimizer`: the host makes no optimizer.
    Method,
}

impl Updates {
    /// Whether the host updates the parameters; false if the method does.
    #[must_use]
    pub fn is_host(&self) -> bool {
        *self == Self::Host
    }
}

/// A setting of a method.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// Its name in `run.toml`.
    pub name: String,
    /// What it does.
    pub doc: String,
    /// The kind of its values.
    pub kind: Kind,
    /// The value if the run file does not give one. Without a default, the run file must give a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// The lower bound of a number, which is itself allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// The upper bound of a number, which is itself allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// The exclusive lower bound of a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above: Option<f64>,
    /// The exclusive upper bound of a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below: Option<f64>,
    /// The least number of items of a list. The other bounds of a list are those of each item.
    #[serde(default, rename = "min-items", skip_serializing_if = "Option::is_none")]
    pub min_items: Option<u32>,
    /// The largest number of items of a list; at most [`MAX_ITEMS`](crate::settings::MAX_ITEMS), which holds without
    /// it.
    #[serde(default, rename = "max-items", skip_serializing_if = "Option::is_none")]
    pub max_items: Option<u32>,
    /// The texts that are allowed; empty if any text is.
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
    /// A list of whole numbers.
    Integers,
    /// A list of numbers.
    Numbers,
    /// A list of texts.
    Texts,
}

/// Reads and checks the manifest in a component's custom section. Errors: bytes that are no WebAssembly, no such
/// section or two, or those of [`parse`].
pub fn read_manifest(bytes: &[u8]) -> Result<Manifest, Error> {
    let text = section::find(bytes, SECTION)?;
    parse(text.ok_or_else(|| Error::manifest(format!("there is no section `{SECTION}`")))?)
}

/// Parses and checks the JSON of a manifest's section, and converts each default to its setting's kind. Errors: more
/// than 64 KiB, JSON of another form, an unknown field, a rule of `rules::check`, a default that its setting does not
/// take, or a contract version with another major or minor number than [`CONTRACT`]. If JSON of another form states a
/// later contract version, the error asks for a newer program.
pub fn parse(text: &[u8]) -> Result<Manifest, Error> {
    if text.len() > MAX_BYTES {
        return Err(Error::manifest(format!("it has {} bytes, {MAX_BYTES} fit", text.len())));
    }
    let stamp = Stamp::read(text)?;
    let mut manifest: Manifest = serde_json::from_slice(text).map_err(|error| {
        let problem = printable(&error.to_string(), MAX_TEXT_BYTES);
        match stamp {
            // What it was built for may know more than this program does.
            Some((name, wants)) if wants > CONTRACT => needs_version(&name, &wants, &problem),
            _ => Error::manifest(problem),
        }
    })?;
    rules::check(&manifest)?;
    for setting in &mut manifest.settings {
        setting.default = rules::default_value(setting)?;
    }
    Ok(manifest)
}

/// The two fields that a manifest of any version of the contract has.
#[derive(Deserialize)]
struct Stamp {
    name: String,
    interface: String,
}

impl Stamp {
    /// Reads the method's name, safe to show, and the version of the contract that it needs. `None` if the text is not
    /// JSON with both, or `interface` is no semantic version. Errors: a version with another major or minor number than
    /// [`CONTRACT`].
    fn read(text: &[u8]) -> Result<Option<(String, Version)>, Error> {
        let Ok(Self { name, interface }) = serde_json::from_slice(text) else { return Ok(None) };
        let Ok(wants) = Version::parse(&interface) else { return Ok(None) };
        let name = printable(&name, MAX_NAME_BYTES);
        if is_of_track(&wants) { Ok(Some((name, wants))) } else { Err(needs_version(&name, &wants, "")) }
    }
}

/// Makes the error for a method whose manifest shows that it needs version `wants` of the contract. `problem` is what
/// this program cannot parse in the manifest of a later, compatible version; empty if the version is incompatible.
fn needs_version(name: &str, wants: &Version, problem: &str) -> Error {
    let missing = format!("its manifest says more: {problem}");
    Reason::Sandbox.error(version_mismatch(name, wants, "`interface` of its manifest", missing))
}

#[cfg(test)]
mod tests;
