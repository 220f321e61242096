//! The page of one run, from what its folder says.

use serde_json::{Value, json};
use tunebox_foundation::format::{bytes, duration, group_digits, pluralize};

use super::content::{Content, Dated};
use super::figures::{figure, plots_of};
use super::html;
use super::text::{printable_lines, short};
use super::verdict::{Goal, goal, judge};
use crate::cost::Cost;
use crate::observer::Sample;

/// The most bytes of a prompt, an answer or a completion on the page.
const MAX_TEXT: usize = 700;

/// The most groups of completions on the page: the first ones that were kept, and the last.
const MAX_GROUPS: usize = 6;

/// The most bytes of a value in a table.
const MAX_CELL: usize = 200;

/// Seconds between two loads of the page of a run that goes on.
const REFRESH_SECONDS: u32 = 3;

/// How far a run is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    Running,
    Finished,
    Stopped,
    /// The run ended with an error, which the text tells.
    Failed(String),
}

impl State {
    /// The state in a word, for the title and the style of the page.
    fn name(&self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Stopped => "stopped",
            Self::Failed(_) => "failed",
        }
    }
}

/// Renders the page of a run in this state as HTML. A browser loads the page of a running run again every few seconds.
pub(super) fn render(content: &Content, state: &State) -> String {
    let is_running = *state == State::Running;
    let name = printable_lines(&content.name(), MAX_CELL);
    let total = content.planned_steps();
    let progress = match total {
        Some(total) => format!("step {} of {}", group_digits(content.step), group_digits(total)),
        None => format!("step {}", group_digits(content.step)),
    };
    let (main_plot, plots) = plots_of(content, goal(content));
    let closing: Vec<_> =
        content.closing.iter().map(|(name, value)| (printable_lines(name, 80), short(*value))).collect();
    let page = json!({
        "title": format!("{name}: {}, {progress}", state.name()),
        "refresh": is_running.then_some(REFRESH_SECONDS),
        "name": name,
        "state": state.name(),
        "progress": progress,
        "subtitle": subtitle(content),
        // The finished steps in percent.
        "share": total.filter(|_| is_running).map(|total| 100 * content.step / total.max(1)),
        "failure": if let State::Failed(why) = state { Some(printable_lines(why, 4000)) } else { None },
        "verdict": judge(content, is_running),
        "tiles": tiles(content, is_running),
        "main_plot": main_plot.as_ref().map(figure),
        "plots": plots.iter().map(figure).collect::<Vec<_>>(),
        "warnings": items(&content.warnings),
        "answers": answers(content, state),
        "completions": groups(&content.completions),
        "closing": closing,
        "plan": plan_rows(content),
        "facts": facts(content),
        "run_file": printable_lines(&content.run_file, 64 << 10),
        "log": items(&content.log),
    });
    html::render("report.html", &page)
}

/// Returns the line below the title: method, version and model, and the number of records with the name of their data.
fn subtitle(content: &Content) -> String {
    let text = |key: &str| printable_lines(&content.text(key), MAX_CELL);
    let records = content.text("data.records").parse().unwrap_or(0);
    format!(
        "{} {} on {}, {} from {}",
        text("method.name"),
        text("method.version"),
        text("model.name"),
        pluralize(records, "record"),
        text("data.name"),
    )
}

/// The figures on the first screen, each with a label and a note: main metric, validation, accuracy, speed, time and
/// memory, as far as they are known.
fn tiles(content: &Content, is_running: bool) -> Vec<Value> {
    let tile = |label: &str, value: String, note: String| {
        let label = printable_lines(label, 80);
        json!({ "label": label, "value": value, "note": note })
    };
    let mut tiles = Vec::new();
    if let Some(Goal { name, validation, is_more_better }) = goal(content) {
        tiles.extend(content.series(name).map(|series| {
            let note = format!("{} at step {}", short(series.first.1), short(series.first.0));
            tile(name, short(series.last.1), note)
        }));
        tiles.extend(content.series(validation).map(|series| {
            let best = if is_more_better { series.highest } else { series.lowest };
            let note = format!("best {} at step {}", short(best.1), short(best.0));
            tile(&validation.replace('-', " "), short(series.last.1), note)
        }));
    }
    let share = ["validation-pass-at-1", "pass-at-one", "accuracy", "rewards-accuracies", "mean-token-accuracy"];
    tiles.extend(share.iter().find_map(|name| Some((name, content.series(name)?))).map(|(name, series)| {
        let note = format!("{} at step {}", short(series.first.1), short(series.first.0));
        tile(&name.replace('-', " "), short(series.last.1), note)
    }));
    if content.seconds > 0.0 {
        let speed = content.tokens / content.seconds;
        tiles.push(tile("tokens per second", short(speed.round()), format!("{} tokens", short(content.tokens))));
        tiles.push(tile("time in steps", duration(content.seconds), time_note(content, is_running)));
    }
    if let Some(peak) = &content.peak {
        let estimate = content.figures.as_ref().map(|figures| format!("estimated {}", bytes(figures.memory)));
        tiles.push(tile("peak memory", bytes(peak.last.1 as u64), estimate.unwrap_or_default()));
    }
    tiles
}

/// The time left of a run that goes on and has an end, else the mean time of a step.
fn time_note(content: &Content, is_running: bool) -> String {
    let each = content.seconds / content.step.max(1) as f64;
    match content.planned_steps() {
        Some(total) if is_running => {
            format!("about {} left", duration(each * total.saturating_sub(content.step) as f64))
        }
        _ => format!("{} s a step", short(each)),
    }
}

/// Converts lines for the page, each with its step and cut to [`MAX_TEXT`] bytes.
fn items(lines: &Dated<String>) -> Vec<Value> {
    lines.iter().map(|(step, text)| json!({ "step": step, "text": printable_lines(text, MAX_TEXT) })).collect()
}

/// Pairs the first answers with the last, for at most four prompts, with a note on their steps. An answer without a
/// later one gets a note in its place. Returns an empty object without answers, and if a finished run has no later
/// ones: it changed none.
fn answers(content: &Content, state: &State) -> Value {
    let (first, last) = (content.answers.first(), content.answers.get(1));
    let Some((first, before)) = first.filter(|_| last.is_some() || *state != State::Finished) else {
        return json!({});
    };
    let missing = if *state == State::Running { "at the end of the run" } else { "the run did not finish" };
    let list = before.iter().enumerate().map(|(at, answer)| {
        let after =
            last.and_then(|(_, answers)| answers.get(at)).map(|answer| printable_lines(&answer.answer, MAX_TEXT));
        json!({
            "prompt": printable_lines(&answer.prompt, MAX_TEXT),
            "before": printable_lines(&answer.answer, MAX_TEXT),
            "when": last.map_or_else(|| "after".into(), |(step, _)| format!("after step {}", group_digits(*step))),
            "after": after.unwrap_or_else(|| missing.into()),
            "wanted": answer.wanted.as_ref().map(|text| printable_lines(text, MAX_TEXT)),
        })
    });
    let note = format!(
        "The likeliest answers, cut after {} tokens, before step {} and at the end.",
        crate::answers::MAX_TOKENS,
        group_digits(first + 1)
    );
    json!({ "note": note, "list": list.take(4).collect::<Vec<_>>() })
}

/// The last [`MAX_GROUPS`] groups of completions, the newest first, with at most eight samples each. Shows a prompt
/// once for consecutive samples of it. Marks the samples with the highest and the lowest reward, unless all rewards are
/// equal.
fn groups(completions: &Dated<Vec<Sample>>) -> Vec<Value> {
    let group = |(step, samples): &(u64, Vec<Sample>)| {
        let known = samples.iter().filter_map(|sample| sample.reward);
        let (low, high) =
            known.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), reward| (low.min(reward), high.max(reward)));
        let mut before = None;
        let part = |sample: &Sample| {
            let is_new = before.replace(sample.prompt.clone()).as_ref() != Some(&sample.prompt);
            let verdicts =
                sample.verdicts.iter().map(|(name, value)| format!("{} {}", printable_lines(name, 80), short(*value)));
            let tone = match sample.reward {
                Some(reward) if low < high && reward >= high => "good",
                Some(reward) if low < high && reward <= low => "bad",
                _ => "",
            };
            json!({
                "prompt": if is_new { printable_lines(&sample.prompt, MAX_TEXT) } else { String::new() },
                "completion": printable_lines(&sample.completion, MAX_TEXT),
                "reward": sample.reward.map_or_else(|| "–".into(), short),
                "tone": tone,
                "verdicts": verdicts.collect::<Vec<_>>().join(", "),
            })
        };
        json!({ "step": step, "samples": samples.iter().take(8).map(part).collect::<Vec<_>>() })
    };
    completions.iter().rev().take(MAX_GROUPS).map(group).collect()
}

/// Returns the rows of the table of plan and outcome. Each row has a name, the planned value and the value so far, or a
/// dash for an unknown value. The rows are steps, time and cost, and, once the figures of the run are known, epochs,
/// memory, learning rate and tokens.
fn plan_rows(content: &Content) -> Vec<(&'static str, String, String)> {
    let total = content.planned_steps().map_or_else(|| "until it is stopped".into(), group_digits);
    let mut rows = vec![("steps", total, group_digits(content.step))];
    if let Some(figures) = &content.figures {
        let per_epoch = figures.steps_per_epoch.max(1) as f64;
        let epochs = |steps: u64| short(steps as f64 / per_epoch);
        rows.push(("epochs", content.planned_steps().map_or_else(|| "–".into(), epochs), epochs(content.step)));
        let peak =
            content.peak.as_ref().map_or_else(|| "–".into(), |peak| format!("{} at most", bytes(peak.last.1 as u64)));
        rows.push(("memory", format!("about {}", bytes(figures.memory)), peak));
        let rate = content
            .series("rate")
            .map_or_else(|| "–".into(), |series| format!("{} at the last step", short(series.last.1)));
        if figures.trainable > 0 {
            rows.push(("learning rate", format!("{} at most", short(figures.rate)), rate));
        }
        let data =
            format!("{} in the data, {} of them targets", group_digits(figures.tokens), group_digits(figures.targets));
        rows.push(("tokens", data, group_digits(content.tokens.max(0.0) as u64)));
    }
    rows.push(("time in steps", "–".into(), duration(content.seconds)));
    rows.extend(cost_rows(content));
    rows
}

/// The estimated time, price and energy of the whole run beside what they were, as far as they are known.
fn cost_rows(content: &Content) -> Vec<(&'static str, String, String)> {
    let (estimate, cost) = (content.estimate.as_ref(), content.cost.as_ref());
    let row = |name, text: &dyn Fn(&Cost) -> Option<String>| {
        let planned = estimate.and_then(|(step, cost)| Some((step, text(cost)?)));
        let planned = planned.map(|(step, text)| format!("about {text}, estimated after step {}", group_digits(*step)));
        let outcome = cost.and_then(text);
        let is_known = planned.is_some() || outcome.is_some();
        is_known.then(|| (name, planned.unwrap_or_else(|| "–".into()), outcome.unwrap_or_else(|| "–".into())))
    };
    let rows = [
        row("time in all", &|cost| Some(duration(cost.seconds))),
        row("price", &Cost::price_text),
        row("energy", &|cost| cost.energy.map(|energy| energy.to_string())),
    ];
    rows.into_iter().flatten().collect()
}

/// Rows of a name and a text about method, model, data and machine, with their digests, and changes of the method.
/// Leaves out rows without a text.
fn facts(content: &Content) -> Vec<(&'static str, String)> {
    let text = |key: &str| printable_lines(&content.text(key), MAX_CELL);
    let mut facts = vec![
        ("method", format!("{} {}", text("method.name"), text("method.version"))),
        ("method, SHA-256", text("method.sha256")),
        ("signed by", text("method.signer")),
        ("model", text("model.name")),
        ("model, SHA-256", text("model.sha256")),
    ];
    if let Some(figures) = &content.figures {
        let share = 100.0 * figures.trainable as f64 / figures.parameters.max(1) as f64;
        let what = if figures.rank > 0 {
            format!("{} of rank {}", figures.adapter, figures.rank)
        } else {
            figures.adapter.clone()
        };
        let (trainable, all) = (group_digits(figures.trainable), group_digits(figures.parameters));
        let trained = format!("{}, {trainable} of {all} weights ({share:.2} %)", printable_lines(&what, 80));
        facts.push(("trains", trained));
    }
    facts.extend([
        ("data", text("data.name")),
        ("data, SHA-256", text("data.sha256")),
        ("validation data", text("validation.name")),
        ("device", text("device")),
        ("computed in", text("compute")),
        ("processor", text("processor")),
        ("seed", text("seed")),
        ("tunebox", text("tunebox")),
    ]);
    facts.extend(
        content
            .revisions
            .iter()
            .map(|(step, digest)| ("method changed", format!("after step {step} to {}", printable_lines(digest, 80)))),
    );
    facts.retain(|(_, value)| !value.trim().is_empty());
    facts
}
