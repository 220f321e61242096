//! What a test came to, for a person or a machine.

use serde_json::json;
use tunebox_foundation::explain::{Exit, Explanation};
use tunebox_training::twin::{Comparison, Difference};

use crate::commands::{Ending, Outcome};
use crate::terminal::Terminal;
use crate::terminal::diagnostic::Failure;
use tunebox_foundation::format::{counted, grouped};

/// What to type, which nobody can do without seeing it.
pub(super) fn debugger(terminal: Terminal, command: &str) {
    match (terminal.json, terminal.quiet) {
        (true, _) => terminal.object(json!({ "event": "waiting", "command": command })),
        (false, true) => terminal.data(command),
        (false, false) => terminal.say("Debug", command),
    }
}

/// The author's own tests say no.
pub(super) fn failed(terminal: Terminal, method: &str) -> Ending {
    terminal.say("Failed", "a test of the author's; component and native twin were not compared");
    if terminal.json {
        terminal.object(json!({ "event": "tested", "method": method, "own": false, "same": null }));
    }
    Ending::Exit(Exit::No)
}

/// There is nothing to compare.
pub(super) fn without_twin(terminal: Terminal, method: &str) -> Ending {
    terminal.say("Passed", "the author's tests; a verifier asks nothing of a host, so there is no twin to compare");
    if terminal.json {
        terminal.object(json!({ "event": "tested", "method": method, "own": true, "same": null }));
    }
    Ending::Done
}

/// What the comparison came to.
pub(super) fn show(terminal: Terminal, comparison: Comparison, next: &str) -> Outcome {
    let Comparison { method, steps, metrics, bits, weights, difference } = comparison;
    if terminal.json {
        terminal.object(json!({
            "event": "tested", "method": method, "own": true, "same": difference.is_none(), "steps": steps,
            "metrics": metrics, "bits": bits, "weights": weights, "difference": difference,
        }));
    }
    if let Some(difference) = difference {
        return Err(differs(&method, difference));
    }
    let (metrics, bits) = (grouped(metrics), grouped(bits));
    terminal.say("Same", format!("{}, {metrics} metrics, {bits} bits of weights and state", counted(steps, "step")));
    terminal.next(next);
    Ok(Ending::Done)
}

fn differs(method: &str, difference: Difference) -> Failure {
    let Difference { moment, what, component, twin } = difference;
    let explanation = Explanation::new("test", format!("`{method}` does not do natively what its component does"))
        .with_location(format!("{what} {moment}"))
        .with_why(format!("the component: {component}; its native twin: {twin}"))
        .with_hint("code that asks what it is compiled for, or reads more than it is given, may do this");
    Failure { explanation: Box::new(explanation), exit: Exit::No }
}
