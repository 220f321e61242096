//! Merge rules for a vocabulary that was stored without them.
//!
//! SentencePiece joins, again and again, the two neighbors whose union scores best. A list of
//! pairs in that order makes a byte-pair model do the same. The order among equals follows
//! transformers' converter: longer left part first, then longer right part, then the lower id of the joined token, of
//! the left part and of the right part.

use std::collections::HashMap;

/// One pair of pieces, and what decides its place in the list.
struct Pair<'a> {
    /// The score of the joined token.
    score: f64,
    left: &'a str,
    right: &'a str,
    /// The numbers of characters of `left` and of `right`.
    lengths: (usize, usize),
}

/// Derives the merges that a vocabulary implies: every pair (left, right) of tokens whose joined spelling is a token
/// too. Sorts by descending score of the joined token; ties by longer left part, then longer right part (in
/// characters), then lower id of the joined token, of the left part and of the right part.
///
/// `tokens` are the spellings by id and `scores` their scores by id, 0 if missing. A spelling that occurs twice gives
/// its pairs once: with the score of its last id, but in ties in the place of its first.
pub(super) fn from_scores(tokens: &[String], scores: &[f64]) -> Vec<(String, String)> {
    let ids: HashMap<&str, usize> = tokens.iter().enumerate().map(|(id, token)| (token.as_str(), id)).collect();
    let mut seen = vec![false; tokens.len()];
    let mut pairs = Vec::new();

    for token in tokens {
        let id = ids[token.as_str()];
        if std::mem::replace(&mut seen[id], true) {
            continue;
        }
        let score = scores.get(id).copied().unwrap_or(0.0);
        pairs.extend(token_pairs(token, score, &ids));
    }

    pairs.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| b.lengths.cmp(&a.lengths)));
    pairs.into_iter().map(|pair| (pair.left.to_owned(), pair.right.to_owned())).collect()
}

/// Finds every way to split a token into two tokens of the vocabulary, ordered by the id of the left part, then of the
/// right part. `ids` are the ids by spelling; `score` is the score of the token, which each pair gets.
fn token_pairs<'a>(token: &'a str, score: f64, ids: &HashMap<&str, usize>) -> Vec<Pair<'a>> {
    let total = token.chars().count();
    let mut found: Vec<((usize, usize), Pair<'a>)> = token
        .char_indices()
        .enumerate()
        .skip(1)
        .filter_map(|(count, (at, _))| {
            let (left, right) = token.split_at(at);
            let order = (*ids.get(left)?, *ids.get(right)?);
            Some((order, Pair { score, left, right, lengths: (count, total - count) }))
        })
        .collect();

    found.sort_by_key(|(order, _)| *order);
    found.into_iter().map(|(_, pair)| pair).collect()
}
