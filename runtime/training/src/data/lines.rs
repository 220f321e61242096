//! The lines of a JSONL file. Skips a byte-order mark and blank lines, and accepts Windows line ends.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use sha2::{Digest, Sha256};
use tunebox_foundation::explain::Explanation;
use tunebox_foundation::files;
use tunebox_foundation::hexadecimal::hexadecimal;

use crate::error::Error;

/// The UTF-8 byte-order mark.
const BYTE_ORDER_MARK: [u8; 3] = [0xEF, 0xBB, 0xBF];

/// The most bytes of a line, so that a file without line ends is not read without end.
const MAX_LINE_BYTES: u64 = 16 << 20;

/// A chunk of lines ends once it has so many bytes, so that many long lines are not in memory together.
const CHUNK_BYTES: usize = 2 << 20;

/// One line that is not blank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// Number of the line in the file, from 1, including blank lines.
    pub(super) number: u64,
    /// Bytes of the line without its end.
    pub(super) bytes: Vec<u8>,
}

/// Reads lines, and computes the SHA-256 of all bytes read.
pub(super) struct Lines {
    reader: BufReader<File>,
    digest: Sha256,
    /// Number of lines read so far, including blank ones.
    pub(super) number: u64,
    name: String,
}

impl Lines {
    /// Opens a file for reading its lines from the start.
    ///
    /// # Errors
    /// A file that cannot be opened.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let reader = BufReader::with_capacity(1 << 16, files::open(path)?);
        Ok(Self { reader, digest: Sha256::new(), number: 0, name: path.display().to_string() })
    }

    /// Reads up to `count` further lines that are not blank; fewer at the end of the file, or once the lines read have
    /// [`CHUNK_BYTES`] or more together. `None` if no such line is left.
    ///
    /// # Errors
    /// A file that cannot be read, and a line of 16 MiB ([`MAX_LINE_BYTES`]) or more, blank lines included.
    pub(super) fn read_chunk(&mut self, count: usize) -> Result<Option<Vec<Line>>, Error> {
        let (mut lines, mut bytes) = (Vec::new(), 0);
        while lines.len() < count && bytes < CHUNK_BYTES {
            let Some(line) = self.next()? else { break };
            bytes += line.bytes.len();
            lines.push(line);
        }
        Ok(Some(lines).filter(|lines| !lines.is_empty()))
    }

    /// The SHA-256 of all bytes read so far, in hexadecimal.
    pub(super) fn digest(&self) -> String {
        hexadecimal(&self.digest.clone().finalize())
    }

    /// Reads the next line that is not only ASCII whitespace, without `\n` and `\r` at its end; `None` at the end of the
    /// file. Adds every byte read to the digest and every line, blank ones included, to the count. Removes a byte-order mark
    /// from the first line of the file. Fails for a line of [`MAX_LINE_BYTES`] or more.
    fn next(&mut self) -> Result<Option<Line>, Error> {
        loop {
            let mut bytes = Vec::new();
            let failed = |error: io::Error| {
                Explanation::new("data", format!("`{}` cannot be read", self.name)).with_why(error.to_string())
            };
            let read = self.reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut bytes).map_err(failed)?;
            if read == 0 {
                return Ok(None);
            }
            if bytes.len() as u64 == MAX_LINE_BYTES && !bytes.ends_with(b"\n") {
                let problem = format!("line {} has {MAX_LINE_BYTES} bytes or more", self.number + 1);
                return Err(failed(io::Error::new(io::ErrorKind::FileTooLarge, problem)).into());
            }
            self.digest.update(&bytes);
            self.number += 1;
            if self.number == 1 && bytes.starts_with(&BYTE_ORDER_MARK) {
                bytes.drain(..BYTE_ORDER_MARK.len());
            }
            while bytes.last().is_some_and(|last| matches!(last, b'\n' | b'\r')) {
                bytes.pop();
            }
            if !bytes.iter().all(u8::is_ascii_whitespace) {
                return Ok(Some(Line { number: self.number, bytes }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use tunebox_foundation::explain::Explain as _;

    use super::*;

    fn open(bytes: &[u8]) -> Lines {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        Lines::open(file.path()).unwrap()
    }

    fn lines(bytes: &[u8]) -> Vec<(u64, String)> {
        let mut lines = open(bytes);
        let all = lines.read_chunk(100).unwrap().unwrap().into_iter();
        all.map(|line| (line.number, String::from_utf8(line.bytes).unwrap())).collect()
    }

    #[test]
    fn marks_blank_lines_and_windows_ends_are_taken() {
        let found = lines(b"\xEF\xBB\xBF{\"a\":1}\r\n\r\n  \n{\"b\":2}\n{\"c\":3}");

        assert_eq!(found, [(1, "{\"a\":1}".into()), (4, "{\"b\":2}".into()), (5, "{\"c\":3}".into())]);
    }

    #[test]
    fn long_lines_are_read_a_few_at_a_time() {
        let line = [vec![b'a'; 700 << 10], vec![b'\n']].concat();
        let mut lines = open(&line.repeat(5));
        let counts = std::iter::from_fn(|| lines.read_chunk(100).unwrap()).map(|lines| lines.len());
        assert_eq!(counts.collect::<Vec<_>>(), [3, 2]);
    }

    #[test]
    fn a_line_of_a_terabyte_is_not_read_to_its_end() {
        let hole = tempfile::NamedTempFile::new().unwrap();
        hole.as_file().set_len(1 << 40).unwrap();
        let error = Lines::open(hole.path()).unwrap().read_chunk(1).unwrap_err();
        assert_eq!(error.why().unwrap(), "line 1 has 16777216 bytes or more");
    }

    #[test]
    fn the_digest_is_that_of_the_whole_file() {
        let mut lines = open(b"abc");
        lines.read_chunk(10).unwrap();

        assert_eq!(lines.digest(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
