//! What ends the waiting of a session, and what does not.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Sender;

use super::*;

/// A session without a watcher, and the sender of its changes.
fn session(learns: Option<bool>) -> (Sender<Change>, Session) {
    let (sender, changes) = channel();
    let terminal = Terminal { json: false, quiet: true, verbose: false };
    let display = RunDisplay::new(terminal);
    let (folder, run_file) = (PathBuf::from("."), Some(PathBuf::from("run.toml")));
    let (used_run_file, watcher) = (Some(b"as it was".to_vec()), None);
    (sender, Session { terminal, folder, run_file, used_run_file, changes, watcher, display, learns, native: None })
}

fn run_file(text: &str) -> Change {
    Change::RunFile(Some(text.into()))
}

#[test]
fn a_panic_of_the_watcher_is_not_taken_for_an_interrupt() {
    let (sender, mut session) = session(None);
    session.watcher = Some(std::thread::spawn(move || {
        let _dropped: Sender<Change> = sender;
        panic!("the build broke");
    }));
    let result = catch_unwind(AssertUnwindSafe(|| session.wait_for_run(&AtomicBool::new(false))));
    assert_eq!(result.unwrap_err().downcast_ref(), Some(&"the build broke"));
}

#[test]
fn between_two_runs_a_changed_run_file_starts_a_new_one_if_the_source_builds() {
    for (learns, text, expected) in
        [(Some(true), "fixed", true), (Some(false), "as it was", false), (None, "fixed", false)]
    {
        let (sender, mut session) = session(learns);
        sender.send(run_file(text)).unwrap();
        drop(sender);
        assert_eq!(session.wait_for_run(&AtomicBool::new(false)), expected, "{learns:?} {text}");
    }
}

#[test]
fn during_a_run_a_changed_run_file_is_not_a_new_component() {
    let (sender, mut session) = session(Some(true));
    sender.send(run_file("fixed")).unwrap();
    drop(sender);
    assert!(session.wait_for_version(&AtomicBool::new(false)).is_none());
}
