//! A run or a transfer as a person watches it: a bar on a terminal, plain rows elsewhere, objects in JSON mode.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use tunebox_package::registry::Progress;

use super::{Terminal, shown};

/// A bar that only moves where somebody watches.
pub(crate) struct Bar(Option<ProgressBar>);

impl Bar {
    /// A bar of `total` steps under a label.
    pub(crate) fn new(terminal: Terminal, label: &'static str, total: u64) -> Self {
        let template = "  {prefix} {bar:30} {percent:>3} %  {pos}/{len}  {eta} left";
        Self::shown(terminal, label, ProgressBar::new(total), template)
    }

    /// The same for steps that have no end.
    pub(crate) fn endless(terminal: Terminal, label: &'static str) -> Self {
        Self::shown(terminal, label, ProgressBar::new_spinner(), "  {prefix} {spinner} {pos}")
    }

    fn shown(terminal: Terminal, label: &'static str, bar: ProgressBar, template: &str) -> Self {
        if !terminal.watched() {
            return Self(None);
        }
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("█▉▊▋▌▍▎▏░"));
        }
        bar.set_prefix(label);
        bar.enable_steady_tick(Duration::from_millis(250));
        Self(Some(bar))
    }

    /// Moves to a step.
    pub(crate) fn at(&self, step: u64) {
        if let Some(bar) = &self.0 {
            bar.set_position(step);
        }
    }

    /// Writes something above the bar, or plainly where there is none.
    pub(crate) fn above(&self, write: impl FnOnce()) {
        match &self.0 {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Takes the bar away.
    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// The crates that a build compiles beside the method: a line that counts them, where somebody watches.
pub(crate) struct Crates {
    terminal: Terminal,
    line: Option<ProgressBar>,
}

impl Crates {
    pub(crate) fn new(terminal: Terminal) -> Self {
        Self { terminal, line: None }
    }

    /// One more is compiled.
    pub(crate) fn compiled(&mut self, name: &str) {
        if !self.terminal.watched() {
            return;
        }
        let line = self.line.get_or_insert_with(counting);
        line.inc(1);
        line.set_message(shown(name));
    }
}

impl Drop for Crates {
    fn drop(&mut self) {
        if let Some(line) = &self.line {
            line.finish_and_clear();
        }
    }
}

/// A count whose end nobody knows.
fn counting() -> ProgressBar {
    let line = ProgressBar::new_spinner();
    let template = "  {spinner} compiling the SDK and what it stands on, once: {pos}, {msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        line.set_style(style);
    }
    line.enable_steady_tick(Duration::from_millis(250));
    line
}

/// What moves between this machine and a registry: one bar a part, where somebody watches.
pub(crate) struct Transfer {
    terminal: Terminal,
    bar: Option<ProgressBar>,
}

impl Transfer {
    pub(crate) fn new(terminal: Terminal) -> Self {
        Self { terminal, bar: None }
    }

    fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Progress for Transfer {
    fn start(&mut self, what: &str, total: u64) {
        self.clear();
        if !self.terminal.watched() {
            return;
        }
        let bar = ProgressBar::new(total);
        let template = "  {prefix} {bar:30} {percent:>3} %  {bytes}/{total_bytes}  {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("█▉▊▋▌▍▎▏░"));
        }
        bar.set_prefix(shown(what));
        bar.enable_steady_tick(Duration::from_millis(250));
        self.bar = Some(bar);
    }

    fn advance(&mut self, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.inc(bytes);
        }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.clear();
    }
}
