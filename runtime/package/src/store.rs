//! The packages on this machine: an OCI image layout in which files are found by their digests, and hashed whenever a
//! package is opened. The same type serves as a registry without a server, in any folder or on a USB stick, and reads
//! the layouts that other tools write.
//!
//! The index only helps to find packages: the name of a package is read from the package itself. Whether a package
//! may be used is decided by the trust in its signer.

mod choice;
mod error;
mod label;
mod layout;

use std::path::Path;

pub(crate) use choice::compare_versions;
pub(crate) use error::{ambiguous, no_package};
use layout::{Access, Layout};

use crate::artifact::document::Descriptor;
use crate::artifact::{LARGEST_DOCUMENT, MANIFEST, Parts};
use crate::constants::{MAX_COMPONENT_BYTES, STORE_FOLDER};
use crate::error::Reason;
use crate::signature::signer_of;
use crate::{Artifact, Error, digest, read_manifest};

/// The most bytes that are read to list the packages of other tools in a folder, which have no labels in the index.
const MAX_UNLABELED_BYTES: u64 = 1 << 30;

/// A package in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Where it was pulled from, without the version; empty in a folder that is not this user's store.
    pub source: String,
    /// SHA-256 of the component in hexadecimal.
    pub digest: String,
    /// The digest of its OCI manifest, as in `sha256:…`.
    pub manifest_digest: String,
    /// The size of the component in bytes.
    pub size: u64,
    /// The public key of its signer; `None` without a signature that fits the package.
    pub signer: Option<String>,
}

/// A search for a package; a field that is `None` matches every package.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted<'a> {
    /// Its name.
    pub name: Option<&'a str>,
    /// Its version. With `None`, the highest one is chosen.
    pub version: Option<&'a str>,
    /// Where it was pulled from.
    pub source: Option<&'a str>,
}

/// A folder of packages in OCI layout: this user's store, or any other folder.
#[derive(Debug, Clone)]
pub struct Store {
    layout: Layout,
}

impl Store {
    /// Opens the store, the folder `store` in a home folder, and creates it if it is missing. Errors: the folder cannot
    /// be created, or holds something else: no `oci-layout`, but an `index.json` or `blobs`.
    pub fn open(home: &Path) -> Result<Self, Error> {
        Ok(Self { layout: Layout::create(&home.join(STORE_FOLDER), Access::Private)? })
    }

    /// Opens an existing folder of packages, such as one on a USB stick. Errors: it is no image layout of version 1.
    pub fn folder(folder: &Path) -> Result<Self, Error> {
        Ok(Self { layout: Layout::open(folder, Access::Shared)? })
    }

    /// Opens a folder of packages, and creates it if it is missing. Errors: the folder cannot be created, or holds
    /// something else: no `oci-layout`, but an `index.json` or `blobs`.
    pub fn make_folder(folder: &Path) -> Result<Self, Error> {
        Ok(Self { layout: Layout::create(folder, Access::Shared)? })
    }

    /// Stores a package, replaces the one with the same name, version and source, and deletes files that are no longer
    /// needed. `source` is where it came from, without the version; empty in a folder that is not this user's store.
    /// Errors: bytes that are no package, or a folder that cannot be locked or written.
    pub fn put(&self, artifact: &Artifact, source: &str) -> Result<Stored, Error> {
        let documents = artifact.manifest()?;
        let stored = describe_package(artifact, source, documents.digest.clone())?;
        let descriptor = Descriptor {
            annotations: Some(label::annotations(&stored)),
            ..Descriptor::of(MANIFEST, &documents.manifest)
        };

        let _lock = self.layout.lock()?;
        for blob in [&artifact.wasm, &documents.configuration, &documents.manifest] {
            self.layout.write_blob(blob)?;
        }
        let mut index = self.layout.read_index()?;
        let former: Vec<Descriptor> =
            index.manifests.extract_if(.., |entry| label::can_replace(&stored, entry)).collect();
        index.manifests.push(descriptor);
        self.layout.write_index(&index)?;
        self.layout.delete_unneeded_blobs(&former, &index);
        Ok(stored)
    }

    /// Finds and reads the package that matches `wanted`, and hashes all its bytes; the highest version if `wanted`
    /// names none. Errors: no package matches, several of different names or sources match, its bytes have changed, or
    /// the index has another name or version than the package itself.
    pub fn find(&self, wanted: Wanted<'_>) -> Result<(Stored, Artifact), Error> {
        let _lock = self.layout.lock_shared();
        let known = self.list_packages(MAX_UNLABELED_BYTES)?;
        let chosen = choice::choose_package(&known, wanted, self.layout.shared_folder())?;
        let artifact = self.load(&chosen)?;
        let found = describe_package(&artifact, &chosen.source, chosen.manifest_digest.clone())?;
        if (&found.name, &found.version) != (&chosen.name, &chosen.version) {
            return Err(error::name_mismatch_error(
                &chosen.to_string(),
                &found.to_string(),
                self.layout.shared_folder(),
            ));
        }
        Ok((found, artifact))
    }

    /// Returns all packages, sorted by name, version and source. Errors: an index that cannot be read, or a package of
    /// another tool whose bytes have changed.
    pub fn list(&self) -> Result<Vec<Stored>, Error> {
        let _lock = self.layout.lock_shared();
        self.list_packages(MAX_UNLABELED_BYTES)
    }

    /// Deletes a stored package, found by its manifest's digest and its source, and the files that only it needs.
    /// Errors: it is not in the store, or a folder that cannot be locked or written.
    pub fn remove(&self, stored: &Stored) -> Result<(), Error> {
        let _lock = self.layout.lock()?;
        let mut index = self.layout.read_index()?;
        let is_this = |entry: &mut Descriptor| {
            (&entry.digest, label::entry_source(entry)) == (&stored.manifest_digest, &*stored.source)
        };
        let former: Vec<Descriptor> = index.manifests.extract_if(.., is_this).collect();
        if former.is_empty() {
            let wanted = Wanted { name: Some(&stored.name), version: Some(&stored.version), source: None };
            return Err(no_package(wanted, None, &[], self.layout.shared_folder()));
        }
        self.layout.write_index(&index)?;
        self.layout.delete_unneeded_blobs(&former, &index);
        Ok(())
    }

    /// Returns the packages that the index lists, sorted by name, version and source. Entries that other tools wrote
    /// have no labels, so their packages are read; entries that are no tunebox package are left out. Errors: those
    /// packages have more than `left` bytes in all, or bytes that have changed.
    fn list_packages(&self, mut left: u64) -> Result<Vec<Stored>, Error> {
        let mut known = Vec::new();
        for entry in &self.layout.read_index()?.manifests {
            match label::read_label(entry) {
                Some(stored) => known.push(stored),
                None => known.extend(self.read_unlabeled(entry, &mut left)?),
            }
        }
        known.sort_by(|left, right| {
            let by_name = left.name.cmp(&right.name);
            by_name
                .then_with(|| compare_versions(&left.version, &right.version))
                .then_with(|| left.source.cmp(&right.source))
        });
        Ok(known)
    }

    /// Reads a package that another tool wrote, to list it. Subtracts the bytes that it reads from `left`. `None` if
    /// the entry is no tunebox package. Errors: more bytes than `left`, or bytes that have changed.
    fn read_unlabeled(&self, entry: &Descriptor, left: &mut u64) -> Result<Option<Stored>, Error> {
        if entry.media_type != MANIFEST {
            return Ok(None);
        }
        let mut take = |size: u64| match left.checked_sub(size) {
            Some(rest) => {
                *left = rest;
                Ok(())
            }
            None => {
                let problem = "its packages of other tools have more bytes than are read to list them";
                Err(error::not_layout(self.layout.path(), problem))
            }
        };
        take(entry.size)?;
        let manifest = self.layout.read_blob("manifest", entry, LARGEST_DOCUMENT)?;
        match Parts::read(&manifest, Some(&entry.media_type)) {
            Ok(parts) => {
                take(parts.configuration.size + parts.layer.size)?;
                let artifact = self.read_parts(parts)?;
                // A component that is no method belongs to another program.
                Ok(describe_package(&artifact, "", entry.digest.clone()).ok())
            }
            Err(Error::Explained { reason: Reason::OtherKind, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads the package that the index lists under this manifest digest, and hashes every byte. Errors: it is no
    /// longer in the index, or its bytes have changed.
    fn load(&self, stored: &Stored) -> Result<Artifact, Error> {
        let index = self.layout.read_index()?;
        let entry = index.manifests.iter().find(|entry| entry.digest == stored.manifest_digest);
        let entry = entry.ok_or_else(|| {
            let why = format!("the index no longer lists the manifest {}", stored.manifest_digest);
            error::damaged("manifest", self.layout.path(), why, self.layout.shared_folder())
        })?;
        let manifest = self.layout.read_blob("manifest", entry, LARGEST_DOCUMENT)?;
        self.read_parts(Parts::read(&manifest, Some(&entry.media_type))?)
    }

    /// Reads the configuration and the component that `parts` names, and checks their sizes and digests. Errors: one of
    /// them is missing, too large or has changed, or those of [`Parts::assemble`].
    fn read_parts(&self, parts: Parts) -> Result<Artifact, Error> {
        let configuration = self.layout.read_blob("configuration", &parts.configuration, LARGEST_DOCUMENT)?;
        let wasm = self.layout.read_blob("package", &parts.layer, MAX_COMPONENT_BYTES)?;
        parts.assemble(&configuration, wasm)
    }
}

impl std::fmt::Display for Stored {
    /// Writes `NAME@VERSION from SOURCE`, or `NAME@VERSION` if the source is empty.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}@{}", self.name, self.version)?;
        if self.source.is_empty() { Ok(()) } else { write!(formatter, " from {}", self.source) }
    }
}

/// Describes a package by its bytes, `source` and the digest of its OCI manifest. A signature that does not verify
/// counts as none. Errors: those of [`read_manifest`].
fn describe_package(artifact: &Artifact, source: &str, manifest_digest: String) -> Result<Stored, Error> {
    let manifest = read_manifest(&artifact.wasm)?;
    Ok(Stored {
        name: manifest.name,
        version: manifest.version,
        source: source.to_owned(),
        digest: digest::sha256(&artifact.wasm),
        manifest_digest,
        size: artifact.wasm.len() as u64,
        // A signature that does not fit names no signer; `Trust` decides whether that is allowed.
        signer: signer_of(&artifact.wasm, artifact.signature.as_deref()),
    })
}

#[cfg(test)]
mod tests;
