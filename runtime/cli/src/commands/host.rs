//! `tunebox host`: serves the host functions to a unit test of a method, which starts this command.

use tunebox_sandbox::native::ListeningTest;

use crate::terminal::{CommandResult, ExitStatus, Failure};

/// Connects to the unit test that the environment variables name and answers its requests until it ends. Sends the text
/// of an error to the test as well as returning it.
pub(super) fn serve_test() -> CommandResult {
    let test = ListeningTest::find().map_err(|error| connection_failure(&error))?;
    let notifier = test.method.notifier().map_err(|error| connection_failure(&error))?;
    tunebox_training::twin::serve_test(test).map_err(|error| {
        let failure = Failure::from(error);
        notifier.stop(&anstream::adapter::strip_str(&failure.text(false)).to_string());
        failure
    })?;
    Ok(ExitStatus::Success)
}

/// Creates the failure for this internal command when it cannot reach a test, as when a user starts it.
fn connection_failure(error: &std::io::Error) -> Failure {
    Failure::usage(format!("this command is internal to tunebox: {error}"), "a test of a method starts it")
}
