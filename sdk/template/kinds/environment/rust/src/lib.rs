//! What this environment does, in a sentence.
//!
//! A wrong answer gets one more turn. A right one ends the episode: with reward 1 in the first turn, `late` in the
//! second. Put replies of your own into `respond`.

use tunebox::prelude::*;

/// What people may set in `[environment]` of a run file. The comments are their help.
#[derive(Settings)]
pub struct SecondTry {
    /// The reward of an answer that is right in the second turn.
    #[setting(default = 0.5, low = 0.0, high = 1.0)]
    late: f32,
}

impl Environment for SecondTry {
    type Settings = Self;

    fn init(settings: Self) -> Result<Self> {
        Ok(settings)
    }

    fn respond(&self, _prompt: &str, answer: &str, turns: &[Turn]) -> Reply {
        if answer.is_empty() {
            return Reply::End(None); // no verdict
        }
        // Completions and messages alternate; the last one is a completion.
        let is_first = turns.len() == 1;
        if turns.last().is_some_and(|turn| turn.text().trim() == answer.trim()) {
            Reply::End(Some(if is_first { 1.0 } else { self.late }))
        } else if is_first {
            Reply::Message("Wrong. Try again.".to_owned())
        } else {
            Reply::End(Some(0.0))
        }
    }
}

environment! { SecondTry }

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(turns: &[Turn], answer: &str) -> Reply {
        SecondTry { late: 0.5 }.respond("What is 9 + 12?", answer, turns)
    }

    fn completion(text: &str) -> Turn {
        Turn::Completion(text.to_owned())
    }

    #[test]
    fn a_right_answer_ends_the_episode() {
        assert_eq!(reply(&[completion("21")], "21"), Reply::End(Some(1.0)));
    }

    #[test]
    fn a_wrong_answer_gets_one_more_turn() {
        let message = Turn::Message("Wrong. Try again.".to_owned());
        assert_eq!(reply(&[completion("20")], "21"), Reply::Message(message.text().to_owned()));
        assert_eq!(reply(&[completion("20"), message.clone(), completion("21")], "21"), Reply::End(Some(0.5)));
        assert_eq!(reply(&[completion("20"), message, completion("22")], "21"), Reply::End(Some(0.0)));
    }

    #[test]
    fn a_record_without_an_answer_gets_no_verdict() {
        assert_eq!(reply(&[completion("21")], ""), Reply::End(None));
    }
}
