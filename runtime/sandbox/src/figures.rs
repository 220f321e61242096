//! Numbers as people read them.

/// A number of bytes in the unit that reads best.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.iter().find(|(unit, _)| count >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", count as f64 / *unit as f64),
        None => format!("{count} bytes"),
    }
}

/// A number with a comma between every three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A limit that would have been enough, by doubling the one that was not.
pub(crate) fn doubled(limit: u64, needed: u64) -> String {
    let mut larger = limit.max(1);
    while larger < needed {
        match larger.checked_mul(2) {
            Some(twice) => larger = twice,
            None => return u64::MAX.to_string(),
        }
    }
    larger.to_string()
}
