//! Progress bars on stderr. They are hidden unless stderr is a terminal, and disappear when they are dropped.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};

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

/// Returns what shows the upload or download of a package. It shows nothing before the first call.
pub(crate) fn transfer_display(terminal: Terminal) -> impl FnMut(&str, u64, u64) {
    let mut bar = None;
    move |package, done, total| {
        let template = "  {prefix} {bar:30} {percent:>3} %  {bytes}/{total_bytes}  {eta} left";
        let create = || create_bar(terminal, Some(total), template).with_prefix(escape(package));
        bar.get_or_insert_with(create).set_position(done);
    }
}
