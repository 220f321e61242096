//! Packages to and from other machines: any OCI registry, or a folder in the same form.
//!
//! What comes is checked against its digests before it is handed on, and nothing is kept here. Logging in goes through
//! the file that `docker login` writes. Whether a package may be used is left to the trust in its signer.

mod address;
mod agent;
mod connection;
mod error;
mod login;
mod place;
mod remote;

use connection::Connection;
pub use error::RegistryError;
pub use place::Place;
use place::{Folder, Kind};
use semver::Version;

use crate::store::{Store, Wanted};
use crate::{Artefact, Error, Manifest, read_manifest};

/// Who is told how far a transfer is.
pub trait Progress {
    /// Something of so many bytes begins.
    fn start(&mut self, what: &str, total: u64);
    /// So many more bytes of it are through.
    fn advance(&mut self, bytes: u64);
}

/// Nobody is told.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn start(&mut self, _what: &str, _total: u64) {}

    fn advance(&mut self, _bytes: u64) {}
}

/// Puts a package into its place and gives the digest of its manifest. A version that is there with other bytes stays.
/// Errors: bytes that are no package, a place for another one, and everything that a network and a registry can do.
pub fn push(place: &Place, artefact: &Artefact, progress: &mut dyn Progress) -> Result<String, RegistryError> {
    let about = read_manifest(&artefact.wasm)?;
    if Version::parse(&about.version).is_err() {
        return Err(Error::manifest(format!("its version `{}` is not like 1.2.3", about.version)).into());
    }
    let other = |named: Option<&str>, own: &str| named.is_some_and(|named| named != own);
    if other(place.name(), &about.name) || other(place.version(), &about.version) {
        let title = format!("{} {}", about.name, about.version);
        return Err(RegistryError::Misnamed { place: place.to_string(), title });
    }
    match &place.kind {
        Kind::Folder(folder) => put(folder, artefact, &about, progress),
        Kind::Remote(remote) => {
            let connection = &mut Connection::new(place, remote, true)?;
            remote::push(connection, &remote.of_version(&about.version), artefact, progress)
        }
    }
}

/// Fetches a package, and gives the digest of its manifest with it. Errors: it is not there or not what its manifest
/// names, and everything that a network and a registry can do.
pub fn pull(place: &Place, progress: &mut dyn Progress) -> Result<(Artefact, String), RegistryError> {
    match &place.kind {
        Kind::Folder(folder) => take(folder, progress),
        Kind::Remote(remote) => remote::pull(&mut Connection::new(place, remote, false)?, remote, progress),
    }
}

/// Puts a package into a folder.
fn put(
    folder: &Folder,
    artefact: &Artefact,
    about: &Manifest,
    progress: &mut dyn Progress,
) -> Result<String, RegistryError> {
    let store = Store::make_folder(&folder.path)?;
    let digest = crate::digest::sha256(&artefact.wasm);
    let same = |name: &str, version: &str| name == about.name && version == about.version;
    if store.list()?.iter().any(|there| same(&there.name, &there.version) && there.digest != digest) {
        let place = format!("{}//{}:{}", folder.path.display(), about.name, about.version);
        return Err(RegistryError::Taken { place });
    }
    let size = artefact.wasm.len() as u64;
    progress.start(&format!("{}:{}", about.name, about.version), size);
    let stored = store.put(artefact, "")?;
    progress.advance(size);
    Ok(stored.manifest_digest)
}

/// Takes a package out of a folder.
fn take(folder: &Folder, progress: &mut dyn Progress) -> Result<(Artefact, String), RegistryError> {
    let wanted = Wanted { name: folder.name.as_deref(), version: folder.version.as_deref(), source: None };
    let (stored, artefact) = Store::folder(&folder.path)?.find(wanted)?;
    progress.start(&format!("{}:{}", stored.name, stored.version), stored.size);
    progress.advance(stored.size);
    Ok((artefact, stored.manifest_digest))
}
