//! What data files are compressed with, and how much they may unpack to.

use std::io::{self, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use tunebox_foundation::explain::Explanation;

use super::unreadable;
use crate::error::Error;

/// The first bytes of a gzip file, and of a zstd frame.
const GZIP: [u8; 2] = [0x1F, 0x8B];
const ZSTD: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// The most times its size that a file may unpack to. Text compresses to a third or a tenth.
const MAX_RATIO: u64 = 200;

/// Bytes that any file may unpack to, however small it is.
const FREE_BYTES: u64 = 64 << 20;

/// The exponent of the largest window that a zstd frame may ask for: 128 MiB, as in the `zstd` program.
const MAX_WINDOW_EXPONENT: u32 = 27;

/// The most bytes that a file of `stored` bytes may unpack to.
pub(in crate::data) fn unpacked_bytes(stored: u64) -> u64 {
    FREE_BYTES.saturating_add(stored.saturating_mul(MAX_RATIO))
}

/// The extension of a file in lower case, without that of its compression: `csv` for `a.csv.gz`. `None` if there is no
/// other.
pub(in crate::data) fn extension(path: &Path) -> Option<String> {
    let own = |path: &Path| path.extension().map(|found| found.to_string_lossy().to_lowercase());
    let first = own(path)?;
    if ["gz", "zst", "zstd"].contains(&first.as_str()) { own(&path.with_extension("")) } else { Some(first) }
}

/// Returns the unpacked content of `stored_bytes`, which begin with `magic`: gzip with all its members, zstd with all
/// its frames, or the bytes as they are. Reading compressed content fails once it has more bytes than `stored`, the
/// size of the file, explains. `name` is the file's, for errors.
///
/// # Errors
/// A zstd decoder that cannot be created.
pub(super) fn unpack<'a>(
    stored_bytes: impl Read + 'a,
    magic: [u8; 4],
    stored: u64,
    name: &str,
) -> Result<Box<dyn Read + 'a>, Error> {
    let stored_bytes = BufReader::with_capacity(1 << 16, stored_bytes);
    let inner: Box<dyn Read + 'a> = if magic.starts_with(&GZIP) {
        Box::new(MultiGzDecoder::new(stored_bytes))
    } else if magic == ZSTD {
        let mut decoder =
            zstd::stream::read::Decoder::with_buffer(stored_bytes).map_err(|error| unreadable(name, error))?;
        decoder.window_log_max(MAX_WINDOW_EXPONENT).map_err(|error| unreadable(name, error))?;
        Box::new(decoder)
    } else {
        return Ok(Box::new(stored_bytes));
    };
    Ok(Box::new(Bounded { inner, left: unpacked_bytes(stored) }))
}

/// Builds the error about a file that holds far more bytes than its size explains.
pub(super) fn unpacks_to_too_much(name: &str) -> Error {
    Explanation::new("data", format!("`{name}` unpacks to far more than its size explains"))
        .with_why(TOO_MUCH)
        .with_hint("unpack it, and look at what it holds")
        .into()
}

/// Why a file is refused that unpacks to too much.
const TOO_MUCH: &str = "a file may hold 64 MiB and 200 times its own size";

/// A reader that fails after a number of bytes.
struct Bounded<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    /// Reads from the inner reader. Fails with `FileTooLarge` once all reads together have more bytes than permitted.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(length as u64).ok_or_else(|| {
            io::Error::new(io::ErrorKind::FileTooLarge, format!("it unpacks to too much: {TOO_MUCH}"))
        })?;
        Ok(length)
    }
}
