//! Which device a run computes on: from words to a device and back.

use candle_core::Device;

pub use crate::accelerator::info::{DeviceInfo, describe};
use crate::accelerator::{self, Accelerator};
use crate::error::{Error, Result};
use tunebox_foundation::explain::Explain as _;

/// Finds a device by name: `cpu`, `cuda`, `cuda:1`, `metal`, `metal:0`, or `auto` for the best there is. A device is
/// opened once a process.
///
/// # Errors
/// [`Error::Argument`] for any other word, [`Error::Unavailable`] if this build or machine does not have it.
pub fn parse(text: &str) -> Result<Device> {
    let (kind, ordinal) = match text.split_once(':') {
        None => (text, 0),
        Some((kind, number)) => (kind, number.parse().map_err(|_| unknown(text))?),
    };
    match (kind, text.contains(':')) {
        ("cpu", false) => Ok(Device::Cpu),
        ("auto", false) => Ok(best()),
        ("cuda" | "metal", _) => accelerator::open(kind, ordinal).map_err(|error| named(text, error)),
        _ => Err(unknown(text)),
    }
}

/// Why `auto` is the CPU though something of an accelerator is there: a driver without its libraries, a GPU that is too
/// old. Nothing for another word, where an accelerator was found, and where there is none.
#[must_use]
pub fn auto_fallback_reason(text: &str) -> Option<String> {
    if text != "auto" {
        return None;
    }
    let mut reasons = Vec::new();
    for kind in ["cuda", "metal"] {
        match accelerator::open(kind, 0) {
            Ok(_) => return None,
            Err(refused) => reasons.extend(reason(kind, &refused, accelerator::is_expected(kind))),
        }
    }
    reasons.into_iter().next()
}

/// Why a device that is expected was passed over.
fn reason(kind: &str, refused: &Error, is_expected: bool) -> Option<String> {
    let why = refused.why().unwrap_or_else(|| refused.to_string());
    is_expected.then(|| format!("`auto` is the CPU here, since `{kind}` cannot be used: {why}"))
}

/// Lets the count of the most that tensors have taken of an accelerator begin again at what they take now; nothing is
/// done for the CPU, whose count the system keeps.
///
/// # Errors
/// As of [`info`].
pub fn reset_peak(device: &Device) -> Result<()> {
    Accelerator::of(device)?.map_or(Ok(()), |accelerator| accelerator.reset_peak())
}

/// What an accelerator is; nothing for the CPU.
///
/// # Errors
/// [`Error::Unavailable`] if [`parse`] did not open it, [`Error::Stopped`] if it does not answer.
pub fn info(device: &Device) -> Result<Option<DeviceInfo>> {
    Accelerator::of(device)?.map(|accelerator| accelerator.info()).transpose()
}

/// The first of CUDA, Metal, CPU that is there.
fn best() -> Device {
    accelerator::open("cuda", 0).or_else(|_| accelerator::open("metal", 0)).unwrap_or(Device::Cpu)
}

/// The error with the device as the person wrote it.
fn named(text: &str, error: Error) -> Error {
    match error {
        Error::Unavailable { why, .. } => Error::Unavailable { device: text.into(), why },
        other => other,
    }
}

/// The error of a word that names no device.
fn unknown(text: &str) -> Error {
    Error::argument(format!("`{text}` is no device; `cpu`, `cuda:0`, `metal:0` and `auto` are"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_cpu_survives_the_round_trip() {
        assert_eq!(describe(&parse("cpu").unwrap()), "cpu");
    }

    #[test]
    fn words_that_name_no_device_are_refused() {
        for text in ["", "gpu", "cpu:0", "cuda:x", "cuda:-1", "auto:1"] {
            assert!(matches!(parse(text), Err(Error::Argument(_))), "{text}");
        }
    }

    #[test]
    fn a_device_that_is_not_there_says_why_and_keeps_its_name() {
        let refused = parse("cuda:4095").unwrap_err();
        let Error::Unavailable { device, why } = &refused else { panic!("{refused:?}") };
        assert_eq!(device, "cuda:4095");
        assert!(!why.is_empty());
    }

    #[test]
    fn a_device_that_is_half_there_is_passed_over_with_the_reason_and_one_that_is_not_without() {
        let refused = Error::Unavailable { device: "cuda:0".into(), why: "its compute capability is 7.5".into() };
        let why = reason("cuda", &refused, true).unwrap();
        assert!(why.contains("`auto` is the CPU") && why.contains("`cuda`") && why.contains("7.5"), "{why}");
        assert_eq!(reason("cuda", &refused, false), None);
        assert_eq!(auto_fallback_reason("cpu"), None);
        // What `auto` says agrees with what it finds.
        let found = parse("auto").unwrap();
        assert!(auto_fallback_reason("auto").is_none() || found.is_cpu());
    }

    #[test]
    fn the_cpu_is_no_accelerator() {
        assert_eq!(info(&Device::Cpu).unwrap(), None);
    }
}
