//! The results of `tunebox test`.

use serde_json::json;
use tunebox_foundation::explain::{Exit, Explanation};
use tunebox_training::twin::{Comparison, Difference};

use crate::terminal::{CommandResult, ExitStatus, Failure, Terminal};
use tunebox_foundation::format::{counted, grouped};

/// Shows the debugger command that the user must run for the test to continue. Shows it with `--quiet` too.
pub(super) fn show_debugger_command(terminal: Terminal, command: &str) {
    terminal.event(json!({ "event": "waiting", "command": command }));
    terminal.status("Debug", command);
    if terminal.quiet && !terminal.json {
        terminal.print_line(command);
    }
}

/// Shows the result of the own tests of a method or verifier whose component is not compared with a twin: exit code 1 if
/// a test failed, 0 for a verifier, which has no twin.
pub(super) fn show_own_tests(terminal: Terminal, method: &str, passed: bool) -> ExitStatus {
    terminal.event(json!({ "event": "tested", "method": method, "own": passed, "same": null }));
    if passed {
        let text = "the verifier's own tests; a verifier calls no host functions, so there is no twin to compare";
        terminal.status("Passed", text);
        return ExitStatus::Success;
    }
    terminal.status("Failed", "a test of the method; component and native twin were not compared");
    ExitStatus::Code(Exit::No)
}

/// Shows that component and twin agree and suggests the command `next`, or fails with the first difference.
pub(super) fn show_comparison(terminal: Terminal, comparison: Comparison, next: &str) -> CommandResult {
    let Comparison { method, steps, metrics, bits, weights, difference } = comparison;
    terminal.event(json!({
        "event": "tested", "method": method, "own": true, "same": difference.is_none(), "steps": steps,
        "metrics": metrics, "bits": bits, "weights": weights, "difference": difference,
    }));
    if let Some(difference) = difference {
        return Err(difference_failure(&method, difference));
    }
    let (metrics, bits) = (grouped(metrics), grouped(bits));
    terminal.status("Same", format!("{}, {metrics} metrics, {bits} bits of weights and state", counted(steps, "step")));
    terminal.suggest(next);
    Ok(ExitStatus::Success)
}

/// Creates the failure for a difference between component and twin, with both values: exit code 1.
fn difference_failure(method: &str, difference: Difference) -> Failure {
    let Difference { moment, what, component, twin } = difference;
    let explanation = Explanation::new("test", format!("the component and the native twin of `{method}` differ"))
        .with_location(format!("{what} {moment}"))
        .with_why(format!("component: {component}; native twin: {twin}"))
        .with_hint("look for code that depends on the compilation target or on anything but its inputs");
    Failure::new(explanation, Exit::No)
}
