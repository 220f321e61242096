//! Processes of runs: waited for, looked at and sent signals.

use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long is waited for what must come, on a machine that has other things to do as well.
const PATIENCE: Duration = Duration::from_secs(240);

/// Waits for something of a running child.
pub(crate) fn wait_for<T>(child: &mut Child, what: &str, look: impl FnMut() -> Option<T>) -> T {
    watch_for(child, what, look).unwrap_or_else(|| panic!("the run ended before: {what}"))
}

/// Waits for something of a child; `None` if the child ended before it was seen.
pub(crate) fn watch_for<T>(child: &mut Child, what: &str, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if child.try_wait().unwrap().is_some() {
            return None;
        }
        assert!(begun.elapsed() < PATIENCE, "it does not come: {what}");
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Waits until a process is gone or a zombie.
pub(crate) fn wait_until_gone(process: u32) {
    let begun = Instant::now();
    while status(process).is_some_and(|(state, _)| state != 'Z') {
        assert!(begun.elapsed() < PATIENCE, "process {process} is left");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a signal to a process. Fails if there is none.
pub(crate) fn send(process: u32, signal: Signal) {
    kill_process(Pid::from_raw(process.try_into().unwrap()).unwrap(), signal).unwrap();
}

/// The numbers of all processes.
pub(crate) fn processes() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").unwrap();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// Whether a process is the worker of a run.
pub(crate) fn is_worker(process: u32) -> bool {
    std::fs::read(format!("/proc/{process}/cmdline")).is_ok_and(|words| words.ends_with(b"\0worker\0"))
}

/// The state of a process, and its parent; `None` if it is gone.
pub(crate) fn status(process: u32) -> Option<(char, u32)> {
    let fields = fields_of(process)?;
    Some((fields[0].chars().next()?, fields[1].parse().ok()?))
}

/// The processor time that a process has used in user mode, in hundredths of a second; `None` if it is gone.
pub(crate) fn processor_time(process: u32) -> Option<u64> {
    fields_of(process)?[11].parse().ok()
}

/// What `/proc/PID/stat` says of a process, from its state on.
fn fields_of(process: u32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    Some(text.rsplit_once(") ")?.1.split(' ').map(str::to_owned).collect())
}
