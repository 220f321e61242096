//! What this verifier does, in a sentence.
//!
//! 1 where the completion is the answer, `partial` where the answer is one of its words, else 0. Put a rule of your own
//! into `verify`.

use tunebox::prelude::*;

/// What people may set in `[[verifier]]` of a run file. The comments are their help.
#[derive(Settings)]
pub struct Mentions {
    /// The reward of a completion that has the answer among other words.
    #[setting(default = 0.5, low = 0.0, high = 1.0)]
    partial: f32,
}

impl Verifier for Mentions {
    type Settings = Self;

    fn init(settings: Self) -> Result<Self> {
        Ok(settings)
    }

    fn verify(&self, _prompt: &str, completion: &str, answer: &str) -> Option<f32> {
        let answer = answer.trim();
        if answer.is_empty() {
            return None; // no verdict: the other verifiers of the run decide
        }
        let mut words = completion.split_whitespace();
        Some(if completion.trim() == answer {
            1.0
        } else if words.any(|word| word.trim_matches(|c: char| c.is_ascii_punctuation()) == answer) {
            self.partial
        } else {
            0.0
        })
    }
}

verifier! { Mentions }

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(completion: &str, answer: &str) -> Option<f32> {
        Mentions { partial: 0.5 }.verify("What is 9 + 12?", completion, answer)
    }

    #[test]
    fn the_answer_alone_gets_the_whole_reward() {
        assert_eq!(verdict(" 21\n", "21"), Some(1.0));
    }

    #[test]
    fn the_answer_among_other_words_gets_a_part() {
        assert_eq!(verdict("It is 21.", "21"), Some(0.5));
        assert_eq!(verdict("It is 210.", "21"), Some(0.0));
    }

    #[test]
    fn a_record_without_an_answer_gets_no_verdict() {
        assert_eq!(verdict("21", ""), None);
    }
}
