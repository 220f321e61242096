//! Opens a page in the user's browser.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::terminal::Terminal;

/// Environment variables of which one says that a browser can be shown.
const DISPLAY_VARIABLES: [&str; 3] = ["DISPLAY", "WAYLAND_DISPLAY", "BROWSER"];

/// Opens a page in the browser and does not wait for it. If that is not possible, warns with the reason and the page's
/// path.
pub(crate) fn open_page(terminal: Terminal, page: &Path) {
    if let Err(why) = start_browser(page) {
        terminal.warn(format!("no browser was opened: {why}; open {} yourself", page.display()));
    }
}

/// Starts the system's program that opens files, in a process group of its own, so that Ctrl-C does not end the
/// browser. The error is a clause for a message.
fn start_browser(page: &Path) -> Result<(), String> {
    let is_file = page.symlink_metadata().is_ok_and(|about| about.is_file());
    let path = page.canonicalize().ok().filter(|_| is_file).ok_or("there is no such page")?;
    let program = if cfg!(target_os = "macos") {
        "open"
    } else if DISPLAY_VARIABLES.iter().any(|name| std::env::var_os(name).is_some()) {
        "xdg-open"
    } else {
        return Err("there is no display".into());
    };
    let mut command = Command::new(program);
    command.arg(path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let mut child = command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => format!("`{program}` is not installed"),
        _ => format!("`{program}` cannot be started: {error}"),
    })?;
    // Nobody else would take its exit status.
    std::thread::spawn(move || child.wait());
    Ok(())
}
