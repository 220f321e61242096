//! What is compiled, kept between runs: a private folder, each entry under a digest that this program wrote itself.
//!
//! Whoever can write an entry can run code as this user, on the processor or a device, so the folder must be ours alone,
//! and everything goes through its handle: no path is looked up twice. An entry that does not hold what it should is
//! removed; what is kept is only ever a shortcut, so every fault of it means compiling anew.

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

/// The variable that names the folder of what is compiled; empty, nothing is kept.
const FOLDER: &str = "TUNEBOX_CACHE";

/// Bytes of a digest, which an entry begins with.
const DIGEST: usize = 32;
/// Entries begun and never finished are removed after so many seconds.
const DRAFT_SECONDS: i64 = 3600;

/// A folder of what is compiled.
#[derive(Debug)]
pub struct CodeCache {
    folder: OwnedFd,
    /// What the entries are: bytes of one kind are never taken for another.
    kind: &'static str,
    /// Bytes of the max_entry entry.
    max_entry: u64,
    /// Bytes of all entries together.
    max_total: u64,
}

impl CodeCache {
    /// Opens a folder for entries of a kind, and makes it if need be, with those above it: all of them ours alone. No
    /// entry is larger than `max_entry` bytes, and all together not than `max_total`.
    ///
    /// # Errors
    /// Why the folder cannot be trusted or used, in words.
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

    /// The bytes under a name; what is not an entry that this program wrote there is removed.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Vec<u8>> {
        let bytes = self.entry(name).and_then(|file| self.read(name, file));
        if bytes.is_none() {
            self.remove(name);
        }
        bytes
    }

    /// Keeps bytes under a name. Whatever goes wrong, the next run compiles again.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        // Several threads of one process may compile the same at one time.
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

    /// Removes an entry or a draft, if it is there.
    pub fn remove(&self, name: &str) {
        let _ = unlinkat(&self.folder, name, AtFlags::empty());
    }

    /// The open file of a name, if it is a plain file of ours that nobody else may write.
    fn entry(&self, name: &str) -> Option<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&self.folder, name, flags, Mode::empty()).ok()?;
        let about = fstat(&file).ok()?;
        let plain = FileType::from_raw_mode(about.st_mode) == FileType::RegularFile;
        let ours = about.st_uid == rustix::process::geteuid().as_raw() && about.st_mode & 0o022 == 0;
        (plain && ours).then(|| File::from(file))
    }

    /// What an entry holds, if it is whole.
    fn read(&self, name: &str, file: File) -> Option<Vec<u8>> {
        let mut entry = Vec::new();
        (&file).take(self.max_entry + 1).read_to_end(&mut entry).ok()?;
        let (digest, bytes) = entry.split_at_checked(DIGEST)?;
        if entry.len() as u64 > self.max_entry || *digest != self.entry_digest(name, bytes) {
            return None;
        }
        // An entry that is used is young again, so that the ones nobody needs go first.
        let _ = file.set_modified(SystemTime::now());
        Some(entry.split_off(DIGEST))
    }

    /// Writes a draft with its digest in front, and syncs it. None if that fails.
    fn write(&self, draft: &str, name: &str, bytes: &[u8]) -> Option<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(&self.folder, draft, flags, Mode::RUSR | Mode::WUSR).ok()?);
        let entry_digest = self.entry_digest(name, bytes);
        file.write_all(&entry_digest).and_then(|()| file.write_all(bytes)).and_then(|()| file.sync_all()).ok()
    }

    /// The digest of an entry: of its bytes, of what they are, and of the name that they are found by.
    fn entry_digest(&self, name: &str, bytes: &[u8]) -> [u8; DIGEST] {
        let digest = Sha256::new().chain_update(self.kind).chain_update([0]).chain_update(name).chain_update([0]);
        digest.chain_update(bytes).finalize().into()
    }

    /// Removes the oldest entries until the rest is within the bound, and what a crash left.
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
            } else if seconds_since(&about) > DRAFT_SECONDS {
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

/// The folder for entries of a kind, by default in this person's caches; none where nothing is to be kept.
#[must_use]
pub fn folder(kind: &str) -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(FOLDER) {
        return Some(PathBuf::from(named)).filter(|path| !path.as_os_str().is_empty()).map(|path| path.join(kind));
    }
    let caches = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let usual = if cfg!(target_os = "macos") { "Library/Caches" } else { ".cache" };
    let caches = caches.or_else(|| Some(std::env::home_dir()?.join(usual)))?;
    Some(caches.join("tunebox").join(kind))
}

/// Seconds since a file changed.
fn seconds_since(about: &Stat) -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX).saturating_sub(about.st_mtime)
}

#[cfg(test)]
mod tests;
