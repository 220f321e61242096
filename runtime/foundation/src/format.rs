//! Numbers, sizes and durations as short text for people.

/// Rounds a number to seven significant digits; leaves NaN and infinities as they are. Applied to the numbers that a
/// run reports: a method influences nearly all of them, and could encode data in further digits.
#[must_use]
pub fn seven_digits(value: f64) -> f64 {
    format!("{value:.6e}").parse().unwrap_or(f64::NAN)
}

/// Formats a number with a comma between groups of three digits: `1,234,567`.
pub fn group_digits(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number with `decimals` digits after the point; if that text is longer than `room` bytes, in scientific
/// notation with two decimals instead, as `1.00e4`, however long that is.
pub fn number(value: f64, decimals: usize, room: usize) -> String {
    let plain = format!("{value:.decimals$}");
    if plain.len() <= room { plain } else { format!("{value:.2e}") }
}

/// Formats a count, with commas between groups of three digits, and the noun `what`, with a plural `s` unless the count
/// is 1: `1 step`, `1,234 steps`.
pub fn pluralize(number: u64, what: &str) -> String {
    format!("{} {what}{}", group_digits(number), if number == 1 { "" } else { "s" })
}

/// Formats a number of bytes in the largest fitting unit of B, KiB, MiB and GiB, with one decimal for GiB and for KiB
/// and MiB below 10: `5.8 GiB`, `9.1 MiB`, `91 KiB`, `12 B`.
pub fn bytes(count: u64) -> String {
    let mut size = count as f64;
    for unit in ["B", "KiB", "MiB"] {
        // What would be rounded to 1024 belongs to the next unit.
        if size < 1023.5 {
            return if size < 10.0 && unit != "B" { format!("{size:.1} {unit}") } else { format!("{size:.0} {unit}") };
        }
        size /= 1024.0;
    }
    format!("{size:.1} GiB")
}

/// Formats seconds in at most two units: below 10 s with one decimal (`1.2 s`), below a minute rounded to seconds (`42
/// s`), below an hour as `6 min 12 s`, else as `1 h 2 min`. From one minute on, fractions of the smaller unit are cut
/// off.
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 59.5 => format!("{s:.0} s"),
        s if s < 60.0 => duration(60.0),
        s if s < 3600.0 => format!("{} min {} s", s as u64 / 60, s as u64 % 60),
        s => format!("{} h {} min", s as u64 / 3600, s as u64 % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!([group_digits(7), group_digits(1234), group_digits(1234567)], ["7", "1,234", "1,234,567"]);
    }

    #[test]
    fn a_number_too_long_for_its_place_is_in_powers_of_ten() {
        let shown = [0.25, 9999.5, 10_000.5, -5e29, f64::MIN].map(|value| number(value, 4, 9));
        assert_eq!(shown, ["0.2500", "9999.5000", "1.00e4", "-5.00e29", "-1.80e308"]);
    }

    #[test]
    fn one_is_no_plural() {
        assert_eq!([pluralize(1, "step"), pluralize(1234, "step")], ["1 step", "1,234 steps"]);
    }

    #[test]
    fn sizes_carry_the_unit_that_fits() {
        assert_eq!([bytes(91 * 1024), bytes(2_202_010), bytes(6 << 30)], ["91 KiB", "2.1 MiB", "6.0 GiB"]);
        assert_eq!([bytes(1023), bytes((1 << 20) - 1), bytes((1 << 30) - 1)], ["1023 B", "1.0 MiB", "1.0 GiB"]);
    }

    #[test]
    fn durations_read_like_speech() {
        assert_eq!([duration(1.23), duration(372.0), duration(3725.0)], ["1.2 s", "6 min 12 s", "1 h 2 min"]);
        assert_eq!([duration(59.4), duration(59.7)], ["59 s", "1 min 0 s"]);
    }
}
