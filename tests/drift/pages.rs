//! Pages that are made of something else: the commands, the README, the attacks, a picture.

use std::fmt::Write as _;
use std::process::Command;

use serde_json::Value;
use tunebox_sandbox::confinement::{CONFINED, Ring};

use super::folders;
use crate::support::golden::{assert_file, assert_section, root};
use crate::support::{method_table, picture};

fn help(words: &[&str]) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_tunebox")).args(words).arg("--help").env("COLUMNS", "100").output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_page_of_the_commands_is_their_help() {
    let overview = help(&[]);
    let commands =
        overview.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1).take_while(|line| !line.is_empty());
    // A line that goes on from the one above is indented further.
    let named = commands.filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')));
    let names: Vec<String> =
        named.filter_map(|line| line.split(' ').next().map(str::to_owned)).filter(|n| n != "help").collect();
    assert!(names.len() >= 10, "{names:?}");
    let mut page = format!(
        "# The commands\n\nGenerated from `--help`; `BLESS=1 cargo test` rewrites it.\n\n```text\n{overview}\n```\n"
    );
    for name in names {
        let text = help(&[&name]);
        if name == "run-file" {
            let _ = write!(
                page,
                "\n## {name}\n\nPrints the [reference of run files](run-file.md); `--schema` prints their JSON schema.\n"
            );
            let about = "What `tunebox help run-file` prints; `BLESS=1 cargo test` rewrites it.";
            assert_file("runtime/cli/run-file.md", &format!("# The run file\n\n{about}\n\n```text\n{text}\n```\n"));
        } else {
            let _ = write!(page, "\n## {name}\n\n```text\n{text}\n```\n");
        }
    }
    assert_file("runtime/cli/README.md", &page);
}

#[test]
fn the_readme_shows_the_method_as_it_is() {
    let source = std::fs::read_to_string(root().join("methods/lora/src/lib.rs")).unwrap();
    assert_section("README.md", "method", &format!("```rust\n{}\n```\n", source.trim_end()));
}

#[test]
fn the_readme_lists_the_methods_by_what_their_components_say() {
    assert_section("README.md", "methods", &format!("{}\n", method_table::table(&root())));
}

/// The table of speed on a GPU from figures in the form that `tests/gpu/run.py --out` writes: each case beside its fastest
/// peer.
fn gpu_table(results: &Value) -> String {
    let mut table = String::from(
        "| model | rows | tunebox, tokens/s | peer, tokens/s | speed | memory |\n|---|---|---:|---:|---:|---:|\n",
    );
    let rows = results["rows"].as_array().unwrap();
    let number = |row: &Value, name: &str| row[name].as_f64().unwrap();
    for own in rows.iter().filter(|row| row["case"].as_str().is_some_and(|case| case.ends_with(", tunebox"))) {
        let (model, case) = (own["part"].as_str().unwrap(), own["case"].as_str().unwrap());
        let shape = case.trim_end_matches("tunebox");
        let of_peers = rows.iter().filter(|row| row["part"] == model && row["gpu_peak_bytes"].is_number());
        let peers = of_peers.filter(|row| row["case"].as_str().unwrap().starts_with(shape));
        let speed = |row: &&Value| number(row, "tokens_per_second");
        let peer = peers.max_by(|a, b| speed(a).total_cmp(&speed(b))).unwrap();
        let (ours, theirs) = (speed(&own), speed(&peer));
        let memory = number(own, "peak_bytes") / number(peer, "gpu_peak_bytes");
        let (name, rows) = (model.trim_start_matches("speed "), shape.trim_end_matches(", "));
        let (ratio, peer) = (ours / theirs, peer["case"].as_str().unwrap().trim_start_matches(shape));
        writeln!(table, "| `{name}` | {rows} | {ours:.0} | {theirs:.0}, {peer} | {ratio:.2} × | {memory:.2} × |")
            .unwrap();
    }
    table
}

#[test]
fn the_readme_shows_what_was_measured_on_a_gpu() {
    let results = std::fs::read_to_string(root().join("tests/gpu/results/nvidia-h200.json")).unwrap();
    assert_section("README.md", "gpu", &gpu_table(&serde_json::from_str(&results).unwrap()));
}

/// The table of the costs of runs, from what `tests/costs/measure.py` wrote: smaller models first.
fn cost_table(results: &Value) -> String {
    let mut rows = results["rows"].as_array().unwrap().clone();
    rows.sort_by_key(|row| row["parameters"].as_u64());
    let seconds = |row: &Value| row["seconds"].as_f64().unwrap();
    let mebibytes = |row: &Value, name: &str| row[name].as_f64().unwrap() / f64::from(1 << 20);
    let mut table = format!("On {}:\n\n", results["machine"].as_str().unwrap());
    table += "| model | method | steps | time by `check --fit` | by the run itself | taken | energy, assumed | memory, estimated and peak |\n";
    table += "|---|---|---:|---:|---:|---:|---:|---:|\n";
    for row in &rows {
        let taken = seconds(&row["cost"]);
        let beside = |estimate: f64| format!("{estimate:.1} s, {:+.0} %", 100.0 * (estimate / taken - 1.0));
        let (early, late) = (beside(seconds(&row["estimate"])), beside(seconds(&row["in-run"]["cost"])));
        let hours = row["cost"]["energy"]["joules"].as_f64().unwrap() / 3600.0;
        let (memory, peak) = (mebibytes(row, "memory"), mebibytes(row, "peak"));
        let (model, method) = (row["model"].as_str().unwrap(), row["method"].as_str().unwrap());
        writeln!(
            table,
            "| {model} | `{method}` | {} | {early} | {late} | {taken:.1} s | {hours:.2} Wh | {memory:.0} and {peak:.0} MiB |",
            row["steps"]
        )
        .unwrap();
    }
    table
}

#[test]
fn the_readme_shows_what_runs_cost_beside_what_was_estimated() {
    let results = std::fs::read_to_string(root().join("tests/costs/results.json")).unwrap();
    assert_section("README.md", "costs", &cost_table(&serde_json::from_str(&results).unwrap()));
}

/// The folders of `attacks/`, by name.
fn attacks() -> Vec<String> {
    folders("tests/attacks")
}

#[test]
fn every_row_of_the_wall_names_attacks_that_are_there() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let (_, table) = readme.split_once("<!-- wall:begin -->\n").unwrap();
    let (table, _) = table.split_once("<!-- wall:end -->").unwrap();
    let (attacks, mut rows) = (attacks(), 0);
    for row in table.lines().skip(2) {
        let tried = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        for name in tried.split(", ") {
            let name = name.trim_matches('`');
            assert!(attacks.iter().any(|attack| attack == name), "`{name}` is no folder of `tests/attacks`: {row}");
        }
        rows += 1;
    }
    assert!(rows >= 12, "the table has {rows} rows");
}

#[test]
fn the_page_of_the_attacks_is_what_their_folders_say() {
    let mut page = String::from(
        "# The attacks\n\nEach folder holds a hostile method and the end that it must come to; `tests/wall.rs` plays them all.\n\
         Generated from the folders; `BLESS=1 cargo test` rewrites it.\n\n| attack | what it does | its end |\n|---|---|---|\n",
    );
    for name in attacks() {
        let read = |file: &str| std::fs::read_to_string(root().join("tests/attacks").join(&name).join(file)).unwrap();
        let component = read("component.wat");
        let does = component.lines().next().and_then(|line| line.strip_prefix(";; ")).unwrap_or_default().to_owned();
        assert!(!does.is_empty(), "`{name}` does not say what it does in its first line");
        let expected = read("expected.txt");
        let end = expected.lines().next().unwrap_or_default().trim_start_matches("error[sandbox]: ");
        let _ = writeln!(page, "| `{name}` | {does} | {} |", end.replace('|', "\\|"));
    }
    assert_file("tests/attacks/README.md", &page);
}

#[test]
fn the_picture_of_a_run_is_of_the_first_walk() {
    let page = std::fs::read_to_string(root().join("examples/1-first-adapter/README.md")).unwrap();
    assert_file("examples/1-first-adapter/training.svg", &picture::of_first_block(&page));
}

#[test]
fn ci_calls_the_test_command_of_the_readme() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let script = std::fs::read_to_string(root().join(".ci/run")).unwrap();
    let command =
        readme.lines().filter_map(|line| line.strip_prefix("$ ")).find(|line| line.contains("cargo test")).unwrap();
    assert_eq!(script.lines().last().unwrap().replace(" --locked", ""), command);
}

/// The paths that a page links to, and those in backticks that begin with a folder of the repository or a crate.
fn named_paths(page: &str, crates: &[String]) -> Vec<String> {
    let text = std::fs::read_to_string(root().join(page)).unwrap();
    let spans = text.split('`').skip(1).step_by(2).map(str::to_owned);
    let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link.to_owned());
    let is_path = |text: &String| {
        text.contains('/')
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c))
            && !text.starts_with('/')
    };
    let first = |path: &String| path.trim_start_matches("../").split('/').next().unwrap().to_owned();
    let known = ["wit", "runtime", "sdk", "methods", "tests", "examples", ".ci"].map(str::to_owned);
    let is_known = |path: &String| known.contains(&first(path)) || crates.contains(&first(path));
    spans.filter(is_known).chain(links).filter(is_path).collect()
}

#[test]
fn every_path_that_a_page_names_exists() {
    let crates = folders("runtime");
    for page in ["README.md", "CONTRIBUTING.md", "SECURITY.md", "runtime/README.md", "examples/README.md"] {
        let folder = root().join(page).parent().unwrap().to_owned();
        let paths = named_paths(page, &crates);
        assert!(paths.len() >= 3, "{page}: {paths:?}");
        for path in paths {
            let in_crate =
                path.split_once('/').map(|(name, rest)| root().join("runtime").join(name).join("src").join(rest));
            let places = [folder.join(&path), root().join(&path), root().join("runtime").join(&path)];
            let exists = places.into_iter().chain(in_crate).any(|place| place.exists());
            assert!(exists, "{page} names `{path}`, which does not exist");
        }
    }
}

#[test]
fn the_table_of_rings_has_those_of_doctor_and_names_the_processes_that_they_surround() {
    let page = std::fs::read_to_string(root().join("SECURITY.md")).unwrap();
    let (_, table) = page.split_once("## The rings around a method").unwrap();
    let (before, table) = table.split_once("\n| ring |").unwrap();
    for ring in Ring::list() {
        assert!(table.contains(&format!("\n| {} (", ring.name)), "no row for `{}`", ring.name);
    }
    let text = before.split_whitespace().collect::<Vec<_>>().join(" ");
    for process in CONFINED {
        assert!(text.contains(process), "`{process}` is not named before the table");
    }
}
