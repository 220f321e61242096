//! Bytes of a matrix, shared with their owner: a mapped file or a buffer.

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};

/// Bytes shared with their owner.
#[derive(Clone)]
pub struct Bytes {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
}

impl Bytes {
    /// Shares the part `range` of the bytes of `owner`, which must return the same bytes at every call.
    ///
    /// # Errors
    /// [`Error::Argument`] when the range reaches past the end of the bytes, or ends before it starts.
    pub fn new(owner: Arc<dyn AsRef<[u8]> + Send + Sync>, range: Range<usize>) -> Result<Self> {
        let length = (*owner).as_ref().len();
        if range.start > range.end || range.end > length {
            return Err(Error::argument(format!("bytes {range:?} of {length} are not there")));
        }
        Ok(Self { owner, range })
    }

    /// The shared bytes. Empty if the owner now returns too few bytes for the range.
    pub(super) fn slice(&self) -> &[u8] {
        (*self.owner).as_ref().get(self.range.clone()).unwrap_or(&[])
    }

    /// Returns the length of the shared range in bytes, whatever the owner returns now.
    pub(super) fn len(&self) -> usize {
        self.range.len()
    }
}

impl From<Vec<u8>> for Bytes {
    /// Takes over the list and shares all of its bytes.
    fn from(bytes: Vec<u8>) -> Self {
        let range = 0..bytes.len();
        Self { owner: Arc::new(bytes), range }
    }
}

impl std::fmt::Debug for Bytes {
    /// Writes the number of bytes, as in `64 bytes`, not the bytes.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} bytes", self.range.len())
    }
}
