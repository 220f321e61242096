//! Compiled code kept between runs: a private folder, each entry under a digest that this program wrote itself.
//!
//! Whoever can write an entry can run code as this user, so the folder must be ours alone, and everything goes
//! through its handle: no path is looked up twice. An entry that does not hold what it should is removed; the
//! cache is only ever a shortcut, so every fault of it means compiling anew.

use std::fs::{DirBuilder, File};
use std::hash::{Hash, Hasher};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, openat, renameat, unlinkat};
use sha2::{Digest, Sha256};

use crate::precompiled::Trusted;

/// Changes whenever this file's format or the engine's settings change in a way that their own hash does not show.
const VERSION: u32 = 1;

/// The first bytes of an entry.
const MARK: &[u8; 16] = b"tunebox-code-1\r\n";

/// The bytes before the code: the mark, and the digest of name and code.
const HEADER: usize = MARK.len() + 32;

/// The largest entry, in bytes.
const ENTRY: u64 = 256 << 20;

/// Entries begun and never finished are removed after so many seconds.
const DRAFT_SECONDS: i64 = 3600;

/// What identifies compiled code: the component, the engine's settings, this format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key(String);

impl Key {
    /// The key of a component under an engine.
    pub(crate) fn of(engine: &wasmtime::Engine, component: &[u8]) -> Self {
        let mut settings = Stable(Sha256::new());
        engine.precompile_compatibility_hash().hash(&mut settings);
        VERSION.hash(&mut settings);
        Self(format!("{}-{:016x}", hexadecimal(&Sha256::digest(component)), settings.finish()))
    }
}

/// A folder of compiled code.
#[derive(Debug)]
pub(crate) struct Cache {
    folder: OwnedFd,
    /// Bytes of all entries together.
    most: u64,
}

impl Cache {
    /// Opens the folder, and makes it if need be. The error says why it cannot be trusted or used.
    pub(crate) fn open(path: &Path, most: u64) -> Result<Self, String> {
        let above = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        above.map_err(|error| error.to_string())?;
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error.to_string()),
            _ => {}
        }
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
        Ok(Self { folder, most })
    }

    /// The code under a key; an entry that is not what this program wrote is removed.
    pub(crate) fn get(&self, key: &Key) -> Option<Trusted> {
        let mut file = self.entry(key)?;
        let mut entry = Vec::new();
        let whole = (&mut file).take(ENTRY + 1).read_to_end(&mut entry).is_ok() && entry.len() as u64 <= ENTRY;
        let sound = whole && code_of(key, &entry).is_some();
        if !sound {
            self.remove(key);
            return None;
        }
        // An entry that is used is young again, so that the ones nobody needs go first.
        let _ = file.set_modified(std::time::SystemTime::now());
        entry.drain(..HEADER);
        Some(Trusted::own(entry))
    }

    /// Keeps code under a key. Whatever goes wrong, the next run compiles again.
    pub(crate) fn put(&self, key: &Key, code: &Trusted) {
        if code.bytes().len() as u64 + HEADER as u64 > ENTRY.min(self.most) {
            return;
        }
        let draft = format!(".{}-{}", std::process::id(), key.0);
        if self.write(&draft, key, code.bytes()).is_none() || self.rename(&draft, key).is_none() {
            let _ = unlinkat(&self.folder, draft.as_str(), AtFlags::empty());
            return;
        }
        self.sweep();
    }

    /// Removes the entry of a key.
    pub(crate) fn remove(&self, key: &Key) {
        let _ = unlinkat(&self.folder, key.0.as_str(), AtFlags::empty());
    }

    /// The open file of a key, if it is a plain file of ours.
    fn entry(&self, key: &Key) -> Option<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&self.folder, key.0.as_str(), flags, Mode::empty()).ok()?;
        let about = fstat(&file).ok()?;
        let plain = FileType::from_raw_mode(about.st_mode) == FileType::RegularFile;
        let ours = about.st_uid == rustix::process::geteuid().as_raw() && about.st_mode & 0o022 == 0;
        if !plain || !ours {
            self.remove(key);
            return None;
        }
        Some(File::from(file))
    }

    fn write(&self, name: &str, key: &Key, code: &[u8]) -> Option<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.folder, name, flags, Mode::RUSR | Mode::WUSR).ok()?;
        let mut file = File::from(file);
        file.write_all(MARK).and_then(|()| file.write_all(&seal(key, code))).ok()?;
        file.write_all(code).and_then(|()| file.sync_all()).ok()
    }

    fn rename(&self, draft: &str, key: &Key) -> Option<()> {
        renameat(&self.folder, draft, &self.folder, key.0.as_str()).ok()?;
        rustix::fs::fsync(&self.folder).ok()
    }

    /// Removes the oldest entries until the rest is within the bound, and what a crash left.
    fn sweep(&self) {
        let Ok(folder) = Dir::read_from(&self.folder) else { return };
        let mut entries: Vec<(i64, u64, std::ffi::CString)> = Vec::new();
        for entry in folder.flatten() {
            let name = entry.file_name();
            let Ok(about) = rustix::fs::statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            if FileType::from_raw_mode(about.st_mode) != FileType::RegularFile {
                continue;
            }
            if name.to_bytes().starts_with(b".") {
                if seconds_since(&about) > DRAFT_SECONDS {
                    let _ = unlinkat(&self.folder, name, AtFlags::empty());
                }
                continue;
            }
            entries.push((about.st_mtime, about.st_size.unsigned_abs(), name.to_owned()));
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

/// Seconds since a file changed.
fn seconds_since(about: &Stat) -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX).saturating_sub(about.st_mtime)
}

/// The code of an entry, if the entry is what this program wrote under that key.
fn code_of<'a>(key: &Key, entry: &'a [u8]) -> Option<&'a [u8]> {
    let (digest, code) = entry.strip_prefix(MARK)?.split_at_checked(HEADER - MARK.len())?;
    (!code.is_empty() && digest == seal(key, code)).then_some(code)
}

/// The digest of an entry: of the code, and of the name that it is found by.
fn seal(key: &Key, code: &[u8]) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(MARK);
    digest.update(key.0.as_bytes());
    digest.update([0]);
    digest.update(code);
    digest.finalize().into()
}

fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A hasher whose result is the same in every process.
struct Stable(Sha256);

impl Hasher for Stable {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let digest: [u8; 32] = self.0.clone().finalize().into();
        digest.iter().take(8).fold(0, |value, byte| value << 8 | u64::from(*byte))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn key(letter: char) -> Key {
        Key(letter.to_string().repeat(64))
    }

    fn code(length: usize) -> Trusted {
        Trusted::own((0..length).map(|place| place as u8).collect())
    }

    fn found(cache: &Cache, key: &Key) -> Option<usize> {
        cache.get(key).map(|code| code.bytes().len())
    }

    #[test]
    fn what_was_kept_is_found_and_the_folder_is_ours_alone() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("above/compiled");
        let cache = Cache::open(&path, 1 << 20).unwrap();
        cache.put(&key('a'), &code(1000));

        assert_eq!(found(&cache, &key('a')), Some(1000));
        assert_eq!(found(&cache, &key('b')), None);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1, "nothing but the entry is left");
    }

    #[test]
    fn an_entry_with_any_byte_changed_cut_or_under_another_name_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("compiled");
        let cache = Cache::open(&path, 1 << 20).unwrap();
        cache.put(&key('a'), &code(100));
        let file = path.join(&key('a').0);
        let whole = std::fs::read(&file).unwrap();
        let mut broken: Vec<Vec<u8>> = (0..whole.len()).map(|length| whole[..length].to_vec()).collect();
        broken.extend((0..whole.len()).map(|place| {
            let mut changed = whole.clone();
            changed[place] ^= 1;
            changed
        }));
        broken.push([&whole[..], b"more"].concat());
        for bytes in broken {
            std::fs::write(&file, &bytes).unwrap();
            assert_eq!(found(&cache, &key('a')), None);
            assert!(!file.exists(), "a broken entry stays");
        }
        std::fs::write(path.join(&key('b').0), &whole).unwrap();
        assert_eq!(found(&cache, &key('b')), None, "an entry under another name is taken");
        cache.put(&key('a'), &code(100));
        assert_eq!(found(&cache, &key('a')), Some(100), "it is not kept anew");
    }

    #[test]
    fn a_folder_that_others_may_enter_or_a_link_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("compiled");
        Cache::open(&path, 1).unwrap();
        for mode in [0o755, 0o770, 0o701] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(Cache::open(&path, 1).unwrap_err().contains("others may enter it"), "{mode:o}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        let link = place.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(Cache::open(&link, 1).unwrap_err().contains("a link"));
        let file = place.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(Cache::open(&file, 1).unwrap_err().contains("no folder"));
    }

    #[test]
    fn an_entry_that_is_a_link_or_that_others_may_write_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("compiled");
        let cache = Cache::open(&path, 1 << 20).unwrap();
        cache.put(&key('a'), &code(100));
        let elsewhere = place.path().join("elsewhere");
        std::fs::rename(path.join(&key('a').0), &elsewhere).unwrap();
        symlink(&elsewhere, path.join(&key('a').0)).unwrap();
        assert_eq!(found(&cache, &key('a')), None);

        cache.put(&key('a'), &code(100));
        std::fs::set_permissions(path.join(&key('a').0), std::fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(found(&cache, &key('a')), None);
    }

    #[test]
    fn the_oldest_entries_go_when_the_folder_is_full() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("compiled");
        let cache = Cache::open(&path, 3 * (1000 + HEADER as u64)).unwrap();
        for (age, letter) in ['a', 'b', 'c'].into_iter().enumerate() {
            cache.put(&key(letter), &code(1000));
            let time = std::time::SystemTime::now() - std::time::Duration::from_secs(100 - age as u64);
            File::options().write(true).open(path.join(&key(letter).0)).unwrap().set_modified(time).unwrap();
        }
        // Used just now, so not the oldest any more.
        assert_eq!(found(&cache, &key('a')), Some(1000));
        cache.put(&key('d'), &code(1000));

        assert_eq!(
            "abcd".chars().map(|letter| found(&cache, &key(letter)).is_some()).collect::<Vec<_>>(),
            [true, false, true, true]
        );
        cache.put(&key('e'), &code(10_000));
        assert_eq!(found(&cache, &key('e')), None, "larger than the whole");
    }
}
