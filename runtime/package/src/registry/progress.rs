//! The progress of a transfer.

/// Receives the progress of a transfer.
pub trait Progress {
    /// The transfer of `what` begins; it has `total` bytes.
    fn start(&mut self, what: &str, total: u64);
    /// `bytes` more bytes were transferred.
    fn advance(&mut self, bytes: u64);
}

/// Ignores the progress.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn start(&mut self, _what: &str, _total: u64) {}

    fn advance(&mut self, _bytes: u64) {}
}
