//! Ranks that are interrupted, killed or stopped: the run ends on all of them, and resumes to the same bytes.

use std::process::{Child, Output};

use rustix::process::Signal;

use super::{GRPO, LORA, Mpi, Workspace, train_words};
use crate::support::processes::{is_worker, processes, send, status, wait_for, wait_until_gone};
use crate::support::transcript::BINARY;
use crate::support::workspace::text;

/// Steps enough that a run is reached before it ends.
const LONG: [&str; 2] = ["--set", "train.steps=24"];

/// The process that the launcher started, or the worker below it.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Parent,
    Worker,
}

/// A run on three ranks of Open MPI.
struct Run<'place> {
    workspace: &'place Workspace,
    name: &'static str,
    launcher: Child,
    /// The processes of the ranks: of each the one that the launcher started, and its worker.
    ranks: [(u32, u32); 3],
}

impl<'place> Run<'place> {
    /// Starts a run and waits until its ranks have workers.
    fn start(workspace: &'place Workspace, name: &'static str, more: &[&str]) -> Self {
        let mut launcher = workspace.train(Some((Mpi::Open, 3)), &train_words(name, more)).spawn().unwrap();
        let ranks = [0, 1, 2].map(|rank| {
            wait_for(&mut launcher, "a rank with a worker", || {
                let parent = processes().find(|process| is_rank(workspace, *process, rank))?;
                let is_below = |process| status(process).is_some_and(|(_, above)| above == parent);
                Some((parent, processes().find(|process| is_below(*process) && is_worker(*process))?))
            })
        });
        Self { workspace, name, launcher, ranks }
    }

    /// Waits until the run has written this many lines of metrics.
    fn wait_for_step(mut self, step: usize) -> Self {
        let steps = || self.workspace.0.steps(self.name);
        wait_for(&mut self.launcher, "a step", || (steps() >= step).then_some(()));
        self
    }

    /// Sends a signal to a process of a rank and waits for the end of the run and of all its processes.
    fn end(self, signal: Signal, part: Part, rank: usize) -> (Output, String) {
        let (parent, worker) = self.ranks[rank];
        send(if part == Part::Parent { parent } else { worker }, signal);
        let output = self.launcher.wait_with_output().unwrap();
        let text = text(&output);
        self.ranks.into_iter().flat_map(|(parent, worker)| [parent, worker]).for_each(wait_until_gone);
        (output, text)
    }
}

/// Whether a process is the one that the launcher started for this rank.
fn is_rank(workspace: &Workspace, process: u32, rank: usize) -> bool {
    let has = |file: &str, wanted: String| {
        let content = std::fs::read(format!("/proc/{process}/{file}")).unwrap_or_default();
        content.split(|byte| *byte == 0).any(|word| word == wanted.as_bytes())
    };
    has("environ", format!("TMPDIR={}", workspace.path("tmp").display()))
        && has("environ", format!("OMPI_COMM_WORLD_RANK={rank}"))
        && has("cmdline", "train".to_owned())
}

/// Resumes a run on this many ranks of Open MPI, or alone, to the bytes of `whole`.
fn resume(workspace: &Workspace, count: usize, (name, more): (&str, &[&str]), whole: &[u8]) {
    let under = (count > 1).then_some((Mpi::Open, count));
    let adapter = workspace.adapter(under, name, &[more, &["--resume"]].concat());
    assert!(adapter == whole, "{name} on {count} ranks: the adapters differ");
}

/// A folder for runs that Open MPI divides, the words of a long run with `extra` ones, and the adapter of that run alone.
fn prepare(extra: &[&'static str]) -> (Workspace, Vec<&'static str>, Vec<u8>) {
    Mpi::Open.require();
    let (workspace, more) = (Workspace::new(), [&LORA[..], &LONG, extra].concat());
    let whole = workspace.adapter(None, "whole", &more);
    (workspace, more, whole)
}

#[test]
#[ignore = "needs Open MPI"]
fn an_interrupted_run_resumes_on_fewer_ranks() {
    let (workspace, more, whole) = prepare(&[]);
    for (name, signal, rank, count) in
        [("int-0", Signal::INT, 0, 2), ("int-1", Signal::INT, 1, 1), ("term-2", Signal::TERM, 2, 3)]
    {
        let (output, text) = Run::start(&workspace, name, &more).wait_for_step(3).end(signal, Part::Parent, rank);
        assert_eq!(output.status.code(), Some(130), "{text}");
        assert!(text.contains("Stopped at step ") && text.contains(&format!(", saved runs/{name}/steps/")), "{text}");
        assert_eq!(workspace.rank_folders(), 0, "{text}");
        resume(&workspace, count, (name, &more), &whole);
    }
    let replay = workspace.command(&[BINARY, "verify", "runs/term-2", "--replay"]).output().unwrap();
    assert!(replay.status.success() && text(&replay).contains("every bit"), "{}", text(&replay));
}

#[test]
#[ignore = "needs Open MPI"]
fn a_killed_worker_of_another_rank_is_named_and_the_run_resumes() {
    Mpi::Open.require();
    let workspace = Workspace::new();
    for (name, method) in [("lora", &LORA[..]), ("grpo", &GRPO)] {
        let more = [method, &LONG].concat();
        let whole = workspace.adapter(None, &format!("whole-{name}"), &more);
        let run = Run::start(&workspace, name, &more).wait_for_step(3);
        let (output, text) = run.end(Signal::KILL, Part::Worker, 1);
        assert!(!output.status.success(), "{text}");
        let killed = format!("failed: the worker of `{name}` was killed (signal 9, SIGKILL) in step ");
        assert!(text.contains("error[ranks]: rank 1 on ") && text.contains(&killed), "{text}");
        assert!(text.contains(&format!("runs/{name}/steps/0000")) && text.contains("`--resume`"), "{text}");
        assert_eq!(workspace.rank_folders(), 0, "{text}");
        resume(&workspace, 1, (name, &more), &whole);
    }
}

#[test]
#[ignore = "needs Open MPI"]
fn a_worker_killed_while_it_writes_a_checkpoint_leaves_a_whole_one() {
    let (workspace, more, whole) = prepare(&[]);
    let is_torn = |name: &'static str| {
        let partial = workspace.path(&format!("runs/{name}/steps/.000004.partial"));
        let mut run = Run::start(&workspace, name, &more);
        let steps = workspace.path(&format!("runs/{name}/steps/000006"));
        wait_for(&mut run.launcher, "a checkpoint", || (partial.exists() || steps.exists()).then_some(()));
        let (output, text) = run.end(Signal::KILL, Part::Worker, 0);
        assert!(!output.status.success() && text.contains("was killed (signal 9, SIGKILL)"), "{text}");
        let is_torn = partial.exists();
        resume(&workspace, 3, (name, &more), &whole);
        is_torn
    };
    let names = ["torn-0", "torn-1", "torn-2", "torn-3", "torn-4", "torn-5", "torn-6", "torn-7", "torn-8", "torn-9"];
    assert!(names.into_iter().any(is_torn), "no kill hit a write");
}

#[test]
#[ignore = "needs Open MPI"]
fn a_killed_rank_ends_the_run_which_resumes() {
    let (workspace, more, whole) = prepare(&[]);
    for (name, rank, count) in [("first", 0, 1), ("second", 1, 2)] {
        let run = Run::start(&workspace, name, &more).wait_for_step(3);
        let (output, text) = run.end(Signal::KILL, Part::Parent, rank);
        assert!(!output.status.success() && text.contains("signal 9"), "{text}");
        workspace.remove_rank_folders();
        resume(&workspace, count, (name, &more), &whole);
    }
}

#[test]
#[ignore = "needs Open MPI"]
fn a_worker_that_hangs_ends_the_run_within_the_limit() {
    let (workspace, more, whole) = prepare(&["--set", "limits.rank-seconds=15"]);
    let (output, text) = Run::start(&workspace, "hung", &more).wait_for_step(3).end(Signal::STOP, Part::Worker, 2);
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("error[ranks]: rank 2 on ") && text.contains(" did not answer within 15 s"), "{text}");
    assert!(text.contains("runs/hung/steps/0000") && text.contains("`--resume`"), "{text}");
    workspace.remove_rank_folders();
    resume(&workspace, 1, ("hung", &more), &whole);
}
