//! Ranks as processes: the example `gather` under MPI launchers, and with the variables of `torchrun`.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// The program `examples/gather.rs`, which is built with the tests.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(|folder| folder.parent()).unwrap().join("examples/gather")
}

/// The launchers of MPI, with the names of what a machine may lack.
const LAUNCHERS: [(&str, &str); 2] = [("openmpi", "mpirun.openmpi"), ("mpich", "mpirun.mpich")];

/// Returns the launchers of MPI. Fails a test as skipped if this machine lacks one.
fn launchers() -> [&'static str; 2] {
    LAUNCHERS.map(|(name, launcher)| match Command::new(launcher).arg("--version").output() {
        Ok(_) => launcher,
        Err(error) => panic!("absent `{name}`: `{launcher}`: {error}"),
    })
}

/// Runs the program with `arguments` on `count` ranks under one of the launchers, with the MPI library `library`.
fn run(launcher: &str, count: usize, library: Option<&str>, arguments: &[&str]) -> Output {
    let mut command = Command::new(launcher);
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1").env_remove("TUNEBOX_MPI");
    if launcher.ends_with("openmpi") {
        command.arg("--oversubscribe");
    }
    if let Some(library) = library {
        command.env("TUNEBOX_MPI", library);
    }
    command.args(["-n", &count.to_string()]).arg(program()).args(arguments).output().unwrap()
}

/// What the program wrote to its output and its errors.
fn text(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat()
}

#[test]
#[ignore = "needs Open MPI and MPICH"]
fn ranks_of_mpi_exchange_messages() {
    for launcher in launchers() {
        for count in [2, 4] {
            let output = run(launcher, count, None, &[]);
            let text = text(&output);
            assert!(output.status.success(), "{launcher}: {text}");
            assert!((0..count).all(|rank| text.contains(&format!("rank {rank} of {count}: "))), "{launcher}: {text}");
        }
    }
}

#[test]
#[ignore = "needs Open MPI and MPICH"]
fn a_rank_of_mpi_that_hangs_is_named_by_all_others() {
    for launcher in launchers() {
        let output = run(launcher, 4, None, &["hang", "2"]);
        let text = text(&output);
        assert!(!output.status.success(), "{launcher}: {text}");
        for rank in [0, 1, 3] {
            assert!(text.contains(&format!("rank {rank}: rank 2 did not answer within 1 s")), "{launcher}: {text}");
        }
    }
}

#[test]
#[ignore = "needs Open MPI and MPICH"]
fn a_library_that_does_not_belong_to_the_launcher_is_reported() {
    launchers();
    let cases = [
        (
            "mpirun.mpich",
            "libmpi.so.40",
            "`libmpi.so.40` (Open MPI) finds 1 of the 2 ranks that MPICH's `mpirun` started",
        ),
        (
            "mpirun.openmpi",
            "libmpich.so.12",
            "`libmpich.so.12` (MPICH) finds 1 of the 2 ranks that Open MPI's `mpirun` started",
        ),
        ("mpirun.mpich", "libc.so.6", "it has no `MPI_Init_thread`"),
        ("mpirun.mpich", "libno-such-mpi.so", "libno-such-mpi.so: cannot open shared object file"),
    ];
    for (launcher, library, message) in cases {
        let output = run(launcher, 2, Some(library), &[]);
        let text = text(&output);
        assert!(!output.status.success() && text.contains(message), "{text}");
    }
}

#[test]
fn ranks_of_torchrun_exchange_messages() {
    let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let ranks: Vec<_> = (0..3)
        .map(|rank: usize| {
            let variables = [("RANK", rank.to_string()), ("WORLD_SIZE", "3".into()), ("MASTER_PORT", port.to_string())];
            let mut command = Command::new(program());
            command.env_clear().envs(variables).env("MASTER_ADDR", "localhost");
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for (rank, process) in ranks.into_iter().enumerate() {
        let output = process.wait_with_output().unwrap();
        let text = text(&output);
        assert!(output.status.success() && text.starts_with(&format!("rank {rank} of 3: ")), "{text}");
    }
}
