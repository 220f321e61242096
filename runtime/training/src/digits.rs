//! Rounds the numbers that leave a run. A method has a part in nearly all of them, and could hide data in digits that
//! are not read.

/// Rounds a number to seven significant digits. NaN and infinities stay.
#[must_use]
pub(crate) fn seven_digits(value: f64) -> f64 {
    format!("{value:.6e}").parse().unwrap_or(f64::NAN)
}
