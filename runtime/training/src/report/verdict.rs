//! Whether a run learns: one sentence from the numbers of its main metric, and what speaks against it.

use serde::Serialize;

use super::content::Content;
use super::series::Series;
use super::text::short;

/// The least relative change that counts as one.
const LEAST_CHANGE: f64 = 0.02;

/// What a change means for the run. The names are classes of the style sheet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Tone {
    Good,
    /// The run learns, and something speaks against it.
    Mixed,
    Bad,
    #[serde(rename = "")]
    Neutral,
}

/// The answer to whether a run learns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Verdict {
    pub(super) tone: Tone,
    pub(super) sentence: String,
    /// Further sentences about validation, gradients and skipped updates.
    pub(super) notes: Vec<String>,
}

/// The main metric of a run: its name, the name in its validation, and whether more is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Goal {
    pub(super) name: &'static str,
    pub(super) validation: &'static str,
    pub(super) is_more_better: bool,
}

/// What a run is judged by: the reward where completions are judged, else the loss.
const GOALS: [Goal; 2] = [
    Goal { name: "reward", validation: "validation-reward", is_more_better: true },
    Goal { name: "loss", validation: "validation-loss", is_more_better: false },
];

/// Returns the main metric of a run; `None` if it reports neither reward nor loss.
pub(super) fn goal(content: &Content) -> Option<Goal> {
    GOALS.into_iter().find(|goal| content.series(goal.name).is_some())
}

/// Judges a run by the trend of its main metric so far, its validation, and its skipped updates. `is_running` chooses
/// the tense of the sentence.
pub(super) fn judge(content: &Content, is_running: bool) -> Verdict {
    let found = goal(content).and_then(|goal| Some((goal, content.series(goal.name)?)));
    let (tone, sentence) = match found {
        Some((goal, series)) => describe_trend(goal, series, is_running),
        None if content.step == 0 => (Tone::Neutral, "No step is finished yet.".to_owned()),
        None => (Tone::Neutral, "This method reports neither a loss nor a reward to judge it by.".to_owned()),
    };
    let mut notes = Vec::new();
    let mut tone = tone;
    if let Some((goal, series)) = found.and_then(|(goal, _)| Some((goal, content.series(goal.validation)?))) {
        let (worse, note) = describe_validation(goal, series, content.shipped);
        notes.extend(note);
        if worse {
            tone = if tone == Tone::Good { Tone::Mixed } else { Tone::Bad };
        }
    }
    if content.skipped > 0.0 {
        notes.push(format!("{} updates were skipped: their gradient was not finite.", short(content.skipped)));
    }
    Verdict { tone, sentence, notes }
}

/// Describes how a run's main metric changed from its beginning to its end: good if it moved in the wanted direction by
/// 2 % or more, bad if in the other, else neutral, as with one value.
fn describe_trend(goal: Goal, series: &Series, is_running: bool) -> (Tone, String) {
    let name = capitalize(goal.name);
    let Some((early, late)) = series.trend() else {
        return (Tone::Neutral, format!("{name} {} after the first step: too early to tell.", short(series.last.1)));
    };
    let change = (late - early) / early.abs().max(1e-9);
    // The first number as it is, where it agrees with the direction: it is the one that other parts of the page show.
    let first = series.first.1;
    let begin = if (late > early) == (late > first) { first } else { early };
    let (early, late) = (short(begin), short(late));
    if change.abs() < LEAST_CHANGE {
        let verb = if is_running { "has hardly changed so far" } else { "hardly changed" };
        return (Tone::Neutral, format!("{name} {verb}: {early} at first, {late} at last."));
    }
    let tone = if (change > 0.0) == goal.is_more_better { Tone::Good } else { Tone::Bad };
    let verb = match (change > 0.0, is_running) {
        (true, true) => "is rising",
        (false, true) => "is falling",
        (true, false) => "rose",
        (false, false) => "fell",
    };
    (tone, format!("{name} {verb}, from {early} to {late}."))
}

/// Returns whether the validation became clearly worse since its best value, and a sentence about both (`None` for one
/// value). A best value whose weights were shipped does not count as worse; `shipped` is the step of those.
fn describe_validation(goal: Goal, series: &Series, shipped: Option<u64>) -> (bool, Option<String>) {
    if series.count() < 2 {
        return (false, None);
    }
    let best = if goal.is_more_better { series.highest } else { series.lowest };
    let worse = if goal.is_more_better { best.1 - series.last.1 } else { series.last.1 - best.1 };
    let (first, last) = (short(series.first.1), short(series.last.1));
    let name = if goal.is_more_better { "reward on validation data" } else { "loss on validation data" };
    if worse > LEAST_CHANGE * best.1.abs().max(1e-9) && best.0 < series.last.0 {
        let (step, value) = (short(best.0), short(best.1));
        if shipped.is_some_and(|shipped| shipped as f64 == best.0) {
            let text = format!(
                "The {name} was best at step {step} with {value}: its weights are shipped. It was {last} at the end."
            );
            return (false, Some(text));
        }
        let text = format!(
            "The {name} was best at step {step} with {value}, and is {last} now: fewer steps or more data may help."
        );
        return (true, Some(text));
    }
    (false, Some(format!("The {name} went from {first} to {last}.")))
}

/// Returns the name with a capital letter at its beginning.
fn capitalize(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{lock, metrics};

    /// The verdict on a finished run with these rows of metrics.
    fn verdict(rows: &[String]) -> Verdict {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(lock::FILE), "steps = 20\n").unwrap();
        std::fs::write(folder.path().join(metrics::FILE), rows.join("\n") + "\n").unwrap();
        judge(&Content::read(folder.path()).unwrap(), false)
    }

    fn rows(name: &str, values: &[f64]) -> Vec<String> {
        let row = |(at, value): (usize, &f64)| format!("{{\"step\":{at},\"{name}\":{value}}}");
        values.iter().enumerate().map(row).collect()
    }

    #[test]
    fn a_loss_that_falls_is_good_and_one_that_rises_is_bad() {
        let falls = verdict(&rows("loss", &[8.0, 2.0, 1.0, 0.5]));
        assert_eq!((falls.tone, falls.sentence.as_str()), (Tone::Good, "Loss fell, from 8 to 0.5."));
        assert_eq!(verdict(&rows("loss", &[0.5, 8.0])).tone, Tone::Bad);
        assert_eq!(verdict(&rows("loss", &[1.0, 1.01])).sentence, "Loss hardly changed: 1 at first, 1.01 at last.");
        assert!(verdict(&rows("loss", &[1.0])).sentence.ends_with("too early to tell."));
    }

    #[test]
    fn a_run_with_rewards_is_judged_by_them() {
        let both = [rows("loss", &[0.1, 0.9]), rows("reward", &[0.2, 0.7])].concat();
        let verdict = verdict(&both);
        assert_eq!((verdict.tone, verdict.sentence.as_str()), (Tone::Good, "Reward rose, from 0.2 to 0.7."));
    }

    #[test]
    fn validation_that_becomes_worse_speaks_against_the_loss() {
        let all = [rows("loss", &[8.0, 2.0, 0.1]), rows("validation-loss", &[2.0, 1.0, 1.5])].concat();
        let verdict = verdict(&all);
        assert_eq!(verdict.tone, Tone::Mixed);
        assert!(verdict.notes[0].starts_with("The loss on validation data was best at step 1 with 1, and is 1.5 now"));
    }

    #[test]
    fn a_best_validation_that_is_shipped_speaks_for_the_run() {
        let all = [rows("loss", &[8.0, 2.0, 0.1]), rows("validation-loss", &[2.0, 1.0, 1.5])].concat();
        let verdict =
            verdict(&[&all[..], &["{\"step\":2,\"shipped\":1,\"best-validation-loss\":1.0}".to_owned()]].concat());
        assert_eq!(verdict.tone, Tone::Good);
        assert!(verdict.notes[0].ends_with("with 1: its weights are shipped. It was 1.5 at the end."), "{verdict:?}");
    }
}
