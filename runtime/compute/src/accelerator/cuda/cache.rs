//! Machine code kept between runs: a private folder, each entry under the digest of everything that went into it.
//!
//! Whoever can write an entry can run code on the device as this user, so the folder must be ours alone, and everything
//! goes through its handle: no path is looked up twice. The cache is only ever a shortcut, so every fault of it means
//! compiling anew.

use std::ffi::CString;
use std::fs::{DirBuilder, File};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, openat, renameat, statat, unlinkat};
use sha2::{Digest, Sha256};

/// The variable that names the folder of what is compiled; empty, nothing is kept.
const FOLDER: &str = "TUNEBOX_CACHE";
/// Bytes of a digest, which an entry begins with.
const DIGEST: usize = 32;
/// The largest entry, in bytes.
const ENTRY: u64 = 64 << 20;
/// Bytes of all entries together.
const MOST: u64 = 256 << 20;
/// Entries begun and never finished are removed after so many seconds.
const DRAFT_SECONDS: i64 = 3600;

/// A folder of machine code.
pub(super) struct Cache {
    folder: OwnedFd,
    /// Bytes of all entries together.
    most: u64,
}

impl Cache {
    /// `kernels` in the folder of what is compiled, by default in that of the person's caches; none where nothing is to be
    /// kept, or the folder is not ours alone.
    pub(super) fn of_person() -> Option<Self> {
        Self::open(&folder()?, MOST).ok()
    }

    /// Opens the folder, and makes it if need be, with those above it: all of them ours alone, since others keep what is
    /// compiled there too. The error says why it cannot be trusted or used.
    fn open(path: &Path, most: u64) -> Result<Self, String> {
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| error.to_string())?;
        let words = |error: rustix::io::Errno| std::io::Error::from(error).to_string();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::open(path, flags, Mode::empty()).map_err(words)?;
        let about = fstat(&folder).map_err(words)?;
        if about.st_uid != rustix::process::geteuid().as_raw() {
            return Err("it belongs to another user".into());
        }
        if about.st_mode & 0o077 != 0 {
            return Err("others may enter it".into());
        }
        Ok(Self { folder, most })
    }

    /// The machine code under a name; what is not an entry that this program wrote there is removed.
    pub(super) fn get(&self, name: &str) -> Option<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&self.folder, name, flags, Mode::empty()).ok();
        let code = file.and_then(|file| code_of(name, file));
        if code.is_none() {
            self.remove(name);
        }
        code
    }

    /// Keeps machine code under a name. Whatever goes wrong, the next start compiles again.
    pub(super) fn put(&self, name: &str, code: &[u8]) {
        // Devices of one process may compile the same text at one time.
        static DRAFTS: AtomicU64 = AtomicU64::new(0);
        if (code.len() + DIGEST) as u64 > ENTRY.min(self.most) {
            return;
        }
        let draft = format!(".{}-{}-{name}", std::process::id(), DRAFTS.fetch_add(1, Ordering::Relaxed));
        let kept = self.write(&draft, name, code);
        if kept.and_then(|()| renameat(&self.folder, &*draft, &self.folder, name).ok()).is_none() {
            return self.remove(&draft);
        }
        self.sweep();
    }

    /// Removes an entry or a draft, if it is there.
    fn remove(&self, name: &str) {
        let _ = unlinkat(&self.folder, name, AtFlags::empty());
    }

    fn write(&self, draft: &str, name: &str, code: &[u8]) -> Option<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(&self.folder, draft, flags, Mode::RUSR | Mode::WUSR).ok()?);
        file.write_all(&seal(name, code)).and_then(|()| file.write_all(code)).and_then(|()| file.sync_all()).ok()
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
            if total <= self.most {
                return;
            }
            total -= size;
            let _ = unlinkat(&self.folder, name.as_c_str(), AtFlags::empty());
        }
    }
}

/// Where machine code is kept, if it is to be.
fn folder() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(FOLDER) {
        return Some(PathBuf::from(named)).filter(|path| !path.as_os_str().is_empty()).map(|path| path.join("kernels"));
    }
    let caches = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let caches = caches.or_else(|| Some(std::env::home_dir()?.join(".cache")))?;
    Some(caches.join("tunebox").join("kernels"))
}

/// The machine code of an entry, if it is a plain file of ours that nobody else may write, and whole.
fn code_of(name: &str, file: OwnedFd) -> Option<Vec<u8>> {
    let about = fstat(&file).ok()?;
    let plain = FileType::from_raw_mode(about.st_mode) == FileType::RegularFile;
    if !plain || about.st_uid != rustix::process::geteuid().as_raw() || about.st_mode & 0o022 != 0 {
        return None;
    }
    let (file, mut entry) = (File::from(file), Vec::new());
    (&file).take(ENTRY + 1).read_to_end(&mut entry).ok()?;
    let (digest, code) = entry.split_at_checked(DIGEST)?;
    if entry.len() as u64 > ENTRY || *digest != seal(name, code) {
        return None;
    }
    // An entry that is used is young again, so that the ones nobody needs go first.
    let _ = file.set_modified(SystemTime::now());
    Some(entry.split_off(DIGEST))
}

/// The digest of an entry: of the machine code, and of the name that it is found by.
fn seal(name: &str, code: &[u8]) -> [u8; DIGEST] {
    Sha256::new().chain_update(name).chain_update([0]).chain_update(code).finalize().into()
}

/// Seconds since a file changed.
fn seconds_since(about: &Stat) -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX).saturating_sub(about.st_mtime)
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn opened(path: &Path) -> Cache {
        Cache::open(path, 1 << 20).unwrap()
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn machine_code_comes_back_and_every_folder_that_is_made_is_ours_alone() {
        let place = tempfile::tempdir().unwrap();
        // The first is where other rooms keep what they compile: they refuse a folder that others may enter.
        let path = place.path().join("named/kernels");
        let cache = opened(&path);
        assert_eq!(cache.get("a"), None);
        cache.put("a", b"machine code");
        assert_eq!(cache.get("a").as_deref(), Some(&b"machine code"[..]));
        assert_eq!([mode(&place.path().join("named")), mode(&path), mode(&path.join("a"))], [0o700, 0o700, 0o600]);
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1, "a draft is left");
    }

    #[test]
    fn an_entry_that_is_changed_cut_or_under_another_name_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("kernels");
        let (cache, file) = (opened(&path), path.join("a"));
        cache.put("a", b"machine code");
        let whole = std::fs::read(&file).unwrap();
        let mut changed = whole.clone();
        changed[DIGEST] ^= 1;
        for bytes in [&changed[..], &whole[..whole.len() - 1], b"short", b""] {
            std::fs::write(&file, bytes).unwrap();
            assert_eq!(cache.get("a"), None);
            assert!(!file.exists(), "a broken entry stays");
        }
        std::fs::write(path.join("b"), &whole).unwrap();
        assert_eq!(cache.get("b"), None);
    }

    #[test]
    fn a_folder_that_others_may_enter_or_a_link_keeps_nothing() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("kernels");
        opened(&path);
        for mode in [0o777, 0o755, 0o770, 0o701] {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert!(Cache::open(&path, 1 << 20).is_err_and(|why| why.contains("others")), "{mode:o}");
        }
        set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        opened(&path);
        let link = place.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(Cache::open(&link, 1 << 20).is_err());
    }

    #[test]
    fn an_entry_that_is_a_link_or_that_others_may_write_is_not_run() {
        let place = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (place.path().join("kernels"), place.path().join("elsewhere"));
        let cache = opened(&path);
        cache.put("a", b"machine code");
        std::fs::rename(path.join("a"), &elsewhere).unwrap();
        symlink(&elsewhere, path.join("a")).unwrap();
        assert_eq!(cache.get("a"), None);
        assert!(elsewhere.exists());

        cache.put("a", b"machine code");
        set_permissions(path.join("a"), Permissions::from_mode(0o620)).unwrap();
        assert_eq!(cache.get("a"), None);
    }

    #[test]
    fn a_link_in_the_place_of_an_entry_is_replaced_and_its_target_left() {
        let place = tempfile::tempdir().unwrap();
        let (path, victim) = (place.path().join("kernels"), place.path().join("victim"));
        let cache = opened(&path);
        std::fs::write(&victim, "mine").unwrap();
        symlink(&victim, path.join("a")).unwrap();
        cache.put("a", b"machine code");
        assert_eq!(cache.get("a").as_deref(), Some(&b"machine code"[..]));
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "mine");
    }

    #[test]
    fn the_oldest_entries_and_old_drafts_go() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("kernels");
        let cache = Cache::open(&path, 2 * (1000 + DIGEST as u64)).unwrap();
        let hours_ago = |hours: u64| SystemTime::now() - std::time::Duration::from_secs(3600 * hours);
        let age = |name: &str, hours| {
            File::options().append(true).open(path.join(name)).unwrap().set_modified(hours_ago(hours)).unwrap();
        };
        std::fs::write(path.join(".1-0-x"), "half").unwrap();
        age(".1-0-x", 2);
        for (name, hours) in [("a", 5), ("b", 3)] {
            cache.put(name, &[1; 1000]);
            age(name, hours);
        }
        cache.put("c", &[1; 1000]);
        let entries = std::fs::read_dir(&path).unwrap();
        let mut left: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["b", "c"]);
    }
}
