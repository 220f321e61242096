//! Claims about the rings behind the sandbox: whatever a worker does of its own will in a step, as after an escape from the
//! engine, the operating system stops it, and the parent tells.
//!
//! The worker here is the real one; only its output does more than write.
#![cfg(target_os = "linux")]

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tunebox_foundation::explain::{Exit, Explain};
use tunebox_sandbox::{Compiling, child};
use tunebox_training::{execute, serve};

use crate::support::tiny_run::{TestObserver, Workspace};

/// Runs an untrusted method in a worker that does `escape` in its first step. Returns what the parent tells: what happened,
/// and why.
fn escape(escape: &str) -> (String, String) {
    let place = Workspace::new();
    fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/../../methods/lora/lora.wasm"), place.path("stranger.wasm"))
        .unwrap();
    fs::create_dir(place.path(".ssh")).unwrap();
    fs::write(place.path(".ssh/id"), "secret").unwrap();
    let method = format!("method.use={}", place.path("stranger.wasm").display());
    let small = ["limits.device-bytes=16777216", "limits.linear-memory=16777216", "limits.activation-bytes=16777216"];
    let settings = place.settings(&[&[method.as_str(), "train.steps=2", "run.name=escaped"], &small[..]].concat());
    let script = "exec \"$0\" --exact escapes::worker --ignored --nocapture \"$@\" 3>&1 >/dev/null";
    let program = child::Program::at("/bin/sh").with("-c").with(script).with(std::env::current_exe().unwrap());
    let program = program.with(format!("escape={escape}")).with(format!("place={}", place.path("").display()));
    let stop = AtomicBool::new(false);
    let error = execute(settings.unwrap(), Some(&program), &mut TestObserver::new(), &stop).unwrap_err();
    assert_eq!(error.exit(), Exit::Sandbox, "{error}");
    assert!(!place.path("beside").exists());
    (error.to_string(), error.why().unwrap())
}

#[test]
fn a_worker_out_of_the_engine_reads_and_writes_no_file_that_is_not_of_the_run() {
    for attempt in ["read", "write", "list"] {
        let (what, why) = escape(attempt);
        assert!(what.contains("(signal 6, SIGABRT) in step 1"), "{attempt}: {what}");
        assert!(why.contains("Permission denied"), "{attempt}: {why}");
    }
}

#[test]
fn a_worker_out_of_the_engine_opens_no_socket_and_starts_no_process() {
    for attempt in ["socket", "shell", "fork"] {
        let (what, why) = escape(attempt);
        assert!(what.contains("a system call that it may not make (signal 31, SIGSYS) in step 1"), "{what}; {why}");
    }
}

#[test]
fn a_worker_out_of_the_engine_does_not_fill_the_memory() {
    let (what, why) = escape("fill");
    assert!(what.contains("(signal 6, SIGABRT) in step 1"), "{what}");
    assert!(why.contains("memory allocation of 16777216 bytes failed"), "{why}");
}

/// The worker's end of the pipe: it passes everything on, and with the first step escapes.
struct Escaping {
    pipe: File,
    escape: String,
    place: String,
}

impl Escaping {
    /// Does what the name of the escape says.
    fn attempt(&self) -> io::Result<()> {
        let place = Path::new(&self.place);
        match self.escape.as_str() {
            "read" => fs::read(place.join(".ssh/id")).map(drop),
            "write" => fs::write(place.join("beside"), "mine"),
            "list" => fs::read_dir(place).map(drop),
            "socket" => TcpStream::connect("127.0.0.1:9").map(drop),
            "shell" => Err(Command::new("/bin/sh").exec()),
            "fork" => Command::new("/bin/true").spawn().map(drop),
            _ => {
                let mut held = Vec::new();
                while held.len() < 1_000 {
                    held.push(vec![1_u8; 16 << 20]);
                }
                Ok(())
            }
        }
    }
}

impl Write for Escaping {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pipe.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pipe.flush()
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.starts_with(b"{\"event\":{\"step\":") {
            let ended = self.attempt().map_or_else(|error| error.to_string(), |()| "it escaped".into());
            let _ = writeln!(io::stderr(), "{ended}");
            std::process::abort();
        }
        self.pipe.write_all(bytes)
    }
}

#[test]
#[ignore = "run by the tests above, as their worker"]
fn worker() {
    child::settle().unwrap();
    child::receive_environment(&mut io::stdin().lock()).unwrap();
    let argument = |name: &str| std::env::args().find_map(|word| Some(word.strip_prefix(name)?.to_owned())).unwrap();
    let pipe = File::options().write(true).open("/dev/fd/3").unwrap();
    let output = Escaping { pipe, escape: argument("escape="), place: argument("place=") };
    let stop = Arc::new(AtomicBool::new(false));
    serve(io::stdin(), output, Compiling::default(), &stop, || std::process::exit(9));
}
