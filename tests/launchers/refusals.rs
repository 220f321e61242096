//! Ranks that do not belong together, and methods that break their limits on every rank.

use serde_json::json;

use super::{LORA, Mpi, Workspace, train_words};
use crate::support::guest;
use crate::support::transcript::BINARY;
use crate::support::workspace::text;

#[test]
#[ignore = "needs Open MPI"]
fn ranks_with_different_runs_are_refused_before_the_first_step() {
    let (mpi, workspace) = (Mpi::Open.require(), Workspace::new());
    write_method(&workspace, "other", "");
    let first = train_words("refused", &LORA);
    let replaced =
        |from: &str, to: &'static str| first.iter().map(|word| if *word == from { to } else { word }).collect();
    let with = |set: &'static str| [&first[..], &["--set", set]].concat();
    let cases: [(Vec<&str>, &str); 5] = [
        (replaced("answers.jsonl", "fewer.jsonl"), "the data file is another"),
        (replaced("lora", "other.wasm"), "the method's component is another"),
        (with("train.rate=0.5"), "`train.rate` was not set, is `0.5`"),
        (with("train.seed=7"), "`train.seed` was `42`, is `7`"),
        (with("train.steps=9"), "`train.steps` was `8`, is `9`; 9 steps instead of 8"),
    ];
    for (second, difference) in cases {
        let words = [mpi.words(), &["-n", "1", BINARY], &first, &[":", "-n", "1", BINARY], &second].concat();
        let output = workspace.command(&words).output().unwrap();
        let text = text(&output);
        let message =
            format!("error[ranks]: rank 1 has another run than rank 0: {difference}\nhint: start all ranks with ");
        assert!(output.status.code() == Some(2) && text.contains(&message), "{difference}: {text}");
        assert!(!workspace.path("runs/refused/metrics.jsonl").exists(), "{difference}: a step was taken");
        assert_eq!(workspace.rank_folders(), 0, "{difference}");
    }
}

#[test]
#[ignore = "needs Open MPI and MPICH"]
fn a_library_of_another_mpi_is_refused() {
    let (mpi, workspace) = (Mpi::Mpich.require(), Workspace::new());
    Mpi::Open.require();
    let words = train_words("refused", &LORA);
    let output = workspace.train(Some((mpi, 2)), &words).env("TUNEBOX_MPI", "libmpi.so.40").output().unwrap();
    let text = text(&output);
    let message =
        "error[ranks]: `libmpi.so.40` (Open MPI) finds 1 of the 2 ranks that MPICH's `mpirun` started\nwhy:  ";
    assert!(!output.status.success() && text.contains(message), "{text}");
    assert!(!workspace.path("runs").exists(), "{text}");
}

#[test]
#[ignore = "needs Open MPI"]
fn a_hostile_method_ends_as_on_one_rank() {
    let (mpi, workspace) = (Mpi::Open.require(), Workspace::new());
    let cases = [
        ("loops", include_str!("../cli/loops.wat"), "used up its time at step 4"),
        ("grows", include_str!("../cli/grows.wat"), "memory"),
        ("traps", "(func $step (param i32) (result i32) (unreachable))", "trap"),
    ];
    for (name, body, limit) in cases {
        write_method(&workspace, name, body);
        let method = format!("{name}.wasm");
        let more = ["--data", "answers.jsonl", "--method", &method, "--set", "limits.step-seconds=1"];
        let end = |under: Option<(Mpi, usize)>, run: &str| {
            let output = workspace.train(under, &train_words(run, &more)).output().unwrap();
            assert_eq!(output.status.code(), Some(3), "{}", text(&output));
            (error_of(&text(&output)), text(&output))
        };
        let (alone, _) = end(None, &format!("{name}-alone"));
        let (ranks, told) = end(Some((mpi, 2)), &format!("{name}-ranks"));
        assert!(ranks.contains(limit) && ranks == alone, "alone: {alone}\n{told}");
        assert_eq!(workspace.rank_folders(), 0, "{name}");
    }
}

/// Writes a method that is not built in, from the body of its module, as `NAME.wasm`.
fn write_method(workspace: &Workspace, name: &str, body: &str) {
    workspace.0.write_method(name, guest::component(body), json!({ "metrics": ["loss"] }));
}

/// The first line of the error in a text.
fn error_of(text: &str) -> String {
    text.lines().find(|line| line.starts_with("error[")).unwrap_or("no error").to_owned()
}
