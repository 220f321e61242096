//! Creates the images of a component's initial memory, from which the memories of its instances are mapped.
//!
//! On Linux an image is an anonymous file that is sealed against writing. The kernel refuses the seal with "device or
//! resource busy" while it holds on to one of the file's pages, which it does for moments when it moves or frees memory
//! (fcntl(2), `F_SEAL_WRITE`). Left to itself, wasmtime creates the images when a component is first instantiated,
//! where that refusal would look like a fault of the component.

use std::io;
use std::thread::sleep;
use std::time::Duration;

use wasmtime::component::Component;

/// How often an image is tried at most, and the pause after a refusal, which doubles each time: 1.3 s in all.
const ATTEMPTS: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// Creates the images of all memories of a component; those that exist already are kept. Tries again while the kernel
/// says that it is busy.
///
/// # Errors
/// wasmtime's, if there is no memory or no file descriptor left, or the kernel stays busy.
pub(crate) fn create(component: &Component) -> wasmtime::Result<()> {
    retry_while_busy(|| component.initialize_copy_on_write_image())
}

/// Calls `attempt` until it succeeds or fails with another error than [`io::ErrorKind::ResourceBusy`], at most
/// [`ATTEMPTS`] times, and returns the last result. Sleeps between calls: 10 ms at first, then twice as long each time.
fn retry_while_busy(mut attempt: impl FnMut() -> wasmtime::Result<()>) -> wasmtime::Result<()> {
    let mut pause = FIRST_PAUSE;
    for _ in 1..ATTEMPTS {
        match attempt() {
            Err(error) if is_busy(&error) => sleep(pause),
            ended => return ended,
        }
        pause *= 2;
    }
    attempt()
}

/// Whether the error or one of its causes is [`io::ErrorKind::ResourceBusy`].
fn is_busy(error: &wasmtime::Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    causes.any(|cause| cause.kind() == io::ErrorKind::ResourceBusy)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has the cause that it has in wasmtime: the kernel's error below one of a library.
    #[derive(Debug, thiserror::Error)]
    #[error("cannot add seals")]
    struct Seal(#[source] io::Error);

    /// Calls that fail with the error `kind` so many times, and how often they were called.
    fn called(kind: io::ErrorKind, failures: u32) -> (wasmtime::Result<()>, u32) {
        let mut calls = 0;
        let ended = retry_while_busy(|| {
            calls += 1;
            if calls <= failures { Err(Seal(kind.into()).into()) } else { Ok(()) }
        });
        (ended, calls)
    }

    #[test]
    fn a_busy_kernel_is_asked_again_and_not_forever() {
        assert!(matches!(called(io::ErrorKind::ResourceBusy, 2), (Ok(()), 3)));
        let (ended, calls) = called(io::ErrorKind::ResourceBusy, u32::MAX);
        assert!(is_busy(&ended.unwrap_err()));
        assert_eq!(calls, ATTEMPTS);
    }

    #[test]
    fn other_failures_end_at_once() {
        let (ended, calls) = called(io::ErrorKind::OutOfMemory, u32::MAX);
        assert!(!is_busy(&ended.unwrap_err()));
        assert_eq!(calls, 1);
    }
}
