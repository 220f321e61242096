//! The results of an evaluation as a table and as JSON, shared by `eval` and the report after a sample run.

use std::path::Path;

use serde_json::json;
use tunebox_training::Evaluation;

use crate::terminal::Terminal;

/// Writes the results of an evaluation as an `evaluated` event to stdout. Does nothing without `--json`.
pub(crate) fn emit_evaluation(terminal: Terminal, data: &Path, result: &Evaluation) {
    terminal.event(json!({
        "event": "evaluated", "data": data, "shape": result.shape, "records": result.records,
        "figures": result.figures,
    }));
}

/// Formats the results of an evaluation as lines: a heading, then for each figure its name, and the values of the base
/// model and the adapted one, or of the only model. A value that is absent leaves its column empty.
pub(crate) fn evaluation_table(result: &Evaluation, is_adapted: bool) -> Vec<String> {
    let [first, second] = if is_adapted { ["base", "adapted"] } else { ["model", ""] };
    let heading = format!("{:17}{first:>10}{second:>10}", "");
    let cell = |value: Option<f64>| value.map_or_else(String::new, format_figure);
    let rows = result
        .figures
        .iter()
        .map(|figure| format!("{:17}{:>10}{:>10}", figure.name, cell(figure.base), cell(figure.adapted)));
    std::iter::once(heading).chain(rows).map(|line| line.trim_end().to_owned()).collect()
}

/// Formats a value with four decimals, or without decimals if its magnitude is at least 1000.
pub(crate) fn format_figure(value: f64) -> String {
    if value.abs() >= 1000.0 { format!("{value:.0}") } else { format!("{value:.4}") }
}
