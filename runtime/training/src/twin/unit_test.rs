//! Executes a unit test of a method's author: plans the run that the test asks for, calls the method in the test's process,
//! and sends its reports back.

use serde_json::{Map, Value, json};
use tunebox_foundation::files;
use tunebox_foundation::printable::printable;
use tunebox_sandbox::StepReport;
use tunebox_sandbox::native::ListeningTest;

use super::request::{TestRequest, impossible};
use super::runner::{Runner, disconnected};
use crate::error::Error;
use crate::metrics::Tally;

/// Serves a unit test until it disconnects: calls `init`, then what the test orders, and reports after each call.
///
/// # Errors
/// A request that cannot be met, and the error that ends the method.
pub fn serve_test(test: ListeningTest) -> Result<(), Error> {
    let ListeningTest { method, wanted } = test;
    let mut notifier = method.notifier().map_err(disconnected)?;
    let folder = files::temporary_folder(&std::env::temp_dir(), "tunebox-bench-")?;
    let request = TestRequest::parse(&wanted)?;
    let state = request.state()?;
    let (mut runner, opening) = Runner::start(request.plan(method, folder.path())?)?;
    if let Some(state) = state {
        runner.session.load_state(&state)?;
    }
    let mut reports = vec![opening];
    loop {
        notifier.report(&report(&mut runner, &reports)).map_err(disconnected)?;
        let (order, between) = runner.session.wait()?;
        let Some(order) = order else { return Ok(()) };
        // Reports between two calls count to the next call.
        reports = vec![between];
        reports.extend(call(&mut runner, &order)?);
    }
}

/// Executes one order of the test (`step`, `finish` or `save-state`); returns a report for each call of the method.
/// Fails on another order.
fn call(runner: &mut Runner, order: &str) -> Result<Vec<StepReport>, Error> {
    match order {
        "step" => runner.update(),
        "finish" => Ok(vec![runner.finish()?]),
        // The test reads the state in its own process; the call only checks it.
        "save-state" => {
            runner.session.save_state()?;
            Ok(Vec::new())
        }
        other => {
            let what = format!("there is no order `{}`", printable(other, 64));
            Err(impossible(what, "it is `step`, `finish` or `save-state`"))
        }
    }
}

/// The step, combined metrics, log, gradient norm and learning rate after the calls of `reports`, as JSON for the test.
fn report(runner: &mut Runner, reports: &[StepReport]) -> String {
    let mut tally = Tally::default();
    reports.iter().for_each(|report| tally.add(&report.metrics));
    let metrics: Map<String, Value> =
        tally.numbers(runner.metrics()).into_iter().map(|(name, value)| (name, json!(value))).collect();
    let log: Vec<&String> = reports.iter().flat_map(|report| &report.log).collect();
    let (rate, norm) = runner.rate_and_norm();
    json!({ "step": runner.step, "metrics": metrics, "log": log, "gradient_norm": norm, "rate": rate }).to_string()
}
