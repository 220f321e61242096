//! Somebody who watches a run: rows for a person, objects for a machine.

use std::path::Path;

use serde_json::{Map, Value, json};
use tunebox_sandbox::interface_of;
use tunebox_training::plan::{ENDLESS, PlanSummary};
use tunebox_training::{Event, Observer, StepEvent};

use crate::terminal::Terminal;
use crate::terminal::progress::Bar;
use tunebox_foundation::format::{bytes, counted, grouped, number};

/// Shows what a run tells.
pub(in crate::commands) struct Watch {
    terminal: Terminal,
    log_every: u64,
    total: u64,
    bar: Option<Bar>,
    /// The names over the columns, as they were told last: a method that changes may report other metrics.
    head: String,
    /// Whether the method moves weights; rows of one that does not have no gradient and no rate.
    learns: bool,
    tokens: f64,
    seconds: f64,
}

impl Watch {
    pub(in crate::commands) fn new(terminal: Terminal) -> Self {
        Self {
            terminal,
            log_every: 1,
            total: 0,
            bar: None,
            head: String::new(),
            learns: true,
            tokens: 0.0,
            seconds: 0.0,
        }
    }

    /// Takes the bar away.
    pub(in crate::commands) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.clear();
        }
    }

    /// Writes something above the bar.
    pub(in crate::commands) fn above(&self, write: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.above(write),
            None => write(),
        }
    }

    fn step(&mut self, event: &StepEvent) {
        if self.terminal.json {
            self.terminal.object(object(event));
            return;
        }
        self.tokens += event.tokens as f64;
        self.seconds += event.seconds;
        let total = Some(self.total).filter(|total| *total != u64::from(ENDLESS));
        let bar = self.bar.get_or_insert_with(|| match total {
            Some(total) => Bar::new(self.terminal, "train", total),
            None => Bar::endless(self.terminal, "train"),
        });
        bar.at(event.step);
        if !event.step.is_multiple_of(self.log_every) && event.step != event.total && event.step != 1 {
            return;
        }
        let rate = self.tokens / self.seconds.max(1e-9);
        (self.tokens, self.seconds) = (0.0, 0.0);
        let (terminal, learns) = (self.terminal, self.learns);
        let head = head(event, learns);
        let new = head != self.head;
        self.head.clone_from(&head);
        self.above(|| {
            if new {
                terminal.tell(head);
            }
            terminal.tell(row(event, rate, learns));
        });
    }
}

impl Observer for Watch {
    fn event(&mut self, event: Event<'_>) {
        let terminal = self.terminal;
        if let Event::Planned { summary, .. } = &event {
            self.learns = summary.trainable > 0;
            (self.log_every, self.total) = (u64::from(summary.log_every), summary.steps);
        }
        match event {
            Event::Planned { summary, folder, resumed } if terminal.json => {
                terminal.object(json!({ "event": "planned", "plan": summary, "folder": folder, "resumed": resumed }));
            }
            Event::Planned { summary, folder, resumed } => card(terminal, summary, folder, resumed),
            Event::Step(step) => self.step(step),
            Event::Validated { step, loss } if terminal.json => {
                terminal.object(json!({ "event": "validated", "step": step, "loss": loss }));
            }
            Event::Validated { step, loss } => {
                let found = format!("after step {step}: negative log-likelihood {loss:.4} a target token");
                self.above(|| terminal.say("Validated", found));
            }
            Event::Passed { step, rate } if terminal.json => {
                let (one, any) = (rate.at_one, rate.at_k);
                terminal.object(json!({
                    "event": "passed", "step": step, "pass-at-1": one, "pass-at-k": any, "k": rate.k, "reward": rate.reward,
                }));
            }
            Event::Passed { step, rate } => self.above(|| {
                let (one, any) = (100.0 * rate.at_one, 100.0 * rate.at_k);
                terminal.say("Validated", format!("after step {step}: pass@1 {one:.1} %, pass@{} {any:.1} %", rate.k));
            }),
            Event::Saved { step, path } if terminal.json => {
                terminal.object(json!({ "event": "saved", "step": step, "path": path }));
            }
            Event::Saved { path, .. } => self.above(|| terminal.detail(format!("saved {}", path.display()))),
            Event::Log { step, line } if terminal.json => {
                terminal.object(json!({ "event": "log", "step": step, "line": line }));
            }
            Event::Log { step, line } => self.above(|| terminal.say("Method", format!("step {step}: {line}"))),
            Event::Warning { text } if terminal.json => terminal.object(json!({ "event": "warning", "text": text })),
            Event::Warning { text } => self.above(|| terminal.say("Warning", text)),
        }
    }
}

fn object(event: &StepEvent) -> Value {
    let metrics: Map<String, Value> = event.metrics.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    json!({
        "event": "step", "step": event.step, "total": event.total, "epoch": event.epoch, "metrics": metrics,
        "gradient_norm": event.gradient_norm, "rate": event.rate, "tokens": event.tokens, "targets": event.targets,
        "tokens_per_second": event.tokens_per_second, "seconds": event.seconds, "peak_bytes": event.peak,
    })
}

/// Metrics in a row; all of them are in `metrics.jsonl`.
const SHOWN: usize = 4;

/// The metrics in a row, and the width of each.
fn shown(event: &StepEvent) -> impl Iterator<Item = (&str, f64, usize)> {
    event.metrics.iter().take(SHOWN).map(|(name, value)| (name.as_str(), *value, name.chars().count().max(8) + 2))
}

fn head(event: &StepEvent, learns: bool) -> String {
    let names: String = shown(event).map(|(name, _, width)| format!("{name:>width$}")).collect();
    let pace = if learns { format!("{:>11}{:>11}", "gradient", "rate") } else { String::new() };
    format!("{:>8}{names}{pace}{:>11}{:>11}", "step", "tokens/s", "peak")
}

fn row(event: &StepEvent, tokens_per_second: f64, learns: bool) -> String {
    let values: String =
        shown(event).map(|(_, value, width)| format!("{:>width$}", number(value, 4, width - 1))).collect();
    let gradient = number(event.gradient_norm, 3, 10);
    let pace = if learns { format!("{gradient:>11}{:>11.2e}", event.rate) } else { String::new() };
    let peak = event.peak.map_or_else(String::new, bytes);
    let speed = grouped(tokens_per_second.round() as u64);
    format!("{:>8}{values}{pace}{speed:>11}{peak:>11}", event.step)
}

/// The head of a run: what is trained, on what, by which method.
pub(super) fn card(terminal: Terminal, plan: &PlanSummary, folder: &Path, resumed: Option<u64>) {
    let data = format!(
        "{}, {}, {} of {} tokens learned",
        plan.data,
        counted(plan.records as u64, "record"),
        grouped(plan.report.targets as u64),
        grouped(plan.report.tokens as u64)
    );
    let batch =
        if plan.accumulation > 1 { format!("{} × {}", plan.batch, plan.accumulation) } else { plan.batch.to_string() };
    terminal.say("Run", folder.display().to_string());
    terminal.say(
        "Model",
        format!("{}, {}, {} weights, on {}", plan.model, plan.family, grouped(plan.parameters), plan.device),
    );
    let signed = plan.signer.as_deref().map_or_else(|| "no".to_owned(), |key| format!("by {key}"));
    terminal.say(
        "Method",
        format!("{} {}, signed: {signed}, imports {}", plan.method, plan.method_version, short(&plan.imports)),
    );
    terminal.say("Data", data);
    terminal.say("Training", training(plan, &batch));
    for (what, lines) in [
        ("left out", plan.report.skipped.len()),
        ("without a target in reach", plan.report.dropped.len()),
        ("cut at the end", plan.report.truncated),
    ] {
        if lines > 0 {
            terminal.say("Note", format!("{} {what}", counted(lines as u64, "record")));
        }
    }
    if let Some(step) = resumed {
        let changed = plan.method_changed.then_some((plan.method.as_str(), plan.method_version.as_str()));
        terminal.say("Resuming", going_on(step, changed));
    }
}

/// What is the same for a run that goes on; name and version of its method where that has changed.
fn going_on(step: u64, changed: Option<(&str, &str)>) -> String {
    match changed {
        Some((method, version)) => {
            format!("at step {step}: same model and data, by {method} {version}, which has changed since")
        }
        None => format!("at step {step}: same model, data and method"),
    }
}

/// What is trained and how: an adapter, every weight, or nothing by a method that does not ask to learn.
fn training(plan: &PlanSummary, batch: &str) -> String {
    let steps = if plan.steps == u64::from(ENDLESS) { "until Ctrl-C".into() } else { counted(plan.steps, "step") };
    let steps = format!("batch {batch}, {steps}");
    if plan.trainable == 0 {
        return format!("nothing, {steps}: the method does not ask to learn");
    }
    let share = 100.0 * plan.trainable as f64 / plan.parameters.max(1) as f64;
    let adapter =
        if plan.adapter == "full" { "every weight".to_owned() } else { format!("{} rank {}", plan.adapter, plan.rank) };
    let trainable = grouped(plan.trainable);
    format!("{adapter}, {trainable} trainable ({share:.2} %), {steps}, rate {:e} {}", plan.rate, plan.schedule)
}

fn short(imports: &[String]) -> String {
    let names = imports.iter().map(|import| interface_of(import).unwrap_or(import));
    names.filter(|name| *name != "types").collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_of_a_step_stay_apart() {
        let event = StepEvent {
            step: 1,
            total: 2,
            epoch: 0.5,
            metrics: [("loss", 5e29), ("accuracy", -123_456.0)].map(|(name, value)| (name.to_owned(), value)).into(),
            gradient_norm: 1_234_567_890.0,
            rate: 1e-3,
            tokens: 10,
            targets: 5,
            tokens_per_second: 10.0,
            seconds: 1.0,
            skipped: 0,
            peak: None,
        };
        let row = row(&event, 10.0, true);
        let cells: Vec<_> = row.split_whitespace().collect();
        assert_eq!(cells, ["1", "5.00e29", "-1.23e5", "1.23e9", "1.00e-3", "10"]);
    }

    #[test]
    fn a_method_that_has_changed_is_not_called_the_same() {
        assert_eq!(going_on(6, None), "at step 6: same model, data and method");
        let changed = "at step 6: same model and data, by calm 0.2.0, which has changed since";
        assert_eq!(going_on(6, Some(("calm", "0.2.0"))), changed);
    }
}
