//! Uploads and downloads packages: to and from any OCI registry, or a folder in OCI layout.
//!
//! A downloaded package is checked against its digests before it is returned; nothing is stored here. Logins come from
//! the file that `docker login` writes. Whether a package may be used is decided by the trust in its signer.

mod address;
mod agent;
mod connection;
mod error;
mod host;
mod location;
mod login;
mod remote;

use std::path::Path;

use connection::Connection;
use error::explain;
pub(crate) use error::no_version;
pub(crate) use host::{canonical_name, is_like_host, is_like_path};
use location::Kind;
pub use location::Location;
use semver::Version;

use crate::signature::signer_of;
use crate::store::{Store, Wanted};
use crate::{Artifact, Error, Manifest, files, read_manifest};

/// Receives the progress of a transfer: the package as `name:version`, the bytes transferred so far, and all its bytes.
pub type Progress<'a> = dyn FnMut(&str, u64, u64) + 'a;

/// Uploads a package to a registry or folder, and returns the digest of its OCI manifest. A version that exists with
/// the same bytes is not an error, unless a signer has signed it who has not signed this package. Errors: bytes that
/// are no package, a version that is no semantic version, a location that names another package or version, a version
/// that exists with other bytes or with a signature that this package lacks, and any failure of the network or the
/// registry.
pub fn push(location: &Location, artifact: &Artifact, progress: &mut Progress<'_>) -> Result<String, Error> {
    let manifest = read_manifest(&artifact.wasm)?;
    if Version::parse(&manifest.version).is_err() {
        return Err(Error::manifest(format!("its version `{}` is not like 1.2.3", manifest.version)));
    }
    let other = |named: Option<&str>, own: &str| named.is_some_and(|named| named != own);
    if other(location.name.as_deref(), &manifest.name) || other(location.version.as_deref(), &manifest.version) {
        let title = format!("{} {}", manifest.name, manifest.version);
        let hint = "leave the version out, and end the place with the package's name";
        return Err(explain(format!("the package is `{title}`, it cannot go to `{location}`"), hint).into());
    }
    match &location.kind {
        Kind::Folder(folder) => push_to_folder(folder, artifact, &manifest, progress),
        Kind::Remote(remote) => {
            let location = &Location { version: Some(manifest.version), ..location.clone() };
            remote::push(&mut Connection::new(location, remote, true)?, artifact, progress)
        }
    }
}

/// Fetches a package from a registry or folder, and returns it with the digest of its OCI manifest. Errors: no package
/// fits, or in a folder several; a place in a registry without a version; parts that differ from what the manifest
/// states; and any failure of the network or the registry.
pub fn pull(location: &Location, progress: &mut Progress<'_>) -> Result<(Artifact, String), Error> {
    match &location.kind {
        Kind::Folder(folder) => pull_from_folder(folder, location, progress),
        Kind::Remote(remote) => remote::pull(&mut Connection::new(location, remote, false)?, progress),
    }
}

/// Stores a package in a folder, and returns the digest of its OCI manifest. Creates the folder if it is missing.
/// `manifest` is the package's manifest; `progress` receives the whole size at once. Errors: the folder has this
/// version with other bytes, or with a signature that this package lacks; a folder that holds something else or cannot
/// be written.
fn push_to_folder(
    folder: &Path,
    artifact: &Artifact,
    manifest: &Manifest,
    progress: &mut Progress<'_>,
) -> Result<String, Error> {
    let store = Store::make_folder(folder)?;
    let place = format!("{}//{}:{}", folder.display(), manifest.name, manifest.version);
    let digest = crate::digest::sha256(&artifact.wasm);
    for there in store.list()?.iter().filter(|there| there.name == manifest.name && there.version == manifest.version) {
        check_existing_version(&place, artifact, there.digest == digest, there.signer.as_deref())?;
    }
    let stored = store.put(artifact, "")?;
    progress(&format!("{}:{}", stored.name, stored.version), stored.size, stored.size);
    Ok(stored.manifest_digest)
}

/// Fails unless a package may be pushed to a place that has its version already. `same_bytes` says whether the
/// component there has the same bytes. `signer` is the key that signed the package there: the new one must be signed by
/// it too; with `None`, any signature or none passes. `place` is the location for messages.
fn check_existing_version(
    place: &str,
    artifact: &Artifact,
    same_bytes: bool,
    signer: Option<&str>,
) -> Result<(), Error> {
    match signer {
        _ if !same_bytes => {
            let hint = "raise `version` in Cargo.toml or pyproject.toml, build and pack again";
            let error = explain(format!("there is another package at `{place}`"), hint);
            Err(error.with_why("what others have pinned under a version must not change").into())
        }
        Some(signer) if signer_of(&artifact.wasm, artifact.signature.as_deref()).as_deref() != Some(signer) => {
            let hint =
                "push it with the signature of that key beside it, or as a new version: `tunebox pack --sign KEY`";
            let error = explain(format!("the package at `{place}` has a signature that this one has not"), hint);
            Err(error.with_why(format!("{signer} signed it, and who pulls it goes by that")).into())
        }
        _ => Ok(()),
    }
}

/// Reads the package that `location` names from a folder, and returns it with the digest of its OCI manifest.
/// `progress` receives the whole size at once. Errors: no folder of packages, or no package or several that fit.
fn pull_from_folder(
    folder: &Path,
    location: &Location,
    progress: &mut Progress<'_>,
) -> Result<(Artifact, String), Error> {
    let wanted = Wanted { name: location.name.as_deref(), version: location.version.as_deref(), source: None };
    let store = Store::folder(folder).map_err(|error| explain_wrong_folder(folder).unwrap_or(error))?;
    let (stored, artifact) = store.find(wanted)?;
    progress(&format!("{}:{}", stored.name, stored.version), stored.size, stored.size);
    Ok((artifact, stored.manifest_digest))
}

/// Makes a more specific error for a path that is no folder of packages: if it is a file, or if its parent is a folder
/// of packages, so that two slashes are missing before a package's name. `None` in all other cases.
fn explain_wrong_folder(path: &Path) -> Option<Error> {
    let shown = path.display();
    if path.is_file() {
        let hint = format!("`tunebox inspect {shown}` looks at it, `--method` runs it as it is");
        return Some(explain(format!("`{shown}` is a file, not a folder of packages"), hint).into());
    }
    let above = files::parent(path);
    let package = path.file_name()?.to_str()?;
    Store::folder(above).ok()?;
    let above = above.display();
    let error = explain(format!("`{shown}` is no folder of packages"), format!("`tunebox pull {above}//{package}`"));
    Some(error.with_why(format!("`{above}` is one; two slashes stand between it and a package")).into())
}
