//! A child process that compiles one component and ends: the parent's side, which waits for a limited time, and the
//! child's side.
//!
//! The child gets one line of JSON with its limits and then the component's bytes; it answers with one line of JSON and
//! then the code. The parent accepts the code only if its length and digest are those of that line.

use std::io::{self, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::mpsc::channel;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use tunebox_foundation::explain::Explanation;

use super::CodeOptions;
use crate::child::{self, Program, StderrTail, read_line, wait_or_kill};
use crate::confinement::{confine_files, deny_calls};
use crate::engine;
use crate::error::Error;
use crate::figures::{double_to_fit, format_bytes};
use crate::limits::Limits;
use crate::precompiled::PrecompiledCode;

/// The longest first line of either side, in bytes.
const MAX_LINE_BYTES: u64 = 4 << 10;

/// The largest component and the most code, in bytes: far more than admission lets through.
const MAX_TRANSFER_BYTES: u64 = 1 << 30;

/// How long a child may take to end once it has sent its answer.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// The line that the parent sends before the component's bytes.
#[derive(Serialize, Deserialize)]
struct Order {
    /// Seconds of processor time, all threads together.
    seconds: u64,
    /// Bytes of memory.
    memory: u64,
    /// Options of the compiled code.
    code: CodeOptions,
}

/// The line that the child answers before the code.
#[derive(Serialize, Deserialize)]
enum Answer {
    /// The component was compiled: so many bytes of code follow, with this SHA-256 digest.
    Compiled { bytes: u64, digest: [u8; 32] },
    /// The compiler rejected the component with this message; no code follows.
    Malformed(String),
}

/// Compiles a component in a child process, `program`, waiting at most `compile_seconds` (at least 1 ms) for its
/// answer, and returns its code. The child has ended when this returns: it is killed if its answer is late, or if it
/// goes on for 2 s after its answer. `name` names the component in errors.
///
/// Errors: the component is malformed, compiling takes too much time or memory, or the child does not start or ends
/// without a complete answer.
pub(super) fn compile(
    program: &Program,
    bytes: &[u8],
    name: &str,
    limits: &Limits,
    options: CodeOptions,
) -> Result<PrecompiledCode, Error> {
    let lost = |error: &dyn std::fmt::Display| {
        compile_failure(name, format!("the process that compiles it cannot be used: {error}"))
            .with_hint("`tunebox train --in-process` does without, for methods that you trust")
            .into()
    };
    let order = encode_order(limits, options).map_err(|error| lost(&error))?;
    let mut child = program.start().map_err(|error| lost(&error))?;
    let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(mut input), Some(output), Some(errors)) = (input, output, errors) else {
        return Err(lost(&"it has no streams"));
    };
    let stderr = StderrTail::read(errors);
    let (send, answers) = channel();
    std::thread::scope(|scope| {
        // If the child dies, this write fails; its exit status says why.
        scope.spawn(move || input.write_all(&order).and_then(|()| input.write_all(bytes)));
        scope.spawn(move || send.send(read_answer(output)));
        let answer = answers.recv_timeout(Duration::from_secs_f64(limits.compile_seconds.clamp(0.001, 1e6)));
        let late = answer.is_err();
        // The two threads end with the child, so it must end on every way out of here.
        let status = wait_or_kill(&mut child, if late { Duration::ZERO } else { EXIT_TIMEOUT });
        match (answer, status) {
            (Ok(Some(answer)), _) => {
                answer.map(PrecompiledCode::from_own_code).map_err(|problem| Error::malformed(name, problem))
            }
            (Err(_), _) => Err(too_slow(name, limits.compile_seconds)),
            (Ok(None), Ok(status)) => Err(no_answer(name, status, stderr.last_line(), limits)),
            (Ok(None), Err(error)) => Err(lost(&error)),
        }
    })
}

/// Returns the first line for the child, JSON with its memory limit in bytes, the options of the code, and its
/// processor time: `compile_seconds` for each processor, rounded up to whole seconds. That time only ends a child whose
/// parent is gone; the parent itself waits by the clock.
fn encode_order(limits: &Limits, code: CodeOptions) -> io::Result<Vec<u8>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let seconds = (limits.compile_seconds * threads).ceil().clamp(1.0, 1e9) as u64;
    let mut line = serde_json::to_vec(&Order { seconds, memory: limits.compile_memory, code })?;
    line.push(b'\n');
    Ok(line)
}

/// Reads the child's answer: `Ok` with the code, or `Err` with why the component is malformed. `None` if the first line
/// cannot be read or parsed, or the code does not have the length and digest of that line.
fn read_answer(output: impl Read) -> Option<Result<Vec<u8>, String>> {
    let mut output = BufReader::new(output);
    match read_line(&mut output, MAX_LINE_BYTES).ok()? {
        Answer::Malformed(problem) => Some(Err(problem)),
        Answer::Compiled { bytes, digest } => {
            let mut code = Vec::new();
            output.take(MAX_TRANSFER_BYTES).read_to_end(&mut code).ok()?;
            let whole = code.len() as u64 == bytes && Sha256::digest(&code).as_slice() == digest;
            whole.then_some(Ok(code))
        }
    }
}

/// Builds the error for a child that ended without an answer: too much memory if the last line of its standard error
/// says that an allocation failed, too much time if it ended by `SIGXCPU`, else that the process failed, with how it
/// ended and that line.
fn no_answer(name: &str, status: ExitStatus, last_line: Option<String>, limits: &Limits) -> Error {
    let has = |part: &str| last_line.as_ref().is_some_and(|line| line.contains(part));
    if has("memory allocation of") || has("annot allocate memory") {
        let limit = limits.compile_memory;
        let more = double_to_fit(limit, limit.saturating_add(1));
        return over_limit(name, "takes too much memory to compile", &format_bytes(limit), "memory", &more);
    }
    if status.signal() == Some(rustix::process::Signal::XCPU.as_raw()) {
        return too_slow(name, limits.compile_seconds);
    }
    let how = child::describe_exit(status);
    let how = last_line.map_or_else(|| how.clone(), |line| format!("{how}: {line}"));
    compile_failure(name, format!("the process that compiled it {how}"))
        .with_hint("its author can build it smaller; nothing else is harmed")
        .into()
}

/// Builds the error for a component that takes longer than `seconds` to compile. Its hint suggests four times as many
/// seconds, at least 1.
fn too_slow(name: &str, seconds: f64) -> Error {
    let more = (4.0 * seconds).max(1.0).to_string();
    over_limit(name, "takes too long to compile", &format!("{seconds} s"), "seconds", &more)
}

/// Builds the error for a component that takes more than `limit` to compile. `what` completes a sentence about the
/// component, such as `takes too long to compile`. `setting` is `seconds` or `memory`, and `more` the larger value that
/// the hint suggests for `limits.compile-SETTING`.
fn over_limit(name: &str, what: &str, limit: &str, setting: &str, more: &str) -> Error {
    Explanation::new("sandbox", format!("`{name}` {what}"))
        .with_location(format!("more than {limit}, ended before anything of it ran"))
        .with_why("a component can be small and still be made to keep a compiler busy, so an untrusted one has a limit")
        .with_hint(format!("if you trust it, `--set limits.compile-{setting}={more}`"))
        .into()
}

/// Builds the error for a component whose compiling process failed or could not start; `why` says how.
fn compile_failure(name: &str, why: String) -> Explanation {
    let location = "in a process of its own, before anything of it ran";
    Explanation::new("sandbox", format!("`{name}` could not be compiled")).with_location(location).with_why(why)
}

/// Runs the child's side of compiling: reads limits and component from standard input, applies the limits to this
/// process, gives up files, network and other processes ([`confine_files`], [`deny_calls`]), compiles, and writes the
/// answer to standard output. All of this lasts until the process ends. For a component that does not compile, the
/// answer is the compiler's message, cut at 600 characters.
///
/// # Errors
/// When the first line is no order of the parent, the streams break, or the system rejects the limits or rings; the
/// parent then gets no answer.
pub fn compile_for_parent() -> io::Result<()> {
    child::prepare_as_child()?;
    let mut input = BufReader::new(io::stdin().lock());
    let order: Order = read_line(&mut input, MAX_LINE_BYTES)?;
    child::limit_resources(order.seconds, order.memory)?;
    let mut bytes = Vec::new();
    input.take(MAX_TRANSFER_BYTES).read_to_end(&mut bytes)?;
    confine_files(&[], &[])?;
    deny_calls()?;
    let code = engine::wasmtime_engine(order.code).and_then(|engine| engine.precompile_component(&bytes));
    let mut output = io::stdout().lock();
    let answer = match &code {
        Ok(code) => Answer::Compiled { bytes: code.len() as u64, digest: Sha256::digest(code).into() },
        // The line must stay short; the parent cuts and escapes it once more.
        Err(error) => Answer::Malformed(format!("{error:#}").chars().take(600).collect()),
    };
    serde_json::to_writer(&mut output, &answer)?;
    output.write_all(b"\n")?;
    output.write_all(code.as_deref().unwrap_or_default())?;
    output.flush()
}
