//! Names that mean a package in the store of this user.

use tunebox_compute::explain::Explain;

use crate::registry::{canonical, spelt_as_host};
use crate::store::{Store, StoreError, Stored, Wanted};
use crate::{Artefact, Error, home};

/// A package of a registry that is not in the store.
#[derive(Debug, thiserror::Error)]
#[error("`{place}` was not pulled yet")]
pub struct NotPulled {
    /// The name in the registry.
    pub place: String,
}

impl Explain for NotPulled {
    fn area(&self) -> &'static str {
        "package"
    }

    fn why(&self) -> Option<String> {
        Some("a run downloads nothing by itself: it takes what is in the store".into())
    }

    fn hint(&self) -> Option<String> {
        Some(format!("`tunebox pull {}`", self.place))
    }
}

/// A name in a registry, taken apart: where the package is from, what it is called, its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Remote<'a> {
    /// As the store and the lock name it, however it was written.
    source: String,
    name: &'a str,
    version: &'a str,
}

impl<'a> Remote<'a> {
    /// Reads `registry.example/namespace/name:1.2.3`, with `@` as well, as `pull` does. None: it is something else, such as a path.
    pub(super) fn read(text: &'a str) -> Option<Self> {
        let (host, rest) = text.split_once('/')?;
        let last = rest.rfind('/').map_or(0, |slash| slash + 1);
        let (name, version) = rest[last..].split_once([':', '@'])?;
        // What is no host, though it is spelt like one, was never pulled from; it is no path either.
        let registry = canonical(host).or_else(|| spelt_as_host(host).then(|| host.to_lowercase()))?;
        let source = format!("{registry}/{}", rest[..last + name.len()].to_lowercase());
        (!name.is_empty() && !version.is_empty()).then_some(Self { source, name, version })
    }

    /// What was pulled from there. Errors: nothing was.
    pub(super) fn find(self) -> Result<Stored, Error> {
        let found = look(Wanted { name: Some(self.name), version: Some(self.version), source: Some(&self.source) });
        found.map_err(|error| match error {
            Error::Store(StoreError::NoPackage { .. }) => {
                NotPulled { place: format!("{}:{}", self.source, self.version) }.into()
            }
            error => error,
        })
    }
}

/// Whether a text is `NAME@VERSION`, which no path is meant by.
pub(super) fn is_versioned(text: &str) -> bool {
    let parts = text.split_once('@');
    parts.is_some_and(|(name, version)| !name.contains(['/', '\\']) && semver::Version::parse(version).is_ok())
}

/// What `NAME` or `NAME@VERSION` means. None: there is no package of that bare name.
/// Errors: packages of several sources, or not that version.
pub(super) fn named(text: &str) -> Result<Option<Stored>, Error> {
    let (name, version) = match text.split_once('@') {
        Some((name, version)) => (name, Some(version)),
        None => (text, None),
    };
    match look(Wanted { name: Some(name), version, source: None }) {
        Err(Error::Store(StoreError::NoPackage { .. })) if version.is_none() => Ok(None),
        found => found.map(Some),
    }
}

/// The names in the store, for messages.
pub(super) fn names() -> Result<Vec<String>, Error> {
    let Some(home) = home::existing()? else { return Ok(Vec::new()) };
    Ok(Store::open(&home)?.list()?.into_iter().map(|stored| stored.name).collect())
}

/// The bytes of a package, hashed again.
pub(super) fn read(stored: &Stored) -> Result<Artefact, Error> {
    let (name, version, source) = (&stored.name, &stored.version, &stored.source);
    let wanted = Wanted { name: Some(name), version: Some(version), source: Some(source) };
    Ok(Store::open(&home::home()?)?.find(wanted)?.1)
}

fn look(wanted: Wanted<'_>) -> Result<Stored, Error> {
    if let Some(home) = home::existing()? {
        return Ok(Store::open(&home)?.find(wanted)?.0);
    }
    let (name, version) = (wanted.name.unwrap_or_default().to_owned(), wanted.version.map(str::to_owned));
    Err(StoreError::NoPackage { name, version, nearest: None, there: Vec::new(), folder: None }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_a_registry_is_told_from_a_path() {
        let remote = |source: &str| Some(Remote { source: source.to_owned(), name: "calm", version: "1.2.3" });
        let read = Remote::read;
        assert_eq!(read("Registry.example:5000/me/calm:1.2.3"), remote("registry.example:5000/me/calm"));
        assert_eq!(read("localhost/me/calm:1.2.3"), remote("localhost/me/calm"));
        assert_eq!(read("localhost/me/calm@1.2.3"), remote("localhost/me/calm"));
        assert_eq!(read("index.docker.io:443/me/calm:1.2.3"), remote("docker.io/me/calm"));
        assert_eq!(read("10.1:5000/me/calm:1.2.3"), remote("10.1:5000/me/calm"));
        for text in ["./me/calm:1.2.3", "../calm:1", "/calm:1", "me/calm:1", "registry.example/me/calm", "calm:1"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn what_was_not_pulled_is_told_with_the_command_that_pulls_it() {
        let error = Remote::read("registry.example/nobody/calm:1.2.3").unwrap().find().unwrap_err();
        assert!(matches!(error, Error::NotPulled(_)), "{error}");
        assert_eq!(error.hint().unwrap(), "`tunebox pull registry.example/nobody/calm:1.2.3`");
    }
}
