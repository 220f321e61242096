//! Suggestions for misspelled names.

use strsim::osa_distance;

/// Finds the candidate most similar to `name`: the one with the smallest optimal string alignment distance, the first
/// of equals. `None` if no distance is at most 1 + a quarter of the name's length in characters.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let close = |candidate: &&str| osa_distance(name, candidate) <= 1 + name.chars().count() / 4;
    candidates.into_iter().filter(close).min_by_key(|candidate| osa_distance(name, candidate))
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_slip_of_the_finger_finds_its_name() {
        assert_eq!(nearest("bata", ["gamma", "beta", "label-smoothing"]), Some("beta"));
        assert_eq!(nearest("dop", ["cpo", "dpo", "orpo"]), Some("dpo"), "two letters swapped are one slip");
    }

    #[test]
    fn a_name_like_none_finds_none() {
        assert_eq!(nearest("temperature", ["beta", "loss"]), None);
    }
}
