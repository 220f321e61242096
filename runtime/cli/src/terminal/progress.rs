//! Progress bars on stderr. They are hidden unless stderr is a terminal, and disappear when they are dropped.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use tunebox_package::registry::Progress;

use super::{Terminal, escape};

/// Creates a progress bar of `total` steps with a label, or a spinner with a counter if `total` is `None`.
pub(crate) fn step_bar(terminal: Terminal, label: &'static str, total: Option<u64>) -> ProgressBar {
    let template = match total {
        Some(_) => "  {prefix} {bar:30} {percent:>3} %  {pos}/{len}  {eta} left",
        None => "  {prefix} {spinner} {pos}",
    };
    create_bar(terminal, total, template).with_prefix(label)
}

/// Creates a spinner that counts compiled crates. Its message is the name of the crate compiled last.
pub(crate) fn crate_counter(terminal: Terminal) -> ProgressBar {
    create_bar(terminal, None, "  {spinner} compiling the SDK and its dependencies, once: {pos}, {msg}")
}

/// Creates a progress bar with this template, or a spinner if `length` is `None`. Dropping it clears it. Returns a
/// hidden bar unless the terminal is interactive.
fn create_bar(terminal: Terminal, length: Option<u64>, template: &str) -> ProgressBar {
    if !terminal.is_interactive() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = length.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    let bar = bar.with_style(style.progress_chars("█▉▊▋▌▍▎▏░")).with_finish(ProgressFinish::AndClear);
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

/// Shows uploads and downloads of a registry: one bar for each blob.
pub(crate) struct TransferProgress {
    terminal: Terminal,
    bar: ProgressBar,
}

impl TransferProgress {
    /// Creates a display that shows nothing until the first transfer starts.
    pub(crate) fn new(terminal: Terminal) -> Self {
        Self { terminal, bar: ProgressBar::hidden() }
    }
}

impl Progress for TransferProgress {
    /// Clears the bar of the transfer before, and shows one of `total` bytes for `what`.
    fn start(&mut self, what: &str, total: u64) {
        let template = "  {prefix} {bar:30} {percent:>3} %  {bytes}/{total_bytes}  {eta} left";
        self.bar.finish_and_clear();
        self.bar = create_bar(self.terminal, Some(total), template).with_prefix(escape(what));
    }

    /// Advances the bar of the current transfer by `bytes`. Shows nothing before the first transfer starts.
    fn advance(&mut self, bytes: u64) {
        self.bar.inc(bytes);
    }
}
