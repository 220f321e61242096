//! The README's part on speed: the table, what stands under it, and where the figures come from.

use std::fmt::Write as _;

use serde_json::Value;

use super::results::{Comparison, OURS, Results, Row};

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

/// Three significant digits or so.
pub(crate) fn figure(value: f64) -> String {
    match value {
        value if value >= 99.95 => format!("{value:.0}"),
        value if value >= 9.995 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// Memory in GiB.
pub(crate) fn gibibytes(bytes: f64) -> String {
    format!("{:.1}", bytes / GIB)
}

/// The whole part.
pub(crate) fn part(results: &Results) -> String {
    let compared = results.comparisons();
    let mut text = String::new();
    if compared.is_empty() {
        text += "No figures yet: `tests/peers/results.json` holds no answer.\n";
    } else {
        text += "![Speed and memory of tunebox beside its fastest peers](tests/peers/speed.svg)\n\n";
        text += &table(&compared);
    }
    let growth = growth(&results.rows("growth"));
    if !growth.is_empty() {
        let _ =
            write!(text, "\n![Time and memory of a step over the length of a row](tests/peers/growth.svg)\n\n{growth}");
    }
    for sentence in
        [vocabulary(results), utilisation(results), overhead(results), origin(results)].into_iter().flatten()
    {
        let _ = write!(text, "\n{sentence}\n");
    }
    text
}

fn table(compared: &[Comparison]) -> String {
    let mut text =
        String::from("| work | model | tunebox | beside | speed | memory |\n|---|---|---:|---:|---:|---:|\n");
    for one in compared {
        let Comparison { work, setting, model, unit, peer, side, ours, theirs } = one;
        let format = side.trim_start_matches(OURS);
        let _ = writeln!(
            text,
            "| {work}, {setting} | {model} | {} {unit}{format}, {} GiB | {peer}: {}, {} GiB | {:.2} × | {:.2} × |",
            figure(ours.rate),
            gibibytes(ours.peak_bytes),
            figure(theirs.rate),
            gibibytes(theirs.peak_bytes),
            one.speed(),
            one.memory()
        );
    }
    text
}

/// Seconds and memory of a step over the length of a row, of each side; `–` where it did not fit into the machine.
fn growth(rows: &[Row<'_>]) -> String {
    let lengths: Vec<&Row<'_>> = rows.iter().filter(|row| row.word("setting").starts_with("1 × ")).collect();
    if lengths.is_empty() {
        return String::new();
    }
    let mut text = String::from("| one row of |");
    for row in &lengths {
        let _ = write!(text, " {} |", row.word("setting").trim_start_matches("1 × "));
    }
    let _ = write!(text, "\n|---|{}\n", "---:|".repeat(lengths.len()));
    for side in lengths[0].sides() {
        let _ = write!(text, "| {side} |");
        for row in &lengths {
            let figures = row.middle(side, "step_seconds").zip(row.middle(side, "peak_bytes"));
            let said = figures.map_or("–".into(), |(s, m)| format!("{} s, {} GiB", figure(s), gibibytes(m)));
            let _ = write!(text, " {said} |");
        }
        text.push('\n');
    }
    text
}

/// Memory beside the weights for each size of the vocabulary.
fn vocabulary(results: &Results) -> Option<String> {
    let rows = results.rows("vocabulary");
    let first = rows.first()?;
    let list = |of: &dyn Fn(&Row<'_>) -> Option<String>| -> Option<String> {
        Some(rows.iter().map(of).collect::<Option<Vec<_>>>()?.join(", "))
    };
    let sides: Option<Vec<String>> = first
        .sides()
        .into_iter()
        .map(|side| {
            let beside = |row: &Row<'_>| Some(format!("{:.2}", row.middle(side, "beside_weights_bytes")? / GIB));
            Some(format!("{side} {} GiB", list(&beside)?))
        })
        .collect();
    Some(format!(
        "What a 4 × 256 step of a random model of {} takes beside its weights, with a vocabulary of {}: {}.",
        first.word("model"),
        list(&|row| Some(row.word("setting")))?,
        sides?.join("; ")
    ))
}

fn utilisation(results: &Results) -> Option<String> {
    let rows = results.rows("dense");
    let row = rows.first()?;
    let share = row.middle(OURS, "utilisation")?;
    let products = row.middle(OURS, "product_gflops")?;
    Some(format!(
        "The {} step of {} makes use of {:.0} % of the {products:.0} GFLOP/s that plain f32 products reach on this machine, \
         counting no arithmetic twice.",
        row.word("setting"),
        row.word("model"),
        100.0 * share
    ))
}

fn overhead(results: &Results) -> Option<String> {
    let rows = results.rows("overhead");
    let shares: Vec<String> = rows
        .iter()
        .filter_map(|row| Some(format!("{:.2} % on {}", 100.0 * row.middle(OURS, "rate")?, row.word("model"))))
        .collect();
    let last = rows.first()?;
    let milliseconds = |key: &str| last.middle(OURS, key).map(|seconds| 1e3 * seconds);
    Some(format!(
        "Of a `dpo` step, {} is spent inside the sandbox. A method starts in {:.0} ms when it is compiled for the first time, \
         in {:.1} ms from then on.",
        shares.join(" and "),
        milliseconds("compile_seconds")? + milliseconds("instantiate_seconds")?,
        milliseconds("cached_seconds")? + milliseconds("instantiate_seconds")?
    ))
}

/// Which machine, which versions, and when.
fn origin(results: &Results) -> Option<String> {
    let machines = results.notes(|question| {
        let machine = &question["machine"];
        let memory = machine["memory_bytes"].as_f64().unwrap_or(f64::NAN);
        let [processor, system] = ["processor", "system"].map(|key| text(&machine[key]));
        format!("{processor}; {} cores, {:.0} GiB, {system}", machine["cores"], memory / GIB)
    });
    let mut dates = results.notes(|question| text(&question["machine"]["date"]));
    dates.sort();
    let versions = results.notes(|question| {
        let named = ["tunebox", "torch", "transformers", "peft", "trl"];
        named.map(|name| format!("{name} {}", text(&question["versions"][name]))).join(", ")
    });
    let any = !machines.is_empty();
    any.then(|| {
        format!(
            "Measured on {}, {}, with {}. Medians of interleaved processes.",
            machines.join(" and on "),
            dates.join(" and "),
            versions.join("; ")
        )
    })
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("unknown").to_owned()
}
