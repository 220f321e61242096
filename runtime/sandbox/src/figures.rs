//! Numbers as people read them.

pub(crate) use tunebox_foundation::format::group_digits;

/// Formats a number of bytes with one decimal in the largest fitting unit of KiB, MiB and GiB; below 1 KiB as `N
/// bytes`.
pub(crate) fn format_bytes(count: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.iter().find(|(unit, _)| count >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", count as f64 / *unit as f64),
        None => format!("{count} bytes"),
    }
}

/// Formats seconds: below 60 as `12.5 s`, unrounded; else rounded to milliseconds, in hours, minutes and seconds,
/// without the parts that are 0 (`1 h 30 min`).
pub(crate) fn format_seconds(count: f64) -> String {
    if count < 60.0 {
        return format!("{count} s");
    }
    // Rounded before it is divided: else 119.9999 s would become `1 min 60 s`.
    let thousandths = (count * 1e3).round();
    let (hours, minutes) = ((thousandths / 3.6e6).floor(), (thousandths % 3.6e6 / 6e4).floor());
    let parts = [(hours, "h"), (minutes, "min"), (thousandths % 6e4 / 1e3, "s")];
    let parts = parts.into_iter().filter(|(part, _)| *part > 0.0);
    parts.map(|(part, unit)| format!("{part} {unit}")).collect::<Vec<_>>().join(" ")
}

/// Formats a number of operations with grouped digits, as in `1,000,000 operations`; from a trillion on, in trillions
/// with at most one decimal, rounded half up: `1.2 trillion operations`.
pub(crate) fn format_operations(count: u64) -> String {
    const TRILLION: u64 = 1_000_000_000_000;
    const TENTH: u64 = TRILLION / 10;
    if count < TRILLION {
        return format!("{} operations", group_digits(count));
    }
    let tenths = count / TENTH + u64::from(count % TENTH >= TENTH / 2);
    let part = if tenths.is_multiple_of(10) { String::new() } else { format!(".{}", tenths % 10) };
    format!("{}{part} trillion operations", group_digits(tenths / 10))
}

/// Returns the limit doubled until it is at least `needed`, as text; unchanged if it suffices, `u64::MAX` on overflow.
/// A limit of 0 counts as 1.
pub(crate) fn double_to_fit(limit: u64, needed: u64) -> String {
    let limit = limit.max(1);
    let factor = needed.div_ceil(limit).checked_next_power_of_two();
    factor.and_then(|factor| limit.checked_mul(factor)).unwrap_or(u64::MAX).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_times_are_told_in_hours() {
        for (count, wanted) in [
            (86_400.0, "24 h"),
            (5_401.0, "1 h 30 min 1 s"),
            (119.999_6, "2 min"),
            (62.1, "1 min 2.1 s"),
            (30.0, "30 s"),
            (0.0, "0 s"),
        ] {
            assert_eq!(format_seconds(count), wanted);
        }
    }

    #[test]
    fn long_numbers_of_operations_are_rounded() {
        for (count, wanted) in [
            (1_000_000_000_000_000_000, "1,000,000 trillion operations"),
            (1_234_567_890_123, "1.2 trillion operations"),
            (1_960_000_000_000, "2 trillion operations"),
            (1_000_000, "1,000,000 operations"),
        ] {
            assert_eq!(format_operations(count), wanted);
        }
    }
}
