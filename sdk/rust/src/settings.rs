//! Settings: what people may set, and how the values of a run become a struct.
//!
//! `#[derive(Settings)]` writes the implementations; ranges and unknown names are the host's to check.
//!
//! ```
//! use tunebox::Settings;
//! use tunebox::settings::Value;
//!
//! /// What people may set.
//! #[derive(Settings, Debug, PartialEq)]
//! struct Options {
//!     /// The factor of the penalty.
//!     #[setting(default = 0.1, above = 0.0)]
//!     beta: f32,
//!     /// The layers that are changed.
//!     #[setting(default = [4, 8], min_items = 1)]
//!     layers: Vec<u32>,
//! }
//!
//! let given = [("beta".to_owned(), Value::Number(0.5)), ("layers".to_owned(), Value::Integers(vec![3]))];
//! assert_eq!(Options::read(&given).unwrap(), Options { beta: 0.5, layers: vec![3] });
//! ```

use crate::{Error, Result};

pub use crate::bindings::tunebox::method::types::{Setting, Value};

/// The settings of a method: a struct with `#[derive(Settings)]`.
///
/// Each field has a doc comment and `#[setting(default = …)]`, beside it a range of `low`, `high`
/// (inclusive), `above`, `below` (exclusive). Without a default the run must give the setting.
/// A list, such as `Vec<u32>`, has a default like `[1, 2]`; the range is that of each item, and `min_items` and
/// `max_items` limit their number (1,024 at most).
///
/// ```
/// use tunebox::prelude::*;
///
/// /// What people may set: `beta`, `label-smoothing` and `layers` in a run file.
/// #[derive(Settings)]
/// struct Options {
///     /// The factor of the log-ratio.
///     #[setting(default = 0.1, above = 0.0)]
///     beta: f32,
///     /// The share of flipped labels.
///     #[setting(default = 0.0, low = 0.0, below = 0.5)]
///     label_smoothing: f32,
///     /// The layers that are captured.
///     #[setting(default = [8, 16], high = 200, max_items = 8)]
///     layers: Vec<u32>,
/// }
/// ```
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
///
/// ```
/// use tunebox::prelude::*;
///
/// /// The loss of a pair.
/// #[derive(Choice, Clone, Copy, PartialEq)]
/// enum Form {
///     Sigmoid,
///     SmoothHinge,
/// }
///
/// /// What people may set: `form = "smooth-hinge"` in a run file.
/// #[derive(Settings)]
/// struct Options {
///     /// The loss of a pair.
///     #[setting(default = "sigmoid")]
///     form: Form,
/// }
///
/// assert_eq!(Form::NAMES, ["sigmoid", "smooth-hinge"]);
/// ```
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

/// A list of whole numbers, numbers, texts or choices. Another item type is an error while compiling.
impl<T: SettingType> SettingType for Vec<T> {
    const KIND: &'static str = list_kind(T::KIND);
    const CHOICES: &'static str = T::CHOICES;
    const NAMES: &'static [&'static str] = T::NAMES;
    const LOW: &'static str = T::LOW;
    const HIGH: &'static str = T::HIGH;

    fn read(value: &Value) -> Option<Self> {
        match value {
            Value::Integers(items) => items.iter().map(|item| T::read(&Value::Integer(*item))).collect(),
            Value::Numbers(items) => items.iter().map(|item| T::read(&Value::Number(*item))).collect(),
            Value::Texts(items) => items.iter().map(|item| T::read(&Value::Text(item.clone()))).collect(),
            _ => None,
        }
    }
}

/// The kind of a list in a manifest, from the kind of its items. Panics, while compiling, for items that no list has.
const fn list_kind(item: &str) -> &'static str {
    match item.as_bytes() {
        b"integer" => "integers",
        b"number" => "numbers",
        b"text" => "texts",
        _ => panic!("the items of a list are integers, numbers, texts or choices"),
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
