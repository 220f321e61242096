//! A cache of compiled code between runs: a private folder of entries, each with a digest that this program wrote.
//!
//! Whoever can write an entry can run code as this user, on the processor or a device. So only this user may access the
//! folder, and every file is opened relative to its handle: no path is looked up twice. An entry whose digest does not
//! match is removed. Any failure only means that the code is compiled again.

use std::ffi::CString;
use std::fs::{DirBuilder, File};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, fsync, openat, renameat, statat, unlinkat};
use sha2::{Digest as _, Sha256};
use tunebox_foundation::environment;

/// The environment variable with the folder of all caches; if it is set but empty, nothing is cached.
const FOLDER: &str = "TUNEBOX_CACHE";

/// Bytes of the digest at the start of an entry.
const DIGEST: usize = 32;
/// Age in seconds from which an unfinished entry is removed.
const DRAFT_SECONDS: i64 = 3600;

/// A folder of compiled code.
#[derive(Debug)]
pub struct CodeCache {
    folder: OwnedFd,
    /// What the entries contain. Part of each digest, so that an entry is not valid in a cache of another kind.
    kind: &'static str,
    /// The most bytes of one entry.
    max_entry: u64,
    /// The most bytes of all entries together.
    max_total: u64,
}

impl CodeCache {
    /// Opens the folder `path` for cache entries. Creates it and its missing parents with mode 700; changes nothing
    /// about a folder that exists. `kind` says what the entries contain; it is part of each digest. `max_entry` limits
    /// the bytes of one entry, its digest of 32 bytes included, and `max_total` those of all entries together.
    ///
    /// # Errors
    /// A text that says why the folder cannot be used or trusted: it cannot be created, is a link, belongs to another
    /// user, or gives the group or other users any permission.
    pub fn open(path: &Path, kind: &'static str, max_entry: u64, max_total: u64) -> Result<Self, String> {
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => "it is a link or no folder".to_owned(),
            _ => error.to_string(),
        })?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| match error {
            rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR => "it is a link or no folder".to_owned(),
            other => std::io::Error::from(other).to_string(),
        })?;
        let about = fstat(&folder).map_err(|error| std::io::Error::from(error).to_string())?;
        if about.st_uid != rustix::process::geteuid().as_raw() {
            return Err("it belongs to another user".into());
        }
        if about.st_mode & 0o077 != 0 {
            return Err("others may enter it (`chmod 700` closes it)".into());
        }
        Ok(Self { folder, kind, max_entry, max_total })
    }

    /// Returns the bytes stored under `name`, and sets the entry's modification time to now. `None` if there is no
    /// entry, or an invalid one, which is removed: a damaged or too large one, a link, or a file that another user owns
    /// or may write.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Vec<u8>> {
        let bytes = self.open_entry(name).and_then(|file| self.read(name, file));
        if bytes.is_none() {
            self.remove(name);
        }
        bytes
    }

    /// Stores bytes under `name` in place of an older entry: writes a draft, renames it, and syncs both file and
    /// folder. Then removes drafts older than an hour, and the entries that were not used for longest until the rest
    /// fits into `max_total`. Does nothing if the entry with its digest is larger than `max_entry` or `max_total`.
    /// Errors are ignored, since a lost entry only means compiling again.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        // Numbers drafts, since several threads of one process may store the same entry at one time.
        static DRAFTS: AtomicU64 = AtomicU64::new(0);
        if (bytes.len() + DIGEST) as u64 > self.max_entry.min(self.max_total) {
            return;
        }
        let draft = format!(".{}-{}-{name}", std::process::id(), DRAFTS.fetch_add(1, Ordering::Relaxed));
        let kept = self.write(&draft, name, bytes);
        if kept.and_then(|()| renameat(&self.folder, &*draft, &self.folder, name).ok()).is_none() {
            return self.remove(&draft);
        }
        let _ = fsync(&self.folder);
        self.sweep();
    }

    /// Removes the entry or draft with the file name `name`; does nothing if it does not exist. Errors are ignored.
    pub fn remove(&self, name: &str) {
        let _ = unlinkat(&self.folder, name, AtFlags::empty());
    }

    /// Opens the file of the entry `name` for reading. `None` if it does not exist, is not an ordinary file (a link is
    /// none), belongs to another user, or is writable by its group or all users.
    fn open_entry(&self, name: &str) -> Option<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&self.folder, name, flags, Mode::empty()).ok()?;
        let about = fstat(&file).ok()?;
        let plain = FileType::from_raw_mode(about.st_mode) == FileType::RegularFile;
        let ours = about.st_uid == rustix::process::geteuid().as_raw() && about.st_mode & 0o022 == 0;
        (plain && ours).then(|| File::from(file))
    }

    /// Reads the entry `name` from its file, checks its size and digest, and returns its bytes without the digest. Sets
    /// the modification time to now, so that unused entries are removed first. `None` if the entry is damaged, or
    /// larger than `max_entry`; of such a file at most `max_entry + 1` bytes are read.
    fn read(&self, name: &str, file: File) -> Option<Vec<u8>> {
        let mut entry = Vec::new();
        (&file).take(self.max_entry + 1).read_to_end(&mut entry).ok()?;
        let (digest, bytes) = entry.split_at_checked(DIGEST)?;
        if entry.len() as u64 > self.max_entry || *digest != self.entry_digest(name, bytes) {
            return None;
        }
        let _ = file.set_modified(SystemTime::now());
        Some(entry.split_off(DIGEST))
    }

    /// Creates the file `draft` with mode 600, writes the digest of the entry `name` and then the bytes, and syncs it.
    /// `None` if that fails, also if the file exists already; an unfinished file may be left then.
    fn write(&self, draft: &str, name: &str, bytes: &[u8]) -> Option<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(&self.folder, draft, flags, Mode::RUSR | Mode::WUSR).ok()?);
        let entry_digest = self.entry_digest(name, bytes);
        file.write_all(&entry_digest).and_then(|()| file.write_all(bytes)).and_then(|()| file.sync_all()).ok()
    }

    /// The SHA-256 over the cache's kind, a zero byte, the entry's name, a zero byte and the entry's bytes. So an entry
    /// is valid only under its own name.
    fn entry_digest(&self, name: &str, bytes: &[u8]) -> [u8; DIGEST] {
        let digest = Sha256::new().chain_update(self.kind).chain_update([0]).chain_update(name).chain_update([0]);
        digest.chain_update(bytes).finalize().into()
    }

    /// Removes drafts (names that begin with a dot) older than an hour, then the entries that were not used for longest
    /// until the rest fits into `max_total`. Ignores errors, and leaves alone what is no ordinary file.
    fn sweep(&self) {
        let Ok(folder) = Dir::read_from(&self.folder) else { return };
        let mut entries: Vec<(i64, u64, CString)> = Vec::new();
        for entry in folder.flatten() {
            let name = entry.file_name();
            let Ok(about) = statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            if FileType::from_raw_mode(about.st_mode) != FileType::RegularFile {
                continue;
            }
            if !name.to_bytes().starts_with(b".") {
                entries.push((about.st_mtime, about.st_size.unsigned_abs(), name.to_owned()));
            } else if seconds_since_modified(&about) > DRAFT_SECONDS {
                let _ = unlinkat(&self.folder, name, AtFlags::empty());
            }
        }
        entries.sort();
        let mut total: u64 = entries.iter().map(|(_, size, _)| size).sum();
        for (_, size, name) in entries {
            if total <= self.max_total {
                return;
            }
            total -= size;
            let _ = unlinkat(&self.folder, name.as_c_str(), AtFlags::empty());
        }
    }
}

/// The folder of cache entries of a kind: `<kind>` below `TUNEBOX_CACHE`, else `tunebox/<kind>` below the user's cache
/// folder. That is `XDG_CACHE_HOME` if it is an absolute path, else `.cache` (on macOS `Library/Caches`) in the home
/// folder. `None` if `TUNEBOX_CACHE` is set but empty (nothing is to be cached), or no home folder is known. Creates
/// nothing.
#[must_use]
pub fn folder(kind: &str) -> Option<PathBuf> {
    if let Some(named) = environment::variable(FOLDER) {
        return Some(PathBuf::from(named)).filter(|path| !path.as_os_str().is_empty()).map(|path| path.join(kind));
    }
    let caches = environment::variable("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let usual = if cfg!(target_os = "macos") { "Library/Caches" } else { ".cache" };
    let caches = caches.or_else(|| Some(environment::home_folder()?.join(usual)))?;
    Some(caches.join("tunebox").join(kind))
}

/// Seconds since a file was last modified; negative if its modification time lies in the future.
fn seconds_since_modified(file: &Stat) -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX).saturating_sub(file.st_mtime)
}

#[cfg(test)]
mod tests;
