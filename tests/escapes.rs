//! Claims about the rings behind the sandbox: whatever a worker does of its own will in a step, as after an escape from the
//! engine, the operating system stops it, and the parent tells.
//!
//! The worker here is the real one; only its output does more than write.
#![cfg(target_os = "linux")]

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, MemfdFlags, Mode};
use rustix::process::{Resource, Rlimit, Signal};
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
    let method = place.set("method.use", "stranger.wasm");
    let small = ["limits.device-bytes=16777216", "limits.linear-memory=16777216", "limits.activation-bytes=16777216"];
    let names = [method.as_str(), "train.steps=2", "run.name=escaped", "limits.step-wall-seconds=0.5"];
    let settings = place.settings(&[&names[..], &small].concat());
    let script = "exec \"$0\" --exact escapes::worker --ignored --nocapture \"$@\" 3>&1 >/dev/null";
    let program = child::Program::at("/bin/sh").with("-c").with(script).with(std::env::current_exe().unwrap());
    let program = program.with(format!("escape={escape}")).with(place.set("place", ""));
    let stop = AtomicBool::new(false);
    let error = execute(settings.unwrap(), Some(&program), &mut TestObserver::new(), &stop).unwrap_err();
    assert_eq!(error.exit(), Exit::Sandbox, "{error}");
    assert!(!place.path("beside").exists() && place.path(".ssh/id").exists());
    (error.to_string(), error.why().unwrap())
}

#[test]
fn a_worker_out_of_the_engine_reads_and_writes_no_file_that_is_not_of_the_run() {
    for attempt in
        ["read", "write", "list", "passwords", "environment", "parent memory", "remove", "move", "link", "device"]
    {
        let (what, why) = escape(attempt);
        assert!(what.contains("(signal 6, SIGABRT) in step 1"), "{attempt}: {what}");
        let denied = ["Permission denied", "Operation not permitted"];
        assert!(denied.iter().any(|words| why.contains(words)), "{attempt}: {why}");
    }
}

#[test]
fn a_worker_out_of_the_engine_opens_no_socket_and_starts_no_process() {
    for attempt in ["socket", "shell", "fork", "signal", "limit", "outlive", "permissions"] {
        let (what, why) = escape(attempt);
        let ended = "a system call that it may not make (signal 31, SIGSYS) in step 1";
        assert!(what.contains(ended), "{attempt}: {what}; {why}");
    }
    // Shared memory; signals by a file; a program without a path; and what looks into other processes or the kernel.
    let shared = i64::from(libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    for call in [
        [libc::SYS_mmap, 0, 4096, 3, shared],
        [libc::SYS_fcntl, 0, i64::from(libc::F_SETOWN), 1, 0],
        [libc::SYS_execveat, 0, 0, 0, 0],
        [libc::SYS_ptrace, 16, 1, 0, 0],
        [libc::SYS_process_vm_readv, 1, 0, 0, 0],
        [libc::SYS_io_uring_setup, 1, 0, 0, 0],
        [libc::SYS_userfaultfd, 0, 0, 0, 0],
        [libc::SYS_shmget, 0, 4096, 0, 0],
    ] {
        let (what, why) = escape(&call.map(|number| number.to_string()).join(" "));
        assert!(what.contains("(signal 31, SIGSYS) in step 1"), "{call:?}: {what}; {why}");
    }
}

#[test]
fn a_worker_out_of_the_engine_does_not_fill_the_memory() {
    let (what, why) = escape("fill");
    assert!(what.contains("(signal 6, SIGABRT) in step 1"), "{what}");
    assert!(why.contains("memory allocation of 16777216 bytes failed"), "{why}");
    assert!(escape("file in memory").1.contains("Function not implemented"));
    // The stacks of threads count; their number alone does not.
    assert!(escape("threads").1.contains("Resource temporarily unavailable"));
}

#[test]
fn a_worker_that_never_comes_back_from_a_call_is_ended_by_its_parent() {
    let begun = Instant::now();
    let (what, why) = escape("spin");
    assert_eq!(what, "the worker of `lora` was ended in step 1");
    assert!(why.contains("longer than `limits.step-wall-seconds`, 0.5 s"), "{why}");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

/// The worker's end of the pipe: it passes everything on, and with the first step escapes.
struct Escaping {
    pipe: File,
    escape: String,
    place: String,
    /// Whether the run is planned, so that calls are of steps.
    planned: bool,
}

impl Escaping {
    /// Does what the name of the escape says, or makes the system call of its numbers.
    #[expect(unsafe_code, reason = "no safe function makes these calls")]
    fn attempt(&self) -> io::Result<()> {
        let place = Path::new(&self.place);
        let parent = rustix::process::getppid().unwrap();
        let of_parent = |file| format!("/proc/{}/{file}", parent.as_raw_pid());
        let limit = Rlimit { current: Some(0), maximum: Some(0) };
        match self.escape.as_str() {
            "read" => fs::read(place.join(".ssh/id")).map(drop),
            "write" => fs::write(place.join("beside"), "mine"),
            "list" => fs::read_dir(place).map(drop),
            "passwords" => fs::read("/etc/passwd").map(drop),
            "environment" => fs::read(of_parent("environ")).map(drop),
            "parent memory" => File::open(of_parent("mem")).map(drop),
            "remove" => fs::remove_file(place.join(".ssh/id")),
            "move" => fs::rename(place.join(".ssh/id"), place.join("runs/id")),
            "link" => std::os::unix::fs::symlink(place.join(".ssh"), place.join("runs/link")),
            "device" => {
                let made = place.join("runs/device");
                Ok(rustix::fs::mknodat(rustix::fs::CWD, made, FileType::CharacterDevice, Mode::RWXU, 0x101)?)
            }
            "permissions" => fs::set_permissions(place.join(".ssh"), fs::Permissions::from_mode(0o777)),
            "signal" => Ok(rustix::process::kill_process(parent, Signal::USR1)?),
            "limit" => Ok(rustix::process::prlimit(Some(parent), Resource::Core, limit).map(drop)?),
            "outlive" => Ok(rustix::process::set_parent_process_death_signal(None)?),
            "file in memory" => Ok(rustix::fs::memfd_create("file", MemfdFlags::empty()).map(drop)?),
            "threads" => loop {
                std::thread::Builder::new().spawn(|| std::thread::sleep(Duration::from_secs(60)))?;
            },
            "socket" => TcpStream::connect("127.0.0.1:9").map(drop),
            "shell" => Err(Command::new("/bin/sh").exec()),
            "fork" => Command::new("/bin/true").spawn().map(drop),
            call if call.starts_with(|first: char| first.is_ascii_digit()) => {
                let words: Vec<i64> = call.split(' ').map(|word| word.parse().unwrap()).collect();
                // SAFETY: none of these calls has an address to follow.
                unsafe { libc::syscall(words[0], words[1], words[2], words[3], words[4], -1, 0) };
                Ok(())
            }
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
        self.planned |= bytes.starts_with(b"{\"event\":{\"planned\":");
        if self.escape == "spin" && self.planned && bytes.starts_with(b"{\"call\":") {
            self.pipe.write_all(bytes)?;
            loop {
                std::hint::spin_loop();
            }
        }
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
    child::prepare_as_child().unwrap();
    child::receive_environment(&mut io::stdin().lock()).unwrap();
    let argument = |name: &str| std::env::args().find_map(|word| Some(word.strip_prefix(name)?.to_owned())).unwrap();
    let pipe = File::options().write(true).open("/dev/fd/3").unwrap();
    let output = Escaping { pipe, escape: argument("escape="), place: argument("place="), planned: false };
    let stop = Arc::new(AtomicBool::new(false));
    serve(io::stdin(), Arc::new(Mutex::new(output)), Compiling::default(), &stop, || std::process::exit(9));
}
