//! A run as a person watches it: a bar on a terminal, plain rows elsewhere, objects in JSON mode.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::Terminal;

/// A bar that only moves where somebody watches.
pub(crate) struct Bar(Option<ProgressBar>);

impl Bar {
    /// A bar of `total` steps under a label.
    pub(crate) fn new(terminal: Terminal, label: &'static str, total: u64) -> Self {
        if !terminal.watched() {
            return Self(None);
        }
        let bar = ProgressBar::new(total);
        let template = "  {prefix} {bar:30} {percent:>3} %  {pos}/{len}  {eta} left";
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
