//! `state.json` of a checkpoint, as it is read for what is left of a run whose worker died.

use tunebox_training::Error;

use crate::scratch::with_file;
use crate::{Target, conversation};

pub(super) const TARGET: Target = Target { name: "checkpoint", run, longest: 4 << 10, quick: 300 };

/// The checkpoint is one that is kept, or it is not; the run is lost in either case.
fn run(bytes: &[u8]) {
    with_file("state.json", bytes, |path, folder| {
        let run = folder.join("run");
        let step = run.join("steps/000002");
        let moved = std::fs::create_dir_all(&step).and_then(|()| std::fs::rename(path, step.join("state.json")));
        assert!(moved.is_ok(), "{moved:?}");
        let Err(Error::Explained(error, _)) = conversation::after_greeting(&conversation::planned(&run)) else {
            panic!("a worker that said nothing more did not end the run")
        };
        assert!(error.what.ends_with("in step 1"), "the folder was not read: {error:?}");
        let kept = error.kept.unwrap_or_default();
        assert!(kept == "nothing had been saved yet" || kept == format!("step 2, {}", step.display()), "{kept}");
    });
}
