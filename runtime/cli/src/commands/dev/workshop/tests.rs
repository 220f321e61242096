//! Claims about a workshop: what ends its waiting, and what does not.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Sender;

use super::*;

/// A workshop of nothing, and who tells it what happens.
fn workshop(learns: Option<bool>) -> (Sender<Found>, Workshop) {
    let (send, found) = channel();
    let terminal = Terminal { json: false, quiet: true, verbose: false };
    let (watch, begun) = (Rc::new(RefCell::new(Watch::new(terminal))), Rc::default());
    let (folder, run_file) = (PathBuf::from("."), Some(PathBuf::from("run.toml")));
    let (run_by, builder) = (Some(b"as it was".to_vec()), None);
    (send, Workshop { terminal, folder, run_file, run_by, found, builder, watch, begun, learns })
}

fn run_file(text: &str) -> Found {
    Found::RunFile(Some(text.into()))
}

#[test]
fn a_build_that_panics_is_no_wish_to_stop() {
    let (send, mut workshop) = workshop(None);
    workshop.builder = Some(std::thread::spawn(move || {
        let _nobody: Sender<Found> = send;
        panic!("the build broke");
    }));
    let ended = catch_unwind(AssertUnwindSafe(|| workshop.next_run(&AtomicBool::new(false))));
    assert_eq!(ended.unwrap_err().downcast_ref(), Some(&"the build broke"));
}

#[test]
fn between_two_runs_another_run_file_makes_a_new_one_of_a_source_that_builds() {
    for (learns, text, wanted) in
        [(Some(true), "mended", true), (Some(false), "as it was", false), (None, "mended", false)]
    {
        let (send, mut workshop) = workshop(learns);
        send.send(run_file(text)).unwrap();
        drop(send);
        assert_eq!(workshop.next_run(&AtomicBool::new(false)), wanted, "{learns:?} {text}");
    }
}

#[test]
fn in_a_run_another_run_file_is_no_version_of_the_method() {
    let (send, mut workshop) = workshop(Some(true));
    send.send(run_file("mended")).unwrap();
    drop(send);
    assert_eq!(workshop.wait(&AtomicBool::new(false)), None);
}
