//! The table of runs of `tunebox list`, at most 80 columns wide.

use std::path::Path;
use std::time::SystemTime;

use serde_json::json;
use tunebox_training::configuration::ENDLESS;
use tunebox_training::{BestScore, Listed};

use crate::terminal::{Terminal, cut, escape};
use tunebox_foundation::format::{bytes, group_digits, number};

/// The most columns of a line.
const WIDTH: usize = 80;

/// The heads of the table.
const HEADS: [&str; 8] = ["name", "method", "model", "steps", "loss", "best", "date", "size"];

/// The columns that may be cut to fit, in this order, and the characters that each keeps at least. The others are
/// numbers.
const CUT: [(usize, usize); 3] = [(2, 8), (0, 12), (1, 6)];

/// The first column with numbers, which are aligned to the right.
const FIRST_NUMBER: usize = 3;

/// Prints a table of runs, or one object for each run with `--json`. Prints nothing without runs. Columns: `steps` are
/// the finished steps of a finished run, else the planned steps; `loss` is the loss of the last step; `best` is the
/// loss of the best validation, or the share of completions that passed. An unfinished run has a second line with its
/// state and last checkpoint.
pub(super) fn print_runs(terminal: Terminal, runs: &[Listed]) {
    for run in runs {
        let mut object = json!(run);
        object["event"] = "run".into();
        object["steps"] = known_steps(run).into();
        object["date"] = format_date(run).into();
        terminal.event(object);
    }
    if terminal.json || runs.is_empty() {
        return;
    }
    terminal.print_line("Runs");
    let rows: Vec<[String; 8]> = std::iter::once(HEADS.map(str::to_owned)).chain(runs.iter().map(cells)).collect();
    let states = std::iter::once(None).chain(runs.iter().map(|run| (!run.finished).then(|| format_state(run))));
    for (line, state) in format_rows(&rows).into_iter().zip(states) {
        terminal.print_line(line);
        state.into_iter().for_each(|state| terminal.print_line(format!("    {state}")));
    }
}

/// Returns the cells of a run in the order of [`HEADS`], with characters that act on a terminal escaped. A loss or best
/// score that is unknown is `–`.
fn cells(run: &Listed) -> [String; 8] {
    let method = run.method.split(' ').next().unwrap_or_default();
    let model =
        Path::new(&run.model).file_name().map_or_else(|| run.model.clone(), |name| name.to_string_lossy().into());
    let steps = known_steps(run).map_or_else(|| "endless".to_owned(), group_digits);
    let loss = run.loss.map_or_else(|| "–".to_owned(), |loss| number(loss, 3, 8));
    let best = match run.best {
        None => "–".to_owned(),
        Some(BestScore::Loss(loss)) => number(loss, 3, 8),
        Some(BestScore::PassRate(share)) => format!("{:.0} %", 100.0 * share),
    };
    [run.name.clone(), method.to_owned(), model, steps, loss, best, format_date(run), bytes(run.bytes)]
        .map(|cell| escape(&cell).replace(['\n', '\t'], " "))
}

/// Formats the rows with columns of equal width, two characters apart. Cuts long names, of models first, as far as they
/// must be for lines of 80 columns.
fn format_rows(rows: &[[String; 8]]) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let mut widths: [usize; 8] = std::array::from_fn(width);
    for (column, least) in CUT {
        let excess = (widths.iter().sum::<usize>() + 2 * widths.len()).saturating_sub(WIDTH);
        widths[column] -= excess.min(widths[column].saturating_sub(least));
    }
    let format_row = |row: &[String; 8]| {
        let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
            let cell = cut(cell, width);
            if column < FIRST_NUMBER { format!("  {cell:width$}") } else { format!("  {cell:>width$}") }
        });
        cells.collect::<String>().trim_end().to_owned()
    };
    rows.iter().map(format_row).collect()
}

/// The day on which a run finished, or began if it has not finished, in UTC: `2026-01-31`. `–` for an unknown time and
/// for one that no calendar holds.
fn format_date(run: &Listed) -> String {
    let known = Some(run.changed).filter(|time| *time != SystemTime::UNIX_EPOCH);
    let moment = known.and_then(|time| jiff::Timestamp::try_from(time).ok());
    moment.map_or_else(|| "–".to_owned(), |moment| moment.to_zoned(jiff::tz::TimeZone::UTC).date().to_string())
}

/// Says whether an unfinished run is running or stopped, and the step of its last checkpoint.
fn format_state(run: &Listed) -> String {
    let now = if run.running { "running" } else { "stopped" };
    match run.checkpoint {
        Some(step) => format!("{now}, saved at step {}", group_digits(step)),
        None => format!("{now}, nothing saved"),
    }
}

/// Returns the steps of a run; `None` if it has not finished and is endless.
fn known_steps(run: &Listed) -> Option<u64> {
    Some(run.steps).filter(|steps| *steps != u64::from(ENDLESS))
}

#[cfg(test)]
mod tests {
    use super::super::tests::listed;
    use super::*;

    #[test]
    fn a_running_run_is_not_called_stopped() {
        let run = |running, checkpoint| {
            format_state(&Listed { running, checkpoint, ..listed("calm-1", Path::new("runs"), false, 0) })
        };
        assert_eq!(run(true, Some(1200)), "running, saved at step 1,200");
        assert_eq!(run(false, None), "stopped, nothing saved");
    }

    #[test]
    fn an_endless_run_has_no_number_of_steps() {
        let run = |steps| Listed { steps, ..listed("calm-1", Path::new("runs"), false, 0) };
        assert_eq!((known_steps(&run(7)), known_steps(&run(u64::from(ENDLESS)))), (Some(7), None));
    }

    #[test]
    fn a_line_has_at_most_80_columns_and_cuts_names_only() {
        let run = Listed {
            name: "a-long-name-of-a-run-that-somebody-typed-in-full".into(),
            method: "preference-optimization 0.1.0".into(),
            model: "models/Qwen2.5-Coder-32B-Instruct-with-more".into(),
            steps: 9_999_999,
            loss: Some(12_345.678_9),
            best: Some(BestScore::Loss(0.123_456)),
            bytes: 987 << 20,
            ..listed("", Path::new("runs"), true, 1_700_000_000)
        };
        let rows = [HEADS.map(str::to_owned), cells(&run)];
        let lines = format_rows(&rows);
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{lines:#?}");
        for number in ["9,999,999", "1.23e4", "0.123", "2023-11-14", "987 MiB"] {
            assert!(lines[1].contains(number), "{number}: {lines:#?}");
        }
        assert!(lines[1].contains("a-long-name") && lines[1].contains("Qwen2.5…"), "{lines:#?}");
        let short = listed("calm-1", Path::new("runs"), true, 0);
        let line = &format_rows(&[cells(&short)])[0];
        assert_eq!(
            line.split_whitespace().collect::<Vec<_>>(),
            ["calm-1", "calm", "tiny", "3", "–", "–", "–", "0", "B"]
        );
    }
}
