//! Claims about the rings around the child of a command: whatever it does of its own will once it reads untrusted
//! files, as after an escape from a parser, the system stops it.

use std::fs;
use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use clap::Parser;

use super::*;
use crate::commands::CommandLine;

const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../training/sample");

/// Commands that read a model or a component, with their arguments; `SAMPLE` stands for the folder of the sample.
const COMMANDS: [&str; 11] = [
    "score SAMPLE/model --file text",
    "generate SAMPLE/model hi",
    "chat SAMPLE/model",
    "eval SAMPLE/model --data SAMPLE/lora.jsonl",
    "export SAMPLE/model --to hf --out new",
    "check run.toml",
    "train run.toml --in-process",
    "train run.toml --dry-run",
    "bench --model SAMPLE/model",
    "inspect lora",
    "verify run",
];

/// Does `attempt` in a process that is prepared as the child of a command. Returns how that ended and what was told.
fn escape(command: &str, attempt: &str) -> (ProcessStatus, String) {
    let place = tempfile::tempdir().unwrap();
    let work = place.path().join("work");
    for folder in ["work/out", "work/.new.partial", "work/runs", "work/run", ".ssh"] {
        fs::create_dir_all(place.path().join(folder)).unwrap();
    }
    fs::write(place.path().join(".ssh/id"), "secret").unwrap();
    fs::write(work.join("text"), "hi").unwrap();
    let run = format!(
        "model.path = \"{SAMPLE}/model\"\ndata.path = \"{SAMPLE}/lora.jsonl\"\nmethod.use = \"lora\"\ntrain.device = \"cpu\"\n"
    );
    fs::write(work.join("run/run.lock"), "").unwrap();
    for path in ["run.toml", "run/run.toml"] {
        fs::write(work.join(path), &run).unwrap();
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "supervisor::tests::child", "--ignored", "--nocapture"]).current_dir(&work);
    child.env("COMMAND", command.replace("SAMPLE", SAMPLE)).env("ATTEMPT", attempt).stdin(Stdio::null());
    child.env("TMPDIR", work.join("out"));
    let output = child.output().unwrap();
    let is_whole = fs::read(place.path().join(".ssh/id")).is_ok() && !work.join("beside").exists();
    assert!(is_whole, "{command}: {attempt} succeeded");
    (output.status, String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Tries to do what is not the command's to do. Returns the error of the system.
fn attempt(what: &str) -> io::Result<()> {
    let parent = format!("/proc/{}/environ", rustix::process::getppid().unwrap().as_raw_pid());
    match what {
        "read" => fs::read("../.ssh/id").map(drop),
        "list" => fs::read_dir("..").map(drop),
        "passwords" => fs::read("/etc/passwd").map(drop),
        "environment" => fs::read(parent).map(drop),
        "write" => fs::write("beside", "mine"),
        "change" => fs::write("run.toml", "mine"),
        "remove" => fs::remove_file("../.ssh/id"),
        "tcp" => TcpStream::connect("127.0.0.1:9").map(drop),
        "udp" => UdpSocket::bind("127.0.0.1:0").map(drop),
        "datagrams" => UnixDatagram::pair().map(drop),
        "signal" => Ok(kill_process(rustix::process::getppid().unwrap(), rustix::process::Signal::USR1)?),
        "shell" => Err(Command::new("/bin/sh").exec()),
        "fork" => Command::new("/bin/true").spawn().map(drop),
        "output" => fs::write(".new.partial/model.safetensors", "mine"),
        _ => UnixStream::pair().map(drop),
    }
}

#[test]
fn a_child_out_of_a_parser_reaches_no_file_that_is_not_of_the_command() {
    for command in COMMANDS {
        for attempt in ["read", "list", "passwords", "environment", "write", "change", "remove"] {
            let (status, told) = escape(command, attempt);
            assert_eq!(status.code(), Some(7), "{command}: {attempt}: {status}: {told}");
            let denied = ["Permission denied", "Operation not permitted"];
            assert!(denied.iter().any(|words| told.contains(words)), "{command}: {attempt}: {told}");
        }
    }
}

#[test]
fn a_child_out_of_a_parser_opens_no_socket_and_starts_no_process() {
    for command in COMMANDS {
        for attempt in ["tcp", "udp", "datagrams", "signal", "shell", "fork"] {
            let (status, told) = escape(command, attempt);
            assert_eq!(status.signal(), Some(Signal::SIGSYS as i32), "{command}: {attempt}: {status}: {told}");
        }
    }
}

#[test]
fn a_child_does_what_its_command_needs() {
    for (command, attempt) in [("export SAMPLE/model --to hf --out new", "output"), ("chat SAMPLE/model", "pair")] {
        let (status, told) = escape(command, attempt);
        assert!(status.success(), "{command}: {attempt}: {status}: {told}");
    }
}

#[test]
#[ignore = "run by the tests above, as the child"]
#[expect(clippy::print_stderr, reason = "the parent reads what was refused there")]
fn child() {
    let words = std::env::var("COMMAND").unwrap();
    let line = ["tunebox", SUPERVISED_FLAG, "--offline"].into_iter().chain(words.split(' '));
    let CommandLine { global, command } = CommandLine::parse_from(line);
    let terminal = Terminal { json: false, quiet: true, verbose: false };
    let prepared = prepare_child()
        .and_then(|()| command.prepare(terminal, &global))
        .and_then(|access| confine_child(terminal, access.as_ref()));
    prepared.unwrap_or_else(|failure| panic!("{}", failure.text(true, usize::MAX)));
    if let Err(error) = attempt(&std::env::var("ATTEMPT").unwrap()) {
        eprintln!("{error}");
        std::process::exit(7);
    }
}
