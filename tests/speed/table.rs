//! What is said about speed: the page `tests/peers/README.md` with a section for each machine, and the README's parts.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

use super::Machine;
use super::formats;
use super::results::{COMPARED, Comparison, OURS, Reached, Results, Row};

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

/// The page of all machines.
pub(crate) fn page(machines: &[Machine]) -> String {
    let mut text = String::from(
        "# Speed and memory beside other trainers\n\nGenerated from `results/`, which `measure.py` and `compare_compute.py` \
         fill; `BLESS=1 cargo test` rewrites it. Every side is a process of its own, in turns with the others; figures are \
         medians of as many processes as stand there. A peer that was much slower than the fastest one in the first process \
         was not measured again. The last column says how many times as fast tunebox is, and what share of the peer's memory \
         it holds.\n",
    );
    for machine in machines {
        let _ = write!(text, "\n## {}\n\n{}", machine.name(), section(machine));
    }
    text
}

/// What a machine measured.
pub(crate) fn section(machine: &Machine) -> String {
    let Machine { kind, results } = machine;
    let compared = results.comparisons();
    let mut text = String::new();
    if !compared.is_empty() {
        let _ = write!(text, "![Speed and memory of tunebox beside its fastest peers](results/{kind}.svg)\n\n");
        text += &table(&compared);
    }
    let growth = growth(&results.rows("growth"));
    if !growth.is_empty() {
        let _ = write!(
            text,
            "\n![Time and memory of a step over the length of a row](results/{kind}-growth.svg)\n\n{growth}"
        );
    }
    let formats = formats::table(&results.rows("formats"));
    if !formats.is_empty() {
        let _ = write!(text, "\n{formats}");
    }
    for sentence in
        [vocabulary(results), utilization(results), overhead(results), origin(results)].into_iter().flatten()
    {
        let _ = write!(text, "\n{sentence}\n");
    }
    text
}

fn table(compared: &[Vec<Comparison>]) -> String {
    let mut text =
        String::from("| work | side | speed | memory | processes | tunebox |\n|---|---|---:|---:|---:|---:|\n");
    for row in compared {
        let Comparison { work, setting, model, unit, ours, .. } = &row[0];
        let reached = |reached: &Reached| {
            let Reached { rate, peak_bytes, processes } = reached;
            format!("{} {unit} | {} GiB | {processes}", figure(*rate), gibibytes(*peak_bytes))
        };
        let _ = writeln!(text, "| {work}, {setting}, {model} | {OURS} | {} | |", reached(ours));
        for one in row {
            let ratios = format!("{:.2} ×, {:.2} ×", one.speed(), one.memory());
            let _ = writeln!(text, "| | {} | {} | {ratios} |", one.peer, reached(&one.theirs));
        }
    }
    text
}

/// The README's part: for each machine, how each work compares with the fastest peer.
pub(crate) fn summary(machines: &[Machine]) -> String {
    let mut text = String::new();
    if let Some(machine) = least_ahead(machines) {
        let _ = write!(
            text,
            "![Speed and memory of tunebox beside its fastest peers](tests/peers/results/{}.svg)\n\n",
            machine.kind
        );
    }
    let columns = machines.iter().map(|machine| (machine, machine.results.fastest()));
    let (machines, columns): (Vec<&Machine>, Vec<Vec<Comparison>>) =
        columns.filter(|(_, column)| !column.is_empty()).unzip();
    let key = |one: &Comparison| (one.work, one.setting.clone(), one.model.clone());
    let mut rows: Vec<_> = columns.iter().flatten().map(key).collect();
    rows.sort_by_key(|(work, ..)| COMPARED.iter().position(|(_, known)| known == work));
    let mut seen = BTreeSet::new();
    rows.retain(|row| seen.insert(row.clone()));
    text += "| work | model |";
    machines.iter().for_each(|machine| text += &format!(" {} |", machine.name()));
    let _ = write!(text, "\n|---|---|{}\n", "---:|".repeat(machines.len()));
    for row in rows {
        let (work, setting, model) = &row;
        let _ = write!(text, "| {work}, {setting} | {model} |");
        for column in &columns {
            let said = column
                .iter()
                .find(|one| key(one) == row)
                .map_or("–".into(), |one| format!("{:.2} × {}, memory {:.2} ×", one.speed(), one.peer, one.memory()));
            let _ = write!(text, " {said} |");
        }
        text.push('\n');
    }
    text
}

/// The sentence of the README's head.
pub(crate) fn head(machines: &[Machine]) -> String {
    let Some(machine) = least_ahead(machines) else { return String::new() };
    let steps = machine.dense();
    let of = |fold: fn(f64, f64) -> f64, figure: fn(&Comparison) -> f64| steps.iter().map(figure).reduce(fold).unwrap();
    format!(
        "On the measured CPU on which it is least ahead, LoRA steps are {:.2} to {:.2} times as fast as with the fastest of \
         PyTorch and PEFT in any number\nformat, in at most {:.2} of its memory ([figures](#speed)).\n",
        of(f64::min, Comparison::speed),
        of(f64::max, Comparison::speed),
        of(f64::max, Comparison::memory)
    )
}

/// The machine on which a LoRA step is ahead of its fastest peer by the least.
fn least_ahead(machines: &[Machine]) -> Option<&Machine> {
    let least = |machine: &Machine| machine.dense().iter().map(Comparison::speed).reduce(f64::min);
    let known = machines.iter().filter_map(|machine| Some((machine, least(machine)?)));
    known.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(machine, _)| machine)
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

fn utilization(results: &Results) -> Option<String> {
    let rows = results.rows("dense");
    let row = rows.first()?;
    let share = row.middle(OURS, "utilization")?;
    let products = row.middle(OURS, "product_gflops")?;
    Some(format!(
        "The {} step of {} makes use of {:.0} % of the {products:.0} GFLOP/s that plain products of {} reach on this machine, \
         counting no arithmetic twice.",
        row.word("setting"),
        row.word("model"),
        100.0 * share,
        row.side_word(OURS, "product_type")?
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
    let dates = results.dates();
    let versions = results.notes(|question| {
        let named = ["tunebox", "torch", "transformers", "peft", "trl"];
        named.map(|name| format!("{name} {}", text(&question["versions"][name]))).join(", ")
    });
    let any = !machines.is_empty();
    any.then(|| {
        format!(
            "Measured on {}, {}, with {}{}. Medians of interleaved processes.",
            machines.join(" and on "),
            dates.join(" and "),
            versions.join("; "),
            blas(results).map_or(String::new(), |name| format!("; torch multiplies by {name}"))
        )
    })
}

/// The libraries by which PyTorch multiplies.
fn blas(results: &Results) -> Option<String> {
    let rows = COMPARED.iter().flat_map(|(question, _)| results.rows(question));
    rows.into_iter().find_map(|row| {
        let found = row.sides().into_iter().find_map(|side| row.side_word(side, "blas"))?;
        Some(found.to_owned())
    })
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("unknown").to_owned()
}
