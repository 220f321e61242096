//! A child that compiles one component and ends: the parent's side, which waits and no longer, and the child's.
//!
//! The child gets one line of JSON with its bounds and then the bytes; it answers with one line and then the
//! code. The code counts only when all of it came, by its length and digest.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{CompileLimits, CompileStop};
use crate::child::{self, LastWords, Program};
use crate::engine;
use crate::precompiled::Trusted;

/// The longest first line of either side, in bytes.
const LINE: u64 = 4 << 10;

/// The largest component and the most code, in bytes: far more than admission lets through.
const MOST: u64 = 1 << 30;

/// How long a child may take to end once it has said all.
const GOODBYE: Duration = Duration::from_secs(2);

/// What the parent asks, before the component's bytes.
#[derive(Serialize, Deserialize)]
struct Order {
    /// Seconds of processor time, all threads together.
    seconds: u64,
    /// Bytes of memory.
    memory: u64,
}

/// What the child answers, before the code.
#[derive(Serialize, Deserialize)]
enum Answer {
    Compiled { bytes: u64, digest: [u8; 32] },
    Malformed(String),
}

/// Why no code came back.
pub(super) enum Fault {
    /// The compiler's own refusal.
    Malformed(String),
    /// The child did not come to an end of its own.
    Stop(CompileStop),
}

/// Has a child compile a component, and waits no longer than the limit.
pub(super) fn compile(program: &Program, bytes: &[u8], limits: CompileLimits) -> Result<Trusted, Fault> {
    let lost = |error: &dyn std::fmt::Display| Fault::Stop(CompileStop::Lost(error.to_string()));
    let order = order(limits).map_err(|error| lost(&error))?;
    let mut child = program.start().map_err(|error| lost(&error))?;
    let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(mut input), Some(output), Some(errors)) = (input, output, errors) else {
        return Err(lost(&"it has no streams"));
    };
    let words = LastWords::of(errors);
    let (send, answers) = channel();
    std::thread::scope(|scope| {
        // A child that dies does not read on; its end says why, not this pipe.
        scope.spawn(move || input.write_all(&order).and_then(|()| input.write_all(bytes)));
        scope.spawn(move || send.send(answer(output)));
        let answer = answers.recv_timeout(Duration::from_secs_f64(limits.seconds.clamp(0.001, 1e6)));
        let late = answer.is_err();
        // The two threads end with the child, so it must end on every way out of here.
        let status = end(&mut child, if late { Duration::ZERO } else { GOODBYE });
        match (answer, status) {
            (Ok(Some(answer)), _) => answer.map(Trusted::own).map_err(Fault::Malformed),
            (Err(_), _) => Err(Fault::Stop(CompileStop::Time(limits.seconds))),
            (Ok(None), Ok(status)) => Err(Fault::Stop(stop(status, words.line(), limits))),
            (Ok(None), Err(error)) => Err(lost(&error)),
        }
    })
}

/// The first line for a child. Its own bound on the processor only matters if nobody is left to look at the clock.
fn order(limits: CompileLimits) -> io::Result<Vec<u8>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let order = Order { seconds: (limits.seconds * threads).ceil().clamp(1.0, 1e9) as u64, memory: limits.bytes };
    let mut line = serde_json::to_vec(&order)?;
    line.push(b'\n');
    Ok(line)
}

/// What a child says: the code, or why there is none; nothing if it did not say all of it.
fn answer(output: impl Read) -> Option<Result<Vec<u8>, String>> {
    let mut output = BufReader::new(output);
    match line(&mut output).ok()? {
        Answer::Malformed(problem) => Some(Err(problem)),
        Answer::Compiled { bytes, digest } => {
            let mut code = Vec::new();
            output.take(MOST).read_to_end(&mut code).ok()?;
            let whole = code.len() as u64 == bytes && Sha256::digest(&code).as_slice() == digest;
            whole.then_some(Ok(code))
        }
    }
}

/// One line of JSON.
fn line<T: for<'a> Deserialize<'a>>(input: &mut impl BufRead) -> io::Result<T> {
    let mut line = Vec::new();
    input.take(LINE).read_until(b'\n', &mut line)?;
    Ok(serde_json::from_slice(&line)?)
}

/// Waits for a child, and ends it when it takes longer than `patience`.
fn end(child: &mut Child, patience: Duration) -> io::Result<ExitStatus> {
    let begun = Instant::now();
    while begun.elapsed() < patience {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill()?;
    child.wait()
}

/// Why a child ended without an answer.
fn stop(status: ExitStatus, words: Option<String>, limits: CompileLimits) -> CompileStop {
    let said = |part: &str| words.as_ref().is_some_and(|words| words.contains(part));
    if said("memory allocation of") || said("annot allocate memory") {
        return CompileStop::Memory(limits.bytes);
    }
    if status.signal() == Some(rustix::process::Signal::XCPU.as_raw()) {
        return CompileStop::Time(limits.seconds);
    }
    let how = child::ending(status);
    CompileStop::Died(words.map_or_else(|| how.clone(), |words| format!("{how}: {words}")))
}

/// The child's whole life: bounds itself, compiles what its standard input holds, answers, and is done.
///
/// # Errors
/// When the streams break or the system refuses the bounds; the parent then sees no answer.
pub fn compile_for_parent() -> io::Result<()> {
    child::settle()?;
    let mut input = BufReader::new(io::stdin().lock());
    let order: Order = line(&mut input)?;
    child::bound(order.seconds, order.memory)?;
    let mut bytes = Vec::new();
    input.take(MOST).read_to_end(&mut bytes)?;
    let code = engine::bare().and_then(|engine| engine.precompile_component(&bytes));
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
