//! The names that a new method can have: those of a manifest, less those that mean something else already.

use super::TemplateError;
use crate::builtin;

/// The most letters of a name.
const LONGEST: usize = 64;

/// Words that rustc, cargo or a file system keeps for itself.
const KEPT: &str = "abstract alloc as async await aux become box break build con const continue core crate deps do dyn \
    else enum examples extern false final fn for gen if impl in incremental let loop macro match mod move mut nul \
    override priv prn proc-macro pub ref return self static std struct super test trait true try tunebox type typeof \
    union unsafe unsized use virtual where while yield";

/// Whether a method can be called this. Errors: it cannot, with the nearest name that it can have; or it is taken.
pub(super) fn check(name: &str) -> Result<(), TemplateError> {
    let good = tidied(name);
    if good.as_deref() != Some(name) {
        let name = name.escape_debug().take(LONGEST).collect();
        return Err(TemplateError::Name { name, nearest: good.filter(|good| !is_kept(good) && !is_taken(good)) });
    }
    if is_kept(name) {
        return Err(TemplateError::Kept { name: name.to_owned() });
    }
    if is_taken(name) {
        return Err(TemplateError::Taken { name: name.to_owned() });
    }
    Ok(())
}

fn is_kept(name: &str) -> bool {
    KEPT.split_whitespace().any(|word| word == name)
}

/// Such a name would always be answered with the built-in one.
fn is_taken(name: &str) -> bool {
    builtin::find(name).is_some() || builtin::find_verifier(name).is_some()
}

/// The name in lower-case words joined by single hyphens, if anything of it is left.
fn tidied(name: &str) -> Option<String> {
    let mut tidy = String::new();
    let mut last = '-';
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && (last.is_ascii_lowercase() || last.is_ascii_digit()) {
            tidy.push('-');
        }
        let plain = if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
        let fits = if tidy.is_empty() { plain.is_ascii_lowercase() } else { plain != '-' || !tidy.ends_with('-') };
        if fits {
            tidy.push(plain);
        }
        last = letter;
    }
    tidy.truncate(LONGEST);
    let tidy = tidy.trim_end_matches('-');
    (!tidy.is_empty()).then(|| tidy.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nearest(name: &str) -> Option<String> {
        match check(name) {
            Err(TemplateError::Name { nearest, .. }) => nearest,
            other => panic!("{name}: {other:?}"),
        }
    }

    #[test]
    fn names_of_lower_case_words_are_good() {
        for name in ["calm", "calm-dpo", "a1", "x-2-y"] {
            assert!(check(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn another_name_is_answered_with_the_nearest_good_one() {
        assert_eq!(nearest("CalmDpo").unwrap(), "calm-dpo");
        assert_eq!(nearest("calm_dpo").unwrap(), "calm-dpo");
        assert_eq!(nearest("calm--dpo-").unwrap(), "calm-dpo");
        assert_eq!(nearest("3-calm Ways").unwrap(), "calm-ways");
        assert_eq!(nearest("../calm").unwrap(), "calm");
        assert_eq!(nearest("ÄÖ"), None);
        assert_eq!(nearest(""), None);
        assert_eq!(nearest("DPO"), None, "the good name would be the built-in one's");
        assert_eq!(nearest(&"a".repeat(100)).unwrap().len(), LONGEST);
    }

    #[test]
    fn words_that_mean_something_else_are_refused() {
        assert!(matches!(check("loop"), Err(TemplateError::Kept { .. })));
        assert!(matches!(check("dpo"), Err(TemplateError::Taken { .. })));
        assert!(matches!(check("number"), Err(TemplateError::Taken { .. })));
    }
}
