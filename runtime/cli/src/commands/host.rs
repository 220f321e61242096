//! `tunebox host`: a test of a method's author starts it, says what it wants, and is served.

use tunebox_sandbox::native::Test;
use tunebox_training::twin::drive;

use super::{Ending, Outcome};
use crate::terminal::diagnostic::Failure;

/// Comes to the test that the environment names, and does what it asks until it is gone. What goes wrong it is told as
/// a person would be.
pub(super) fn run() -> Outcome {
    let test = Test::find().map_err(|error| lost(&error))?;
    let aside = test.method.aside().map_err(|error| lost(&error))?;
    drive(test).map_err(|error| {
        let failure = Failure::from(error);
        aside.stop(&anstream::adapter::strip_str(&failure.text(false)).to_string());
        failure
    })?;
    Ok(Ending::Done)
}

fn lost(error: &std::io::Error) -> Failure {
    Failure::usage(format!("this command is for tunebox itself: {error}"), "a test of a method starts it")
}
