//! Claims about runs on several ranks under real launchers: the number of ranks changes no bit, a fault ends the run on
//! all ranks and leaves a checkpoint from which it resumes exactly, and ranks that do not belong together are refused.
#![cfg(target_os = "linux")]

mod faults;
mod refusals;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::support::absent::absent;
use crate::support::golden::root;
use crate::support::transcript::BINARY;
use crate::support::workspace::text;

/// The method and the settings of a run that trains on answers.
const LORA: [&str; 6] = ["--data", "answers.jsonl", "--method", "lora", "--set", "data.max-length=96"];

/// The method and the settings of a run that generates.
const GRPO: [&str; 10] = [
    "--data",
    "sums.jsonl",
    "--method",
    "grpo",
    "--set",
    "data.max-length=32",
    "--set",
    "verifier.0.use=number",
    "--set",
    "method.completions=4",
];

/// How long a launcher may take, in seconds, on a machine that has other things to do as well.
const PATIENCE: &str = "300";

/// An implementation of MPI.
#[derive(Clone, Copy)]
enum Mpi {
    Open,
    Mpich,
}

impl Mpi {
    /// Fails the test as skipped if this machine lacks this MPI.
    fn require(self) -> Self {
        let (name, program) = match self {
            Self::Open => ("openmpi", "mpirun.openmpi"),
            Self::Mpich => ("mpich", "mpirun.mpich"),
        };
        if let Err(error) = Command::new(program).arg("--version").output() {
            absent(name, &format!("`{program}`: {error}"));
        }
        self
    }

    /// The words that start ranks.
    fn words(self) -> &'static [&'static str] {
        match self {
            Self::Open => &["mpirun.openmpi", "--oversubscribe"],
            Self::Mpich => &["mpirun.mpich"],
        }
    }
}

/// A folder with a tiny model and data for runs of which each step has several parts that ranks can divide.
struct Workspace(crate::support::workspace::Workspace);

impl Workspace {
    fn new() -> Self {
        let place = crate::support::workspace::Workspace::with_sample(64);
        place.copy_records("lora.jsonl", "fewer.jsonl", 63);
        place.copy_records("grpo.jsonl", "sums.jsonl", 64);
        std::fs::create_dir(place.path("tmp")).unwrap();
        Self(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }

    /// A command in this folder, which is stopped if it takes too long.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=20", PATIENCE]).args(words).current_dir(self.0.folder());
        command.env("TUNEBOX_CACHE", self.path("cache")).env("TMPDIR", self.path("tmp")).env("NO_COLOR", "1");
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1").env_remove("TUNEBOX_MPI");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs the program on `count` ranks under an MPI, or alone without one.
    fn train(&self, under: Option<(Mpi, usize)>, words: &[&str]) -> Command {
        match under {
            None => self.command(&[&[BINARY], words].concat()),
            Some((mpi, count)) => self.command(&[mpi.words(), &["-n", &count.to_string(), BINARY], words].concat()),
        }
    }

    /// Carries out a run, which succeeds and leaves no temporary folder of a rank. Returns the bytes of its adapter.
    fn adapter(&self, under: Option<(Mpi, usize)>, name: &str, more: &[&str]) -> Vec<u8> {
        let output = self.train(under, &train_words(name, more)).output().unwrap();
        assert!(output.status.success(), "{name}: {}", text(&output));
        if let Some((_, count)) = under {
            assert!(text(&output).contains(&format!("Ranks {count}, here")), "{}", text(&output));
        }
        assert_eq!(self.rank_folders(), 0, "{name}");
        self.0.adapter(name)
    }

    /// The number of temporary folders of ranks other than 0.
    fn rank_folders(&self) -> usize {
        let names = std::fs::read_dir(self.path("tmp")).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with("tunebox-rank-")).count()
    }

    /// Removes what ranks leave that were killed themselves.
    fn remove_rank_folders(&self) {
        std::fs::remove_dir_all(self.path("tmp")).unwrap();
        std::fs::create_dir(self.path("tmp")).unwrap();
    }
}

/// The words of a run of 8 steps with a checkpoint after every second one, and with dropout.
fn train_words<'words>(name: &'words str, more: &[&'words str]) -> Vec<&'words str> {
    let mut words = vec!["train", "--model", "model", "--name", name];
    let sets = ["train.steps=8", "train.save-every=2", "train.batch=16", "train.adapter.dropout=0.1"];
    words.extend(sets.iter().flat_map(|set| ["--set", set]));
    words.extend(more);
    words
}

#[test]
#[ignore = "needs Open MPI"]
fn ranks_of_open_mpi_train_to_the_bytes_of_one_process() {
    let (mpi, workspace) = (Mpi::Open.require(), Workspace::new());
    let alone = workspace.adapter(None, "alone", &LORA);
    for count in [2, 3, 4] {
        let adapter = workspace.adapter(Some((mpi, count)), &format!("on-{count}"), &LORA);
        assert!(adapter == alone, "{count} ranks: the adapters differ");
    }
    // A run of ranks is replayed without them.
    let replay = workspace.command(&[BINARY, "verify", "runs/on-3", "--replay"]).output().unwrap();
    assert!(replay.status.success() && text(&replay).contains("every bit of the artifact"), "{}", text(&replay));
}

#[test]
#[ignore = "needs MPICH"]
fn ranks_of_mpich_train_and_generate_to_the_bytes_of_one_process() {
    let (mpi, workspace) = (Mpi::Mpich.require(), Workspace::new());
    for (method, more) in [("lora", &LORA[..]), ("grpo", &GRPO)] {
        let alone = workspace.adapter(None, method, more);
        for count in [2, 3, 4] {
            let adapter = workspace.adapter(Some((mpi, count)), &format!("{method}-{count}"), more);
            assert!(adapter == alone, "{method} on {count} ranks: the adapters differ");
        }
    }
}

#[test]
fn processes_with_the_variables_of_torchrun_train_to_the_bytes_of_one_process() {
    let workspace = Workspace::new();
    let alone = workspace.adapter(None, "alone", &LORA);
    let port = free_port().to_string();
    let words = train_words("ranks", &LORA);
    let ranks = ["0", "1"].map(|rank| {
        let mut command = workspace.train(None, &words);
        command.envs([("RANK", rank), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", &port)]);
        command.spawn().unwrap()
    });
    for (rank, process) in ranks.into_iter().enumerate() {
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success(), "rank {rank}: {}", text(&output));
        assert_eq!(text(&output).is_empty(), rank == 1, "rank {rank}: {}", text(&output));
    }
    assert!(workspace.0.adapter("ranks") == alone, "the adapters differ");
}

#[test]
#[ignore = "needs Slurm and MPICH"]
fn ranks_of_slurm_train_to_the_bytes_of_one_process() {
    let workspace = Workspace::new();
    Mpi::Mpich.require();
    let alone = workspace.adapter(None, "alone", &LORA);
    let (script, folder) = (root().join("tests/launchers/slurm.sh"), workspace.path("slurm"));
    let run = |name: &str, mpi: &str, library: &str| {
        let command = [&["srun", "--ntasks=2", mpi, BINARY], &train_words(name, &LORA)[..]].concat().join(" ");
        format!("TUNEBOX_MPI={library} {command}")
    };
    // Slurm opens the library of PMIx only if its development files are installed.
    let (pmi2, pmix) = (run("pmi2", "--mpi=pmi2", "libmpich.so.12"), run("pmix", "--mpi=pmix", "libmpi.so.40"));
    let job = format!("{pmi2} && {{ ! srun --ntasks=1 --mpi=pmix true || {pmix}; }}");
    let port = free_port().to_string();
    let words = [script.to_str().unwrap(), folder.to_str().unwrap(), &port, "bash", "-c", &job];
    let output = workspace.command(&words).output().unwrap();
    if output.status.code() == Some(77) {
        absent("slurm", String::from_utf8_lossy(&output.stderr).trim());
    }
    assert!(output.status.success() && text(&output).contains("Ranks 2, here"), "{}", text(&output));
    assert!(workspace.0.adapter("pmi2") == alone, "PMI-2: the adapters differ");
    let has_pmix = !text(&output).contains("can not load PMIx library");
    assert!(!has_pmix || workspace.0.adapter("pmix") == alone, "PMIx: the adapters differ");
}

/// A port on which nothing listens.
fn free_port() -> u16 {
    std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}
