//! Opens compute devices by name, such as `cuda:0`, and returns the name, memory and software of opened ones.

use candle_core::{Device, DeviceLocation};

pub use crate::accelerator::DeviceInfo;
use crate::accelerator::{self, Accelerator};
use crate::error::{Error, Result};
use tunebox_foundation::explain::Explain as _;

/// Opens a device by name: `cpu`, `cuda`, `cuda:1`, `metal`, `metal:0`, or `auto` for the first that works of CUDA
/// device 0, Metal device 0 and the CPU. Without a number, device 0 is opened; `cpu` and `auto` take none. Each device
/// is opened once per process: later calls return the same one.
///
/// # Errors
/// [`Error::Argument`] for any other text, [`Error::Unavailable`] with the reason if this build or machine does not
/// have it or it cannot be used. `auto` never fails.
pub fn parse(text: &str) -> Result<Device> {
    let (kind, ordinal) = match text.split_once(':') {
        None => (text, 0),
        Some((kind, number)) => (kind, number.parse().map_err(|_| unknown_device(text))?),
    };
    match (kind, text.contains(':')) {
        ("cpu", false) => Ok(Device::Cpu),
        ("auto", false) => Ok(open_best()),
        ("cuda" | "metal", _) => accelerator::open(kind, ordinal).map_err(|error| with_device_name(text, error)),
        _ => Err(unknown_device(text)),
    }
}

/// Explains why the device name `auto` stands for the CPU although an accelerator seems to be there, such as a driver
/// without its libraries or a GPU that is too old. Tries to open CUDA device 0, then Metal device 0, and returns the
/// message about the first that failed and was to be expected on this machine. `None` if `text` is not `auto`, one of
/// the two opens, or neither was to be expected.
#[must_use]
pub fn auto_fallback_reason(text: &str) -> Option<String> {
    if text != "auto" {
        return None;
    }
    let mut reasons = Vec::new();
    for kind in ["cuda", "metal"] {
        match accelerator::open(kind, 0) {
            Ok(_) => return None,
            Err(refused) => reasons.extend(fallback_message(kind, &refused, accelerator::is_expected(kind))),
        }
    }
    reasons.into_iter().next()
}

/// Returns the message that `auto` chose the CPU because the device of `kind` (`cuda` or `metal`) failed to open with
/// the error `error`. `None` unless `is_expected`, which says whether such a device was to be expected on this
/// machine.
fn fallback_message(kind: &str, error: &Error, is_expected: bool) -> Option<String> {
    let why = error.why().unwrap_or_else(|| error.to_string());
    is_expected.then(|| format!("`auto` is the CPU here, since `{kind}` cannot be used: {why}"))
}

/// Resets the peak of an accelerator's allocated memory to what is allocated now. Does nothing for the CPU, whose peak
/// the operating system counts.
///
/// # Errors
/// [`Error::Unavailable`] if [`parse`] did not open the device, [`Error::Stopped`] if it does not answer.
pub fn reset_peak(device: &Device) -> Result<()> {
    Accelerator::of(device)?.map_or(Ok(()), |accelerator| accelerator.driver.reset_peak())
}

/// Returns name, software and memory of an accelerator. `None` for the CPU.
///
/// # Errors
/// [`Error::Unavailable`] if [`parse`] did not open the device, [`Error::Stopped`] if it does not answer.
pub fn info(device: &Device) -> Result<Option<DeviceInfo>> {
    Accelerator::of(device)?.map(|accelerator| accelerator.driver.info()).transpose()
}

/// Returns the energy in joules that an accelerator took since its driver was loaded, all programs together. `None` for
/// the CPU, for a device that [`parse`] did not open, and if nothing counts it.
#[must_use]
pub fn joules(device: &Device) -> Option<f64> {
    Accelerator::of(device).ok()??.driver.joules()
}

/// Opens `cuda:0` or, if that fails, `metal:0`; returns the CPU if both fail.
fn open_best() -> Device {
    accelerator::open("cuda", 0).or_else(|_| accelerator::open("metal", 0)).unwrap_or(Device::Cpu)
}

/// Replaces the device name in [`Error::Unavailable`] by `text`, which the user wrote. Returns other errors as they
/// are.
fn with_device_name(text: &str, error: Error) -> Error {
    match error {
        Error::Unavailable { why, .. } => Error::Unavailable { device: text.into(), why },
        other => other,
    }
}

/// Creates [`Error::Argument`] for a text that names no device. The message lists names that do.
fn unknown_device(text: &str) -> Error {
    Error::argument(format!("`{text}` is no device; `cpu`, `cuda:0`, `metal:0` and `auto` are"))
}

/// The name of a device in the form that [`parse`] accepts: `cpu`, `cuda:1`, or `metal:0` for every Metal device.
#[must_use]
pub fn describe(device: &Device) -> String {
    match device.location() {
        DeviceLocation::Cpu => "cpu".into(),
        DeviceLocation::Cuda { gpu_id } => format!("cuda:{gpu_id}"),
        // candle returns a registry id instead of the number; supported Macs have one GPU, number 0.
        DeviceLocation::Metal { .. } => "metal:0".into(),
    }
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
        let why = fallback_message("cuda", &refused, true).unwrap();
        assert!(why.contains("`auto` is the CPU") && why.contains("`cuda`") && why.contains("7.5"), "{why}");
        assert_eq!(fallback_message("cuda", &refused, false), None);
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
