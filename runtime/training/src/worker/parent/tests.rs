//! How the parent reports workers that die, send something else than messages, or cannot be started.

use tunebox_foundation::explain::Explain;

use super::*;
use crate::observer::SilentObserver;

/// The error of a run whose worker is a shell script.
fn supervised(script: &str) -> (Explanation, Exit) {
    let overrides = ["model.path=.", "data.path=data.jsonl", "method.use=./stranger.wasm"];
    let settings = RunSettings::from_overrides(&overrides).unwrap();
    let program = Program::at("/bin/sh").with("-c").with(script);
    let error = execute(settings, Some(&program), &mut SilentObserver, &AtomicBool::new(false)).unwrap_err();
    (error.explanation(), error.exit())
}

fn line(message: &Message) -> String {
    serde_json::to_string(message).unwrap()
}

#[test]
fn a_worker_that_dies_is_told_with_its_signal_its_stderr_and_no_checkpoint() {
    let hello = line(&Message::Hello(Version::this()));
    let (told, exit) = supervised(&format!("echo '{hello}'; echo 'it could not' >&2; kill -ABRT $$"));

    assert_eq!(told.what, "the worker aborted (signal 6, SIGABRT) before the first step");
    assert_eq!(told.why.unwrap(), "its last words: it could not");
    assert_eq!((told.kept.unwrap().as_str(), exit), ("nothing had been saved yet", Exit::Sandbox));
    assert!(supervised("exit 0").0.what.contains("ended before it was done"));
    assert!(supervised("exit 101").0.what.contains("panicked"));
}

#[test]
fn a_worker_that_breaks_off_in_a_line_died_and_is_not_garbled() {
    let hello = line(&Message::Hello(Version::this()));
    let (told, _) = supervised(&format!("echo '{hello}'; printf '{{\"event\":{{\"lo'; kill -KILL $$"));

    assert_eq!(told.what, "the worker was killed (signal 9, SIGKILL) before the first step");
}

#[test]
fn what_is_no_report_is_told_and_ends_the_worker() {
    let hello = line(&Message::Hello(Version::this()));
    let other = hello.replace("\"version\":", "\"version\":9");
    for (script, why) in [
        ("echo nonsense; sleep 60".to_owned(), "a line is not what it should be"),
        (format!("echo '{hello}'; echo '{{}}'; sleep 60"), "a line is not what it should be"),
        (format!("echo '{hello}'; echo '{hello}'; sleep 60"), "it begins anew"),
        (format!("echo '{other}'; sleep 60"), "it is another version of tunebox"),
        ("exec cat /dev/zero".to_owned(), "a line is too long"),
    ] {
        let begun = Instant::now();
        let (told, exit) = supervised(&script);
        assert!(told.why.as_ref().unwrap().starts_with(why), "{script}: {told:?}");
        assert_eq!(
            (told.what.as_str(), exit),
            ("the worker cannot be understood before the first step", Exit::Sandbox)
        );
        assert!(begun.elapsed() < Duration::from_secs(30), "{script} is waited for");
    }
}

#[test]
fn what_a_worker_reports_is_told_as_if_it_had_happened_here() {
    let report =
        Explanation::new("data", "the line is not JSON").with_location("data.jsonl:7:15").with_why("it is not");
    let failed = line(&Message::Failed(Box::new(report.clone()), Exit::Usage));
    let (told, exit) = supervised(&format!("echo '{}'; echo '{failed}'", line(&Message::Hello(Version::this()))));

    assert_eq!((told, exit), (report, Exit::Usage));
}

#[test]
fn a_program_that_is_not_there_is_told_with_what_to_do() {
    let settings = RunSettings::from_overrides(&["model.path=.", "data.path=d", "method.use=./s"]);
    let program = Program::at("/nowhere/tunebox");
    let error = execute(settings.unwrap(), Some(&program), &mut SilentObserver, &AtomicBool::new(false)).unwrap_err();

    assert_eq!(error.to_string(), "the worker cannot be started");
    assert!(error.hint().unwrap().contains("--in-process"));
}
