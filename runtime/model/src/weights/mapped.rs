//! Memory-mapped files: the system reads a page when it is first accessed, and shares it between processes.

#![expect(unsafe_code, reason = "a mapping is sound only while the file does not change")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::Mmap;
use tunebox_compute::weight::Bytes;
use tunebox_foundation::bounded;

use crate::error::{Error, Result};

/// The mapped files of one model.
#[derive(Debug, Default)]
pub(super) struct Files {
    mappings: BTreeMap<PathBuf, Arc<Mmap>>,
}

impl Files {
    /// Memory-maps whole files, and asks the system to read them ahead. Skips a file that the system cannot map; it has
    /// to be read instead.
    ///
    /// # Errors
    /// When a file cannot be opened, or is not a regular file.
    pub(super) fn map<'p>(paths: impl IntoIterator<Item = &'p Path>) -> Result<Self> {
        let mut mappings = BTreeMap::new();
        for path in paths {
            let failed = |error| Error::file(path, error);
            let file = bounded::open(path).map_err(failed)?;
            // SAFETY: the bytes are only ever read as numbers, for which every pattern is a value, and every offset
            // is checked against the mapped length. A model's files are written whole and then left alone, by us and
            // by the hub's cache. Rewriting one during a run changes the run's numbers, and truncating one ends the
            // process by a signal.
            let Ok(mapping) = (unsafe { Mmap::map(&file) }) else { continue };
            // Only a hint: a system that does not take it reads page by page.
            drop(mapping.advise(memmap2::Advice::WillNeed));
            mappings.insert(path.to_path_buf(), Arc::new(mapping));
        }
        Ok(Self { mappings })
    }

    /// The `length` bytes of a mapped file from byte `offset` on, without a copy; `None` if the file is not mapped or
    /// is shorter.
    pub(super) fn bytes(&self, path: &Path, offset: u64, length: usize) -> Option<Bytes> {
        let mapping = self.mappings.get(path)?;
        let start = usize::try_from(offset).ok()?;
        Bytes::new(mapping.clone(), start..start.checked_add(length)?).ok()
    }

    /// Tells the system that it may drop the mapped pages of `length` bytes of a file from byte `offset` on; a later
    /// access reads them again. Does nothing if the file is not mapped or is shorter.
    pub(super) fn release(&self, path: &Path, offset: u64, length: usize) {
        let (Some(mapping), Ok(start)) = (self.mappings.get(path), usize::try_from(offset)) else { return };
        if start.checked_add(length).is_some_and(|end| end <= mapping.len()) {
            // SAFETY: the pages are those of a file that is mapped to be read, and nothing writes it while it is mapped
            // (see above): reading one again gives the same bytes from the file.
            let released = unsafe { mapping.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, length) };
            // Only a hint as well.
            drop(released);
        }
    }
}
