//! How many of the expected steps the completion's lines reach, in order.
//!
//! The answer lists what the steps come to: a JSON list of texts, or one a line. A line of the completion
//! reaches a step when it ends in its text, or when its last number is the step's.

use tunebox::prelude::*;

/// How steps become a number.
#[derive(Settings)]
pub struct Steps {
    /// `share` gives the share of the steps that are reached; `until-wrong` that of the steps before the first
    /// that is not; `all` gives 1 where every step is reached.
    #[setting(default = "share")]
    score: Score,

    /// Other lines may stand between the steps.
    #[setting(default = true)]
    between: bool,
}

/// How steps become a number.
#[derive(Choice, Clone, Copy, PartialEq)]
enum Score {
    Share,
    UntilWrong,
    All,
}

impl Verifier for Steps {
    type Settings = Self;

    fn init(settings: Self) -> Result<Self> {
        Ok(settings)
    }

    fn verify(&self, _: &str, completion: &str, answer: &str) -> Option<f32> {
        let steps = parse_steps(answer);
        if steps.is_empty() {
            return None;
        }
        let lines: Vec<&str> = completion.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let reached = self.find_reached(&steps, &lines);
        let count = match self.score {
            Score::Share => reached.iter().filter(|reached| **reached).count(),
            Score::UntilWrong => reached.iter().take_while(|reached| **reached).count(),
            Score::All if reached.iter().all(|reached| *reached) => steps.len(),
            Score::All => 0,
        };
        Some(count as f32 / steps.len() as f32)
    }
}

impl Steps {
    /// For each step, whether a line reaches it: with `between`, any line after that of the last step that was reached;
    /// without it, the line with the step's number.
    fn find_reached(&self, steps: &[String], lines: &[&str]) -> Vec<bool> {
        let mut next = 0;
        let place = |(number, step): (usize, &String)| {
            if !self.between {
                return lines.get(number).is_some_and(|line| reaches(line, step));
            }
            let found = lines[next.min(lines.len())..].iter().position(|line| reaches(line, step));
            next += found.map_or(0, |found| found + 1);
            found.is_some()
        };
        steps.iter().enumerate().map(place).collect()
    }
}

/// Parses the expected steps of a record's answer: a list in square brackets, else its lines. Leaves empty ones out.
fn parse_steps(answer: &str) -> Vec<String> {
    let answer = answer.trim();
    let listed = answer.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let pieces: Vec<&str> = match listed {
        Some(inside) => inside.split(',').collect(),
        None => answer.lines().collect(),
    };
    let plain = |piece: &str| piece.trim().trim_matches('"').trim().to_owned();
    pieces.into_iter().map(plain).filter(|piece| !piece.is_empty()).collect()
}

/// Whether a line reaches a step: its last number is the step's, to a relative difference of 1e-6, or, if the step is
/// no number, the line ends with its text. Full stops at the end do not count.
fn reaches(line: &str, step: &str) -> bool {
    let line = line.trim_end_matches(['.', ' ']);
    let number = |text: &str| {
        let tail = text.rsplit(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-')).find(|part| !part.is_empty());
        tail.and_then(|part| part.trim_end_matches('.').parse::<f64>().ok())
    };
    match step.parse::<f64>() {
        Ok(wanted) => number(line).is_some_and(|found| (found - wanted).abs() <= 1e-6 * wanted.abs().max(1.0)),
        Err(_) => line.ends_with(step.trim_end_matches('.')),
    }
}

verifier! { Steps }
