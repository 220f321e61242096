//! Detects names that look alike, or differ by one typing error.

/// From this number of letters on, names that differ in any one letter count as alike. Shorter names that are meant to
/// be different, as `dpo`, `cpo` and `kto`, often differ in one letter only.
const LONG_NAME_LETTERS: usize = 5;

/// Whether two different names are easily taken for each other: they are equal once separators and letters that look
/// alike are merged, or they differ by one slip of a finger. False for equal names.
pub(crate) fn is_lookalike(left: &str, right: &str) -> bool {
    left != right && (merge_lookalike_letters(left) == merge_lookalike_letters(right) || is_one_typo_apart(left, right))
}

/// Returns a name as a hurried reader sees it: lower case, without hyphens, underscores and dots, with `m` for `rn`,
/// `w` for `vv`, `o` for `0`, and `l` for `1`, `i` and `|`.
fn merge_lookalike_letters(name: &str) -> String {
    let letters: String = name.to_lowercase().chars().filter(|letter| !matches!(letter, '-' | '_' | '.')).collect();
    let merged = letters.replace("rn", "m").replace("vv", "w");
    let seen = |letter| match letter {
        '0' => 'o',
        '1' | 'i' | '|' => 'l',
        other => other,
    };
    merged.chars().map(seen).collect()
}

/// Whether two names differ by one inserted, deleted or replaced letter, or by two swapped neighbors. If the shorter
/// one has fewer than five letters, only a doubled letter or a swap counts.
fn is_one_typo_apart(left: &str, right: &str) -> bool {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    let short = left.len().min(right.len()) < LONG_NAME_LETTERS;
    let same = left.iter().zip(&right).take_while(|(left, right)| left == right).count();
    let (before, left, right) = (&left[..same], &left[same..], &right[same..]);
    let tail = left.iter().rev().zip(right.iter().rev()).take_while(|(left, right)| left == right).count();
    match (&left[..left.len() - tail], &right[..right.len() - tail]) {
        ([_], [_]) => !short,
        ([one], []) | ([], [one]) => !short || before.last() == Some(one),
        ([a, b], [c, d]) => a == d && b == c,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_lookalike;

    #[test]
    fn one_slip_of_the_finger_makes_a_look_alike() {
        for other in ["calm-dpoo", "cal-dpo", "calm-dbo", "clam-dpo", "xcalm-dpo", "calm-dop"] {
            assert!(is_lookalike("calm-dpo", other) && is_lookalike(other, "calm-dpo"), "{other}");
        }
        for other in ["calm-dpo", "calmer-dpo", "calm-orpo", "loud-dpo", "lcam-dop"] {
            assert!(!is_lookalike("calm-dpo", other), "{other}");
        }
    }

    #[test]
    fn signs_that_read_alike_make_a_look_alike() {
        let pairs = [
            ("calm-dpo", "calmdpo"),
            ("calm-dpo", "calm_dpo"),
            ("calm-dpo", "ca1m-dp0"),
            ("calm-dpo", "calrn-dpo"),
            ("mellow", "rnellow"),
            ("kind-lora", "klnd-l0ra"),
            ("wide", "vvide"),
        ];
        for (left, right) in pairs {
            assert!(is_lookalike(left, right) && is_lookalike(right, left), "{left} {right}");
        }
    }

    #[test]
    fn short_names_of_methods_may_lie_one_letter_apart_but_not_read_alike() {
        for (left, right) in [("dpo", "cpo"), ("kto", "ktd"), ("orpo", "rpo"), ("grpo", "gspo"), ("lora", "dora")] {
            assert!(!is_lookalike(left, right), "{left} {right}");
        }
        for (left, right) in [("lora", "lorra"), ("dpo", "dppo"), ("dpo", "dp0"), ("dpo", "dop"), ("rlvr", "r1vr")] {
            assert!(is_lookalike(left, right), "{left} {right}");
        }
    }
}
