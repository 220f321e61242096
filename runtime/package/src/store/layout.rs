//! The files of an OCI image layout: `oci-layout`, `index.json` and `blobs/sha256`.
//!
//! Every file appears whole or not at all, every blob is hashed when it is read, and every writer holds the lock.
//! Which packages there are is left to the store.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tunebox_foundation::bounded;
use tunebox_foundation::explain::Explain;

use super::error::{damaged, not_layout};
use crate::Error;
use crate::artifact::document::{Descriptor, ImageManifest, SCHEMA, read};
use crate::artifact::{LARGEST_DOCUMENT, MANIFEST, check_size};
use crate::digest::sha256;
use crate::file_lock::{LOCK_TIMEOUT, lock_exclusive, wait_for_lock};
use crate::files::{self, TEMPORARY_PREFIX, replace};

const MARK_FILE: &str = "oci-layout";
const INDEX_FILE: &str = "index.json";
const BLOB_FOLDER: &str = "blobs";
const LOCK_FILE: &str = "index.lock";

const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
const MAX_INDEX_BYTES: u64 = 16 << 20;
/// The most entries of an index.
const MAX_ENTRIES: usize = 10_000;

/// How long a reader waits for a writer, before it reads without the lock.
const READ_LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// The permissions of `index.json` and `oci-layout` (`READABLE`), and of blobs (`READ_ONLY`): all users may read them.
const READABLE: u32 = 0o644;
const READ_ONLY: u32 = 0o444;

/// Who may look into a folder that is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// This user.
    Private,
    /// All users: the folder, or the stick that it lies on, is passed on.
    Shared,
}

/// The content of the file `oci-layout`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LayoutMark {
    image_layout_version: String,
}

/// The content of `index.json`, which lists the artifacts of the layout.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Index {
    schema_version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    media_type: Option<String>,
    /// One entry for each artifact.
    pub(super) manifests: Vec<Descriptor>,
    /// Fields that other tools added.
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl Index {
    /// Makes an index without entries.
    fn empty() -> Self {
        Self { schema_version: SCHEMA, media_type: Some(INDEX_TYPE.into()), manifests: Vec::new(), rest: Map::new() }
    }
}

/// A folder in OCI image layout.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    folder: PathBuf,
    access: Access,
    /// How long to wait for a lock that another process holds.
    pub(super) timeout: Duration,
}

impl Layout {
    /// Opens an existing layout. Errors: no such folder, no `oci-layout` in it, or one whose version does not begin
    /// with `1.`.
    pub(super) fn open(folder: &Path, access: Access) -> Result<Self, Error> {
        let layout = Self::new(folder, access);
        let Some(text) = layout.read_small_file(MARK_FILE)? else {
            let problem = if folder.exists() {
                format!("there is no `{MARK_FILE}` in it")
            } else {
                "there is no such folder".into()
            };
            return Err(not_layout(folder, problem));
        };
        let mark: LayoutMark = read(MARK_FILE, &text).map_err(|error| not_layout(folder, error.to_string()))?;
        if !mark.image_layout_version.starts_with("1.") {
            return Err(not_layout(folder, "its layout is of a later version than 1"));
        }
        Ok(layout)
    }

    /// Opens a layout, and creates it if it is missing; `access` says who may look into a new folder. An empty folder
    /// becomes one, and so does one with other files. Errors: a folder with `index.json` or `blobs`, but no
    /// `oci-layout`; one that cannot be created, written or locked; or those of [`open`](Self::open).
    pub(super) fn create(folder: &Path, access: Access) -> Result<Self, Error> {
        let layout = Self::new(folder, access);
        match access {
            Access::Private => files::create_private_folder(folder)?,
            Access::Shared => files::create_folder(folder)?,
        }
        if !folder.join(MARK_FILE).exists() {
            let _lock = layout.lock()?;
            // Another process may have made it meanwhile.
            if !folder.join(MARK_FILE).exists() {
                if let Some(taken) = [INDEX_FILE, BLOB_FOLDER].into_iter().find(|name| folder.join(name).exists()) {
                    return Err(not_layout(folder, format!("there is a `{taken}` in it, but no `{MARK_FILE}`")));
                }
                replace(&folder.join(MARK_FILE), b"{\n  \"imageLayoutVersion\": \"1.0.0\"\n}", READABLE)?;
                layout.write_index(&Index::empty())?;
            }
        }
        Self::open(folder, access)
    }

    /// Makes a layout value for a folder, without looking at the folder.
    fn new(folder: &Path, access: Access) -> Self {
        Self { folder: folder.to_owned(), access, timeout: LOCK_TIMEOUT }
    }

    /// Returns the layout's folder.
    pub(super) fn path(&self) -> &Path {
        &self.folder
    }

    /// Returns the folder for messages, or `None` if it is this user's own store.
    pub(super) fn shared_folder(&self) -> Option<&Path> {
        Some(self.folder.as_path()).filter(|_| self.access == Access::Shared)
    }

    /// Takes the exclusive lock for writing, and deletes temporary files that killed writers left. Dropping the
    /// returned file releases the lock. Errors: a disk that cannot be written, a lock that is no ordinary file, or
    /// another process that keeps it for longer than `timeout`, by default 60 s.
    pub(super) fn lock(&self) -> Result<File, Error> {
        let path = self.folder.join(LOCK_FILE);
        if fs::symlink_metadata(&path).is_ok_and(|about| !about.is_file()) {
            let error = std::io::Error::other("it is no ordinary file");
            return Err(Error::file("locked", &path)(error));
        }
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file =
            lock_exclusive(open.map_err(Error::file("written", &path))?, &path, Instant::now() + self.timeout, || {})?;
        for folder in [self.folder.clone(), self.blob_folder()] {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                if entry.file_name().to_string_lossy().starts_with(TEMPORARY_PREFIX) {
                    // A temporary file that cannot be deleted only takes space.
                    fs::remove_file(entry.path()).ok();
                }
            }
        }
        Ok(file)
    }

    /// Takes the shared lock, which keeps others from deleting files while this process reads. `None` if the lock is
    /// missing, is no ordinary file, cannot be opened, or is held by a writer for longer than the
    /// layout waits, 10 s at most. Reading without it is safe, since all bytes are hashed, but a file may be gone.
    pub(super) fn lock_shared(&self) -> Option<File> {
        let path = self.folder.join(LOCK_FILE);
        let ordinary = fs::symlink_metadata(&path).is_ok_and(|about| about.is_file());
        let file = ordinary.then(|| File::open(path))?.ok()?;
        let end = Instant::now() + self.timeout.min(READ_LOCK_TIMEOUT);
        matches!(wait_for_lock(&file, File::try_lock_shared, end), Ok(true)).then_some(file)
    }

    /// Reads and checks `index.json`; an empty index if there is none. Errors: malformed JSON, a `schemaVersion` other
    /// than 2, more than 10,000 entries or 16 MiB.
    pub(super) fn read_index(&self) -> Result<Index, Error> {
        let Some(text) = self.read_small_file(INDEX_FILE)? else { return Ok(Index::empty()) };
        let index: Index = read(INDEX_FILE, &text).map_err(|error| {
            let why = error.why().unwrap_or_default();
            not_layout(&self.folder, format!("`{INDEX_FILE}` cannot be used: {why}"))
        })?;
        if index.schema_version != SCHEMA {
            return Err(not_layout(&self.folder, "its index has another form"));
        }
        self.check_count(&index)?;
        Ok(index)
    }

    /// Replaces `index.json` atomically. The lock must be held. Errors: more than 10,000 entries, or a folder that
    /// cannot be written.
    pub(super) fn write_index(&self, index: &Index) -> Result<(), Error> {
        self.check_count(index)?;
        replace(&self.folder.join(INDEX_FILE), format!("{:#}", json!(index)).as_bytes(), READABLE)
    }

    /// Fails if an index has more than [`MAX_ENTRIES`] entries.
    fn check_count(&self, index: &Index) -> Result<(), Error> {
        match index.manifests.len() {
            ..=MAX_ENTRIES => Ok(()),
            count => {
                let problem = format!("its index has {count} entries, {MAX_ENTRIES} may be in one");
                Err(not_layout(&self.folder, problem))
            }
        }
    }

    /// Reads the blob that a descriptor names, of at most `limit` bytes, and checks its size and digest. `what` names
    /// it in errors. Errors: it is missing, has changed, or is too large.
    pub(super) fn read_blob(&self, what: &str, entry: &Descriptor, limit: u64) -> Result<Vec<u8>, Error> {
        check_size(what, entry.size, limit)?;
        let path = self.blob_folder().join(entry.hexadecimal(what)?);
        let bytes = bounded::read(&path, limit).map_err(|error| match error.kind() {
            ErrorKind::NotFound => damaged(what, &path, "the file is missing", self.shared_folder()),
            _ => Error::file("read", &path)(error),
        })?;
        match entry.check(what, &bytes) {
            Ok(()) => Ok(bytes),
            Err(error) => Err(damaged(what, &path, error.why().unwrap_or_default(), self.shared_folder())),
        }
    }

    /// Stores bytes as a blob, named by their digest. Does nothing if it is there unaltered. The lock must be held.
    pub(super) fn write_blob(&self, bytes: &[u8]) -> Result<(), Error> {
        let folder = self.blob_folder();
        files::create_folder(&folder)?;
        let path = folder.join(sha256(bytes));
        // A torn or edited file is replaced, not trusted by its name.
        if files::has_content(&path, bytes) { Ok(()) } else { replace(&path, bytes, READ_ONLY) }
    }

    /// Deletes the blobs that the removed entries `former` refer to and no entry of `index` does. Deletes nothing if an
    /// entry of `index` is damaged or no image manifest. A file that cannot be deleted stays. The lock must be held,
    /// and `index` must be written already.
    pub(super) fn delete_unneeded_blobs(&self, former: &[Descriptor], index: &Index) {
        let needed: Option<Vec<_>> = index.manifests.iter().map(|entry| self.referenced_blobs(entry)).collect();
        // An entry that cannot be read may refer to any blob, so nothing is deleted then.
        let Some(needed) = needed else { return };
        let needed: BTreeSet<String> = needed.into_iter().flatten().collect();
        let gone = former.iter().filter_map(|entry| self.referenced_blobs(entry)).flatten();
        for name in gone.filter(|name| !needed.contains(name)) {
            // A file that cannot be deleted only takes space.
            fs::remove_file(self.blob_folder().join(name)).ok();
        }
    }

    /// Returns the blobs that an entry needs, by the hexadecimal digits of their digests: its manifest, configuration
    /// and layers. `None` if the entry is no image manifest, or is damaged.
    fn referenced_blobs(&self, entry: &Descriptor) -> Option<Vec<String>> {
        if entry.media_type != MANIFEST {
            return None;
        }
        let bytes = self.read_blob("manifest", entry, LARGEST_DOCUMENT).ok()?;
        let manifest: ImageManifest = read("manifest", &bytes).ok()?;
        let all = [entry, &manifest.config].into_iter().chain(&manifest.layers);
        all.map(|part| part.hexadecimal("manifest").ok().map(str::to_owned)).collect()
    }

    /// Returns the folder of the blobs, `blobs/sha256` in the layout.
    fn blob_folder(&self) -> PathBuf {
        self.folder.join(BLOB_FOLDER).join("sha256")
    }

    /// Reads a file at the top of the layout, of at most 16 MiB. `None` if there is none.
    fn read_small_file(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let path = self.folder.join(name);
        match bounded::read(&path, MAX_INDEX_BYTES) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(Error::file("read", &path)(error)),
        }
    }
}
