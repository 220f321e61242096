//! Settings: what people may set, and how the values of a run become a struct.
//!
//! `#[derive(Settings)]` writes the implementations; ranges and unknown names are the host's to check.

use crate::{Error, Result};

pub use crate::bindings::tunebox::method::types::{Setting, Value};

/// The settings of a method: a struct with `#[derive(Settings)]`.
///
/// Each field has a doc comment and `#[setting(default = …)]`, beside it a range of `low`, `high`
/// (inclusive), `above`, `below` (exclusive). Without a default the run must give the setting.
pub trait Settings: Sized {
    /// The manifest's list of settings, as JSON.
    const MANIFEST: &'static str;

    /// Builds the struct from the names and values that the host passes. Errors: a setting that is missing or of
    /// another type than the field.
    fn read(values: &[Setting]) -> Result<Self>;
}

/// For methods without settings.
impl Settings for () {
    const MANIFEST: &'static str = "[]";

    fn read(_: &[Setting]) -> Result<Self> {
        Ok(())
    }
}

/// A setting with a few named values: an enum with `#[derive(Choice)]`. `LogRatio` is written `log-ratio`.
pub trait Choice: Sized + 'static {
    /// The names, in order.
    const NAMES: &'static [&'static str];

    /// The values, in the same order.
    const VALUES: &'static [Self];

    /// The names as a JSON list.
    const MANIFEST: &'static str;
}

/// A type that a setting can have.
pub trait SettingType: Sized {
    /// Its name in a manifest.
    const KIND: &'static str;

    /// The names of a choice as a JSON list.
    const CHOICES: &'static str = "[]";

    /// The names of a choice; empty when any value does.
    const NAMES: &'static [&'static str] = &[];

    /// The least value that fits, as JSON; empty when any does.
    const LOW: &'static str = "";

    /// The largest value that fits, as JSON; empty when any does.
    const HIGH: &'static str = "";

    /// Converts a value of the host; `None` if it is of another type or does not fit.
    fn read(value: &Value) -> Option<Self>;
}

impl SettingType for bool {
    const KIND: &'static str = "boolean";

    fn read(value: &Value) -> Option<Self> {
        match value {
            Value::Boolean(value) => Some(*value),
            _ => None,
        }
    }
}

impl SettingType for String {
    const KIND: &'static str = "text";

    fn read(value: &Value) -> Option<Self> {
        match value {
            Value::Text(value) => Some(value.clone()),
            _ => None,
        }
    }
}

impl SettingType for f64 {
    const KIND: &'static str = "number";

    fn read(value: &Value) -> Option<Self> {
        match value {
            Value::Number(value) => Some(*value),
            _ => None,
        }
    }
}

impl SettingType for f32 {
    const KIND: &'static str = "number";

    fn read(value: &Value) -> Option<Self> {
        f64::read(value).map(|value| value as f32)
    }
}

impl SettingType for i64 {
    const KIND: &'static str = "integer";

    fn read(value: &Value) -> Option<Self> {
        match value {
            Value::Integer(value) => Some(*value),
            _ => None,
        }
    }
}

impl SettingType for u32 {
    const KIND: &'static str = "integer";
    const LOW: &'static str = "0";
    const HIGH: &'static str = "4294967295";

    fn read(value: &Value) -> Option<Self> {
        i64::read(value).and_then(|value| value.try_into().ok())
    }
}

impl<C: Choice + Clone> SettingType for C {
    const KIND: &'static str = "text";
    const CHOICES: &'static str = C::MANIFEST;
    const NAMES: &'static [&'static str] = C::NAMES;

    fn read(value: &Value) -> Option<Self> {
        let Value::Text(given) = value else { return None };
        let place = C::NAMES.iter().position(|name| name == given)?;
        C::VALUES.get(place).cloned()
    }
}

/// Reads the setting `name` from the host's values. Errors: it is missing or of another type than `T`.
#[doc(hidden)]
pub fn field<T: SettingType>(values: &[Setting], name: &str) -> Result<T> {
    let Some((_, value)) = values.iter().find(|(given, _)| given == name) else {
        return Err(Error::new(format!("the host gave no value for the setting `{name}`")));
    };
    T::read(value)
        .ok_or_else(|| Error::new(format!("the value of the setting `{name}` does not fit its type, {}", T::KIND)))
}

/// Whether `wanted` is one of the names of the choice `T`; always true for types without names.
#[doc(hidden)]
pub const fn may_default_to<T: SettingType>(wanted: &str) -> bool {
    let mut index = 0;
    while index < T::NAMES.len() {
        if same(T::NAMES[index].as_bytes(), wanted.as_bytes()) {
            return true;
        }
        index += 1;
    }
    T::NAMES.is_empty()
}

const fn same(left: &[u8], right: &[u8]) -> bool {
    if left.len() != right.len() {
        return false;
    }
    let mut index = 0;
    while index < left.len() {
        if left[index] != right[index] {
            return false;
        }
        index += 1;
    }
    true
}
