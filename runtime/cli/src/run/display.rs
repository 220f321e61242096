//! The progress of a run: a table and a bar for people, events with `--json`.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Instant;

use indicatif::ProgressBar;
use serde_json::{Map, Value, json};
use tunebox_training::configuration::ENDLESS;
use tunebox_training::{Event, Observer, REPORT_FILE, Sample, StepEvent};

use super::plan::{show_rings, show_summary};
use crate::browser::open_page;
use crate::terminal::progress::step_bar;
use crate::terminal::{Terminal, cut, width};
use tunebox_foundation::format::{bytes, duration, group_digits, number};

/// Shows the events of a run.
pub(crate) struct RunDisplay {
    terminal: Terminal,
    /// Steps between two rows of the table.
    log_every: u64,
    bar: ProgressBar,
    /// The column heads shown last. A method that `dev` reloads may report other metrics.
    head: String,
    /// Whether the method trains weights. Otherwise the table has no gradient and no learning rate.
    is_training: bool,
    /// Whether the run has sent an event.
    has_begun: bool,
    /// The names of the active confinement rings around the run's process, such as `system calls`; `None` for a run of
    /// built-in components.
    pub(crate) rings: Option<Vec<&'static str>>,
    /// The folder of runs, if the report of the run is to be opened in the browser when the run begins. A page
    /// elsewhere, which only a broken worker names, is not opened.
    pub(crate) open: Option<PathBuf>,
    /// Tokens and seconds since the last row.
    tokens: f64,
    seconds: f64,
    /// Finished steps; `None` before the plan is shown.
    step: Option<u64>,
    live: LiveLines,
}

/// Lines that a running call of the method sent and that are on the screen already. After the call, the same lines come
/// once more in its report; those that are in this list are not shown again.
#[derive(Default)]
struct LiveLines {
    shown: VecDeque<String>,
    /// When the line that begins with `1 of ` came.
    begun: Option<Instant>,
}

/// The least seconds left that are shown.
const MIN_SECONDS_LEFT: f64 = 5.0;

impl LiveLines {
    /// Adds a line that is shown now. For a line `K of N: …` with K above 1, returns about how many seconds the rest
    /// takes, by the time since the line `1 of N`; `None` below [`MIN_SECONDS_LEFT`], and for every other line. A line
    /// with K up to 1 restarts that time.
    fn add(&mut self, line: &str) -> Option<f64> {
        self.shown.push_back(line.to_owned());
        let (done, total) = line.split_once(": ")?.0.split_once(" of ")?;
        let (done, total): (u32, u32) = (done.parse().ok()?, total.parse().ok()?);
        if done <= 1 {
            self.begun = Some(Instant::now());
            return None;
        }
        let each = self.begun?.elapsed().as_secs_f64() / f64::from(done - 1);
        Some(each * f64::from(total.checked_sub(done)?)).filter(|left| *left >= MIN_SECONDS_LEFT)
    }

    /// Whether a line of a call that has ended is the oldest line in the list; removes it if so. Any other line empties
    /// the list: what follows it is shown.
    fn take(&mut self, line: &str) -> bool {
        let is_shown = self.shown.front().is_some_and(|shown| shown == line);
        if is_shown {
            self.shown.pop_front();
        } else {
            self.shown.clear();
        }
        is_shown
    }
}

impl RunDisplay {
    /// Creates a display with a hidden bar. The `Planned` event of the run sets the bar and the interval of rows.
    pub(crate) fn new(terminal: Terminal) -> Self {
        Self {
            terminal,
            log_every: 1,
            bar: ProgressBar::hidden(),
            head: String::new(),
            is_training: true,
            has_begun: false,
            rings: None,
            open: None,
            tokens: 0.0,
            seconds: 0.0,
            step: None,
            live: LiveLines::default(),
        }
    }

    /// Whether the run has sent an event.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Removes the progress bar.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// Runs `write` with the progress bar hidden, so that its output appears above the bar.
    pub(crate) fn write_above(&self, write: impl FnOnce()) {
        self.bar.suspend(write);
    }

    /// Writes a message with a label above the progress bar.
    fn status(&self, label: &str, text: String) {
        self.write_above(|| self.terminal.status(label, text));
    }

    /// Emits the step with `--json`. Otherwise moves the bar, and adds a row at the first, the last and every
    /// `log_every`-th step; its speed is the mean since the last row.
    fn show_step(&mut self, event: &StepEvent) {
        self.terminal.event(step_json(event));
        if self.terminal.json {
            return;
        }
        self.step = Some(event.step);
        self.bar.set_position(event.step);
        self.tokens += event.tokens as f64;
        self.seconds += event.seconds;
        if !event.step.is_multiple_of(self.log_every) && event.step != event.total && event.step != 1 {
            return;
        }
        let tokens_per_second = self.tokens / self.seconds.max(1e-9);
        (self.tokens, self.seconds) = (0.0, 0.0);
        let width = width();
        let head = format_table_head(event, self.is_training, width);
        let row = format_table_row(event, tokens_per_second, self.is_training, width);
        let is_new = head != self.head;
        self.head.clone_from(&head);
        self.write_above(|| {
            if is_new {
                self.terminal.message(head);
            }
            self.terminal.message(row);
        });
    }

    /// Emits a log line with `--json`, else shows it unless it was shown when it was written.
    fn show_log(&mut self, step: u64, line: &str) {
        self.terminal.event(json!({ "event": "log", "step": step, "line": line }));
        if !self.live.take(line) {
            self.status("Method", format!("step {step}: {line}"));
        }
    }
}

impl Observer for RunDisplay {
    /// Shows a line of the method at once, with the time that is left if it counts, as in `3 of 20: `. Does nothing
    /// before the plan is shown, and with `--json`: the events of these lines come once the call has ended.
    fn live_line(&mut self, line: &str, in_step: bool) {
        let Some(step) = self.step.filter(|_| !self.terminal.json) else { return };
        let left = self.live.add(line);
        self.status("Method", live_text(step + u64::from(in_step), line, left));
    }

    /// Emits the event with `--json`, else shows it above the progress bar. `Planned` shows the plan and creates the
    /// bar; `Saved` is shown only with `--verbose`.
    fn event(&mut self, event: &Event) {
        let terminal = self.terminal;
        self.has_begun = true;
        match event {
            Event::Planned { summary, folder, resumed } => {
                self.is_training = summary.trainable > 0;
                self.step = Some(resumed.unwrap_or(0));
                self.log_every = u64::from(summary.log_every);
                terminal.event(json!({
                    "event": "planned", "plan": summary, "folder": folder, "resumed": resumed, "rings": self.rings,
                }));
                show_summary(terminal, summary, folder, *resumed);
                show_rings(terminal, self.rings.as_deref());
                if self.open.take().is_some_and(|runs| folder.parent() == Some(runs.as_path())) {
                    open_page(terminal, &folder.join(REPORT_FILE));
                }
                let total = Some(summary.steps).filter(|steps| *steps != u64::from(ENDLESS));
                self.bar = step_bar(terminal, "train", total);
            }
            Event::Step(step) => self.show_step(step),
            Event::Validated { step, loss } => {
                terminal.event(json!({ "event": "validated", "step": step, "loss": loss }));
                let text = format!("after step {step}: validation loss {loss:.4}");
                self.status("Validated", text);
            }
            Event::Passed { step, rate } => {
                let (one, any) = (rate.at_one, rate.at_k);
                terminal.event(json!({
                    "event": "passed", "step": step, "pass-at-1": one, "pass-at-k": any, "k": rate.k,
                    "reward": rate.reward,
                }));
                let (one, any) = (100.0 * one, 100.0 * any);
                self.status("Validated", format!("after step {step}: pass@1 {one:.1} %, pass@{} {any:.1} %", rate.k));
            }
            Event::Sampled { step, samples } => {
                terminal.event(json!({ "event": "sampled", "step": step, "samples": samples }));
                self.status("Sampled", format!("step {step}, reward and completion\n{}", format_samples(samples)));
            }
            Event::Answered { step, answers } => {
                terminal.event(json!({ "event": "answered", "step": step, "answers": answers }));
            }
            Event::Estimated { step, cost } => {
                terminal.event(json!({ "event": "estimated", "step": step, "cost": cost }));
                self.write_above(|| {
                    terminal.detail(format!("the run costs about {cost}, estimated after step {step}"))
                });
            }
            Event::Saved { step, path } => {
                terminal.event(json!({ "event": "saved", "step": step, "path": path }));
                self.write_above(|| terminal.detail(format!("saved {}", path.display())));
            }
            Event::Log { step, line } => self.show_log(*step, line),
            Event::Warning { text } => {
                terminal.event(json!({ "event": "warning", "text": text }));
                self.write_above(|| terminal.warn(text));
            }
        }
    }
}

/// A line that is shown while the method's call goes on, with the time that is left.
fn live_text(step: u64, line: &str, left: Option<f64>) -> String {
    let left = left.map_or_else(String::new, |seconds| format!(" ({} left)", duration(seconds)));
    format!("step {step}: {line}{left}")
}

/// The most characters of a prompt or completion in a line, which then fits a terminal of 80 columns.
const MAX_SAMPLE: usize = 58;

/// Formats completions: the prompt of those that follow, then reward and completion of each, a line each. Empty without
/// any.
pub(crate) fn format_samples(samples: &[Sample]) -> String {
    let mut lines = Vec::new();
    let mut prompt = None;
    for sample in samples {
        if prompt.replace(&sample.prompt) != Some(&sample.prompt) {
            lines.push(one_line(&sample.prompt));
        }
        let reward = sample.reward.map_or_else(|| "–".to_owned(), |reward| number(reward, 2, 7));
        lines.push(format!("{reward:>7}  {}", one_line(&sample.completion)));
    }
    lines.join("\n")
}

/// A text on one line, with blanks for line ends, cut to [`MAX_SAMPLE`] characters.
fn one_line(text: &str) -> String {
    cut(&text.split_whitespace().collect::<Vec<_>>().join(" "), MAX_SAMPLE)
}

/// Returns the JSON event of a step, with all its metrics.
fn step_json(event: &StepEvent) -> Value {
    let metrics: Map<String, Value> = event.metrics.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    json!({
        "event": "step", "step": event.step, "total": event.total, "epoch": event.epoch, "metrics": metrics,
        "gradient_norm": event.gradient_norm, "rate": event.rate, "tokens": event.tokens, "targets": event.targets,
        "tokens_per_second": event.tokens_per_second, "seconds": event.seconds, "peak_bytes": event.peak,
    })
}

/// Metrics in a row of the table; `metrics.jsonl` has all of them.
const MAX_COLUMNS: usize = 4;

/// Columns of a row for the step, the gradient's norm, the learning rate and the speed, and the peak of memory.
const OTHER_COLUMNS: usize = 8 + 10 + 10 + 10 + 11;

/// Iterates over the first metrics of a step as (name, value, column width): at most [`MAX_COLUMNS`], and only as many
/// as fit into a row of `width` characters, but one in any case. The width of a column is that of the name and two
/// more, and at least 10 characters.
fn metric_columns(event: &StepEvent, width: usize) -> impl Iterator<Item = (&str, f64, usize)> {
    let columns = event.metrics.iter().take(MAX_COLUMNS);
    let columns = columns.map(|(name, value)| (name.as_str(), *value, name.chars().count().max(8) + 2));
    let mut used = OTHER_COLUMNS;
    columns
        .enumerate()
        .take_while(move |(number, (.., columns))| {
            used += columns;
            *number == 0 || used <= width
        })
        .map(|(_, column)| column)
}

/// Formats the heads of the table of steps: the step, each metric of `event`, if `is_training` the gradient's norm and
/// the learning rate, then tokens per second and the peak of memory. Leaves out metrics that do not fit into `width`
/// characters.
fn format_table_head(event: &StepEvent, is_training: bool, width: usize) -> String {
    let names: String = metric_columns(event, width).map(|(name, _, width)| format!("{name:>width$}")).collect();
    let training = if is_training { format!("{:>10}{:>10}", "gradient", "rate") } else { String::new() };
    format!("{:>8}{names}{training}{:>10}{:>11}", "step", "tokens/s", "peak")
}

/// Formats one step as a row of the table, with the given speed. Without `is_training` the columns for gradient and
/// rate are left out. Leaves out metrics that do not fit into `width` characters.
fn format_table_row(event: &StepEvent, tokens_per_second: f64, is_training: bool, width: usize) -> String {
    let cell = |(_, value, width): (&str, f64, usize)| format!("{:>width$}", number(value, 4, width - 1));
    let values: String = metric_columns(event, width).map(cell).collect();
    let gradient = number(event.gradient_norm, 3, 9);
    let training = if is_training { format!("{gradient:>10}{:>10.2e}", event.rate) } else { String::new() };
    let peak = event.peak.map_or_else(String::new, bytes);
    let speed = group_digits(tokens_per_second.round() as u64);
    format!("{:>8}{values}{training}{speed:>10}{peak:>11}", event.step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_are_short_lines() {
        let sample = |completion: &str, reward| Sample {
            prompt: "What is\n3 + 4?".into(),
            completion: completion.into(),
            reward,
            verdicts: Vec::new(),
        };
        let long = "7 ".repeat(200);
        let text = format_samples(&[sample("7", Some(1.0)), sample(&long, None)]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(&lines[..2], ["What is 3 + 4?", "   1.00  7"]);
        assert!(lines[2].starts_with("      –  7 7 7") && lines[2].ends_with('…'), "{text}");
        assert!(lines.iter().all(|line| line.chars().count() + 12 <= 80), "{text}");
    }

    #[test]
    fn lines_of_a_call_are_shown_once_and_say_what_is_left_where_they_count() {
        let mut live =
            LiveLines { begun: Some(Instant::now() - std::time::Duration::from_secs(20)), ..LiveLines::default() };
        let left = live.add("3 of 5: layer 2").unwrap();
        assert!((left - 20.0).abs() < 1.0, "{left}");
        assert_eq!(live_text(11, "3 of 5: layer 2", Some(20.4)), "step 11: 3 of 5: layer 2 (20 s left)");
        for line in ["one", "6 of 5: layer 9", "4 of 5"] {
            assert_eq!(live.add(line), None, "{line}");
        }
        assert!(live.take("3 of 5: layer 2") && live.take("one") && !live.take("another"));
        assert!(!live.take("4 of 5"), "lines after an unknown one are shown again");
    }

    fn event(metrics: &[(&str, f64)]) -> StepEvent {
        StepEvent {
            step: 1,
            total: 2,
            epoch: 0.5,
            metrics: metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            gradient_norm: 1_234_567_890.0,
            rate: 1e-3,
            tokens: 10,
            targets: 5,
            tokens_per_second: 10.0,
            seconds: 1.0,
            skipped: 0,
            peak: None,
        }
    }

    #[test]
    fn large_numbers_keep_a_space_between_columns() {
        let event = event(&[("loss", 5e29), ("accuracy", -123_456.0)]);
        let row = format_table_row(&event, 10.0, true, 80);
        let cells: Vec<_> = row.split_whitespace().collect();
        assert_eq!(cells, ["1", "5.00e29", "-1.23e5", "1.23e9", "1.00e-3", "10"]);
    }

    #[test]
    fn a_row_has_as_many_metrics_as_fit_into_the_terminal() {
        let names = ["loss", "rewards-chosen", "rewards-rejected", "rewards-margins", "rewards-accuracies"];
        let event = event(&names.map(|name| (name, 1.0)));
        let head = |width| format_table_head(&event, true, width);
        assert!(
            head(80).chars().count() <= 80 && head(80).contains("rewards-chosen") && !head(80).contains("rejected")
        );
        assert!(head(120).chars().count() <= 120 && head(120).contains("rewards-margins"), "{}", head(120));
        assert!(head(40).contains("loss"), "one metric in any case");
        assert_eq!(head(usize::MAX).split_whitespace().count(), 9);
        assert_eq!(format_table_row(&event, 1.0, true, 80).split_whitespace().count(), 6);
    }
}
