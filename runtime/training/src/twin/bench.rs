//! A test of a method's author at work: it says what it wants, the method in its process is called, and what it reported is
//! told.

use serde_json::{Map, Value, json};
use tunebox_sandbox::StepReport;
use tunebox_sandbox::native::ListeningTest;

use super::fault::TwinError;
use super::side::Side;
use super::wanted::Wanted;
use crate::error::Error;
use crate::metrics::Tally;
use tunebox_foundation::files;

/// Does what a test wants until it is gone: `init` at once, then what it asks for, each told as it is done.
///
/// # Errors
/// What is wrong with what it wants, and what ends the method.
pub fn drive(test: ListeningTest) -> Result<(), Error> {
    let ListeningTest { method, wanted } = test;
    let mut notifier = method.notifier().map_err(TwinError::broken)?;
    let place = files::temporary_folder(&std::env::temp_dir(), "tunebox-bench-")?;
    let wanted = Wanted::read(&wanted)?;
    let state = wanted.state()?;
    let (mut side, opening) = Side::start(wanted.plan(method, place.path())?)?;
    if let Some(state) = state {
        side.load_state(&state)?;
    }
    let mut reports = vec![opening];
    loop {
        notifier.report(&report(&mut side, &reports)).map_err(TwinError::broken)?;
        let (order, asked) = side.wait()?;
        let Some(order) = order else { return Ok(()) };
        // What a test reports between two calls belongs to the coming one.
        reports = vec![asked];
        reports.extend(carry_out(&mut side, &order)?);
    }
}

fn carry_out(side: &mut Side, order: &str) -> Result<Vec<StepReport>, Error> {
    match order {
        "step" => side.update(),
        "finish" => Ok(vec![side.close()?]),
        // The method has its state itself; what it gave here only had to be asked for and to fit.
        "save-state" => side.save_state().map(|_| Vec::new()),
        other => {
            let what = format!("there is no order `{}`", tunebox_foundation::printable::printable(other, 64));
            Err(TwinError::wanted(what, "it is `step`, `finish` or `save-state`").into())
        }
    }
}

/// How it went, as the test reads it.
fn report(side: &mut Side, reports: &[StepReport]) -> String {
    let mut tally = Tally::default();
    reports.iter().for_each(|report| tally.add(&report.metrics));
    let metrics: Map<String, Value> =
        tally.numbers(side.metrics()).into_iter().map(|(name, value)| (name, json!(value))).collect();
    let log: Vec<&String> = reports.iter().flat_map(|report| &report.log).collect();
    let (rate, norm) = side.pace();
    let step = side.position();
    json!({ "step": step, "metrics": metrics, "log": log, "gradient_norm": norm, "rate": rate }).to_string()
}
