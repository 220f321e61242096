//! Which device a run computes on: from words to a device and back.

use candle_core::{Device, DeviceLocation};

use crate::error::{Error, Result};

/// Finds a device by name: `cpu`, `cuda`, `cuda:1`, `metal`, `metal:0`, or `auto` for the best there is.
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
        ("cuda", _) => Device::new_cuda(ordinal).map_err(|error| unavailable(text, &error)),
        ("metal", _) => Device::new_metal(ordinal).map_err(|error| unavailable(text, &error)),
        _ => Err(unknown(text)),
    }
}

/// The name of a device, as [`parse`] takes it.
#[must_use]
pub fn describe(device: &Device) -> String {
    match device.location() {
        DeviceLocation::Cpu => "cpu".into(),
        DeviceLocation::Cuda { gpu_id } => format!("cuda:{gpu_id}"),
        DeviceLocation::Metal { gpu_id } => format!("metal:{gpu_id}"),
    }
}

/// The first of CUDA, Metal, CPU that is there.
fn best() -> Device {
    Device::new_cuda(0).or_else(|_| Device::new_metal(0)).unwrap_or(Device::Cpu)
}

fn unknown(text: &str) -> Error {
    Error::argument(format!("`{text}` is no device; `cpu`, `cuda:0`, `metal:0` and `auto` are"))
}

fn unavailable(text: &str, cause: &candle_core::Error) -> Error {
    Error::Unavailable { device: text.into(), why: cause.to_string().lines().next().unwrap_or_default().into() }
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
    fn a_device_that_is_not_there_says_so() {
        assert!(matches!(parse("cuda:4095"), Err(Error::Unavailable { .. })));
    }
}
