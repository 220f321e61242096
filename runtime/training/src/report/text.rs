//! Numbers and texts of the report's pages.

use minijinja::HtmlEscape;
use tunebox_foundation::format::group_digits;
use tunebox_foundation::printable::printable_except;

/// Formats a number with three or four significant digits: `0.166`, `12.35`, `1,204`, `2.50e-5`. A dash if it is not
/// finite.
pub(super) fn short(value: f64) -> String {
    let trimmed = |text: String| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    };
    match value.abs() {
        _ if !value.is_finite() => "–".into(),
        0.0 => "0".into(),
        size if !(1e-3..1e7).contains(&size) => format!("{value:.2e}"),
        size if size >= 1000.0 => {
            format!("{}{}", if value < 0.0 { "-" } else { "" }, group_digits(size.round() as u64))
        }
        size if size >= 100.0 => trimmed(format!("{value:.1}")),
        size if size >= 10.0 => trimmed(format!("{value:.2}")),
        size if size >= 1.0 => trimmed(format!("{value:.3}")),
        _ => trimmed(format!("{value:.4}")),
    }
}

/// Replaces characters that are unsafe to show by their code points, except line ends and tabs, removes white space at
/// the end, and cuts the text at `limit` bytes. Does not escape markup, which the template does.
pub(super) fn printable_lines(text: &str, limit: usize) -> String {
    printable_except(text.trim_end(), limit, &['\n', '\t'])
}

/// Escapes text for the inside of an element or of an attribute in double quotes, with unsafe characters replaced. Cuts
/// it at 200 bytes.
pub(super) fn escape_markup(text: &str) -> String {
    HtmlEscape(&printable_except(text, 200, &[])).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_few_digits() {
        let given = [0.16554, 12.345_678, 1204.4, 2.5e-5, 0.5, 3.0, -0.01, -12_345.6, f64::NAN, 0.0];
        let wanted = ["0.1655", "12.35", "1,204", "2.50e-5", "0.5", "3", "-0.01", "-12,346", "–", "0"];
        assert_eq!(given.map(short), wanted);
    }

    #[test]
    fn text_becomes_no_markup() {
        assert_eq!(escape_markup("<b a=\"'&\u{202e}"), "&lt;b a=&quot;&#x27;&amp;\\u{202e}");
        assert_eq!(printable_lines("a\u{1b}\n\tb\n", 100), "a\\u{1b}\n\tb");
    }
}
