//! Suggestions for misspelt names.

/// The candidate with the smallest edit distance to `name`, if that is at most 1 + a quarter of its length; the first of
/// equals.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let close = |candidate: &&str| distance(name, candidate) <= 1 + name.chars().count() / 4;
    candidates.into_iter().filter(close).min_by_key(|candidate| distance(name, candidate))
}

/// The optimal string alignment distance in characters: insertions, deletions, substitutions and swaps of neighbours
/// each count 1.
fn distance(left: &str, right: &str) -> usize {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    let mut above: Vec<usize> = (0..=right.len()).collect();
    let mut before = above.clone();
    for (index, character) in left.iter().enumerate() {
        let mut row = vec![index + 1];
        for (column, other) in right.iter().enumerate() {
            let exchanged = above[column] + usize::from(character != other);
            let mut least = exchanged.min(above[column + 1] + 1).min(row[column] + 1);
            if index > 0 && column > 0 && left[index - 1] == *other && right[column - 1] == *character {
                least = least.min(before[column - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[right.len()]
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
