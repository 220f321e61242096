//! The name that somebody probably meant.

/// The candidate that differs least from a name, unless all of them are far from it.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let close = |candidate: &&str| distance(name, candidate) <= 1 + name.chars().count() / 4;
    candidates.into_iter().filter(close).min_by_key(|candidate| distance(name, candidate))
}

/// How many characters have to be put in, taken out or exchanged (Levenshtein).
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, character) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, other) in right.iter().enumerate() {
            let exchanged = diagonal + usize::from(character != *other);
            diagonal = row[column + 1];
            row[column + 1] = exchanged.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_slip_of_the_finger_finds_its_name() {
        assert_eq!(nearest("bata", ["gamma", "beta", "label-smoothing"]), Some("beta"));
    }

    #[test]
    fn a_name_like_none_finds_none() {
        assert_eq!(nearest("temperature", ["beta", "loss"]), None);
    }
}
