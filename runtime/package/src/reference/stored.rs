//! Names that mean a package in the store of this user.

use std::path::Path;

use tunebox_foundation::explain::Explanation;

use crate::registry::{Location, is_like_host, no_version};
use crate::store::{self, Store, Stored, Wanted};
use crate::trust::{Lock, Locked, Source};
use crate::{Artifact, Error, home};

/// Makes the error for a package that `tunebox pull LOCATION` has not fetched yet. `is_pinned` says whether
/// `tunebox.lock` asks for it.
fn not_pulled(location: &str, is_pinned: bool) -> Error {
    let pinned = if is_pinned { "tunebox.lock pins the name to it, and " } else { "" };
    let why = format!("{pinned}a run downloads nothing by itself: it takes what is in the store");
    let error = Explanation::new("package", format!("`{location}` was not pulled yet")).with_why(why);
    error.with_hint(format!("`tunebox pull {location}`")).into()
}

/// Parses `registry.example/namespace/name:1.2.3`, with `@` in place of `:` as well; the version may be missing. `None`
/// if the text is something else, such as a path. A text with a version counts if the part before the first slash
/// merely looks like a host; one without a version must be a valid name in a registry.
pub(super) fn parse_registry_name(text: &str) -> Option<Source> {
    let (host, _) = text.split_once('/')?;
    let source = Source::parse(text);
    let is_meant = match &source.tag {
        None => Location::parse(text).is_ok_and(|place| !place.is_folder()),
        // A text that only looks like a host was never pulled from, and is never a path. Its lookup in the store fails
        // with the right error.
        Some(version) => is_like_host(host) && !source.package_name().is_empty() && !version.is_empty(),
    };
    (is_meant && !source.is_local).then_some(source)
}

/// Finds the package of this source and version in the store. Errors: it was not pulled, or the source has no version;
/// the error then names the highest one in the store.
pub(super) fn find_pulled(source: &Source) -> Result<Stored, Error> {
    let (place, version) = (source.name.as_str(), source.tag.as_deref());
    let found = search_store(Wanted { name: Some(source.package_name()), version, source: Some(place) });
    let Some(version) = version else {
        let highest = found.ok().map(|stored| format!("{place}:{}", stored.version));
        return Err(no_version(place, highest));
    };
    found.map_err(|error| match error.is_no_package() {
        true => not_pulled(&format!("{place}:{version}"), false),
        false => error,
    })
}

/// Whether a text is `NAME@VERSION`, with a semantic version and no slash in the name. Such a text is never read as a
/// path.
pub(super) fn is_versioned(text: &str) -> bool {
    let parts = text.split_once('@');
    parts.is_some_and(|(name, version)| !name.contains(['/', '\\']) && semver::Version::parse(version).is_ok())
}

/// Finds the package that `NAME@VERSION` names in the store. Errors: packages of several sources, or none of that
/// version.
pub(super) fn find_versioned(text: &str) -> Result<Stored, Error> {
    let (name, version) = text.split_once('@').unwrap_or((text, ""));
    search_store(Wanted { name: Some(name), version: Some(version), source: None })
}

/// Finds the package that a bare name means in a project: the one that `tunebox.lock` pins, else the highest version in
/// the store. `None` if there is no package of that name. Errors: the pinned package was not pulled, packages of
/// several sources, or a lock that cannot be read.
pub(super) fn find_by_name(name: &str, project: &Path) -> Result<Option<Stored>, Error> {
    if let Some(locked) = Lock::read_project(project)?.find(name) {
        return find_pinned(locked).map(Some);
    }
    match search_store(Wanted { name: Some(name), version: None, source: None }) {
        Err(error) if error.is_no_package() => Ok(None),
        found => found.map(Some),
    }
}

/// Finds the package that a lock entry pins: the same name, version, bytes and signer, preferably from the same source.
/// If the store has no such package, returns a package with that name and version; the caller compares its bytes and
/// signer with the lock. Errors: the store has no package with that name and version.
fn find_pinned(locked: &Locked) -> Result<Stored, Error> {
    if let Some(pinned) = choose_pinned(list_packages()?, locked) {
        return Ok(pinned);
    }
    match search_store(Wanted { name: Some(&locked.name), version: Some(&locked.version), source: None }) {
        Err(error) if error.is_no_package() => Err(not_pulled(&locked.location(), true)),
        found => found,
    }
}

/// Returns the package with the name, version, digest and signer of a lock entry: the one from the same source, else
/// the first one. `None` if there is none.
fn choose_pinned(mut stored: Vec<Stored>, locked: &Locked) -> Option<Stored> {
    stored.retain(|one| {
        let found = (&one.name, &one.version, &one.digest, &one.signer);
        found == (&locked.name, &locked.version, &locked.sha256, &locked.signer)
    });
    let there = stored.iter().position(|one| one.source == locked.source).unwrap_or(0);
    stored.into_iter().nth(there)
}

/// Returns the packages in the store; empty if there is no home folder. Creates the store if only it is missing.
/// Errors: a store that cannot be created or read.
pub(super) fn list_packages() -> Result<Vec<Stored>, Error> {
    home::existing()?.map_or_else(|| Ok(Vec::new()), |home| Store::open(&home)?.list())
}

/// Reads a package of the store, and checks all of its digests again. Errors: it is gone, its bytes have changed, or
/// the home folder is one that others may change.
pub(super) fn read(stored: &Stored) -> Result<Artifact, Error> {
    let (name, version, source) = (&stored.name, &stored.version, &stored.source);
    let wanted = Wanted { name: Some(name), version: Some(version), source: Some(source) };
    Ok(Store::open(&home::home()?)?.find(wanted)?.1)
}

/// Finds a package in the store. Without a home folder, creates none, and there is no package; creates the store if
/// only it is missing. Errors: no package fits, several do, or the package's bytes have changed.
fn search_store(wanted: Wanted<'_>) -> Result<Stored, Error> {
    if let Some(home) = home::existing()? {
        return Ok(Store::open(&home)?.find(wanted)?.0);
    }
    Err(store::no_package(wanted, None, &[], None))
}

#[cfg(test)]
mod tests {
    use tunebox_foundation::explain::Explain;

    use super::*;

    #[test]
    fn a_name_in_a_registry_is_told_from_a_path() {
        for (text, source, version) in [
            ("Registry.example:5000/me/calm:1.2.3", "registry.example:5000/me/calm", Some("1.2.3")),
            ("localhost/me/calm:1.2.3", "localhost/me/calm", Some("1.2.3")),
            ("localhost/me/calm@1.2.3", "localhost/me/calm", Some("1.2.3")),
            ("index.docker.io:443/me/calm:1.2.3", "docker.io/me/calm", Some("1.2.3")),
            ("10.1:5000/me/calm:1.2.3", "10.1:5000/me/calm", Some("1.2.3")),
            ("Registry.example/me/calm", "registry.example/me/calm", None),
        ] {
            let read = parse_registry_name(text).unwrap();
            assert_eq!(
                (read.name.as_str(), read.package_name(), read.tag.as_deref()),
                (source, "calm", version),
                "{text}"
            );
        }
        let versioned = ["./me/calm:1.2.3", "../calm:1", "/calm:1", "me/calm:1", "registry.example/calm", "calm:1"];
        let others =
            ["me/my/calm", "./registry.example/me/calm", "v1.0/me/calm", "a.b/Me/calm", "a.b/../calm", "a.b/c//d"];
        for text in [versioned, others].concat() {
            assert_eq!(parse_registry_name(text), None, "{text}");
        }
    }

    #[test]
    fn a_name_in_a_registry_without_its_version_is_no_path() {
        let error = find_pulled(&parse_registry_name("registry.example/nobody/calm").unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "`registry.example/nobody/calm` names no version");
        assert!(error.hint().unwrap().contains("`registry.example/nobody/calm:0.1.0`"), "{:?}", error.hint());
    }

    #[test]
    fn of_several_packages_of_a_name_the_lock_says_which() {
        let stored = |version: &str, source: &str, signer: Option<&str>| Stored {
            name: "calm".into(),
            version: version.into(),
            source: source.into(),
            digest: format!("digest of {version}"),
            manifest_digest: String::new(),
            size: 1,
            signer: signer.map(str::to_owned),
        };
        let of_name = vec![
            stored("0.1.0", "/stick", None),
            stored("0.1.0", "/other", Some("RW")),
            stored("0.1.0", "r.example/me/calm", Some("RW")),
            stored("0.2.0", "r.example/me/calm", Some("RW")),
        ];
        let chosen = |source: &str, sha256: &str| {
            let [name, version, interface, highest] = ["calm", "0.1.0", "0.1.0", "0.2.0"].map(str::to_owned);
            let (source, sha256, signer) = (source.to_owned(), sha256.to_owned(), Some("RW".to_owned()));
            let locked = Locked { name, version, source, sha256, signer, interface, highest };
            choose_pinned(of_name.clone(), &locked).map(|one| one.source)
        };
        assert_eq!(chosen("r.example/me/calm", "digest of 0.1.0").unwrap(), "r.example/me/calm");
        assert_eq!(chosen("/mnt/stick", "digest of 0.1.0").unwrap(), "/other", "the same, signed by the same");
        assert_eq!(chosen("/stick", "another digest"), None);
    }

    #[test]
    fn what_was_not_pulled_is_told_with_the_command_that_pulls_it() {
        let error = find_pulled(&parse_registry_name("registry.example/nobody/calm:1.2.3").unwrap()).unwrap_err();
        assert!(error.to_string().ends_with("was not pulled yet"), "{error}");
        assert_eq!(error.hint().unwrap(), "`tunebox pull registry.example/nobody/calm:1.2.3`");
    }

    #[test]
    fn a_name_that_the_lock_pins_means_no_file_and_no_other_package_where_that_one_is_missing() {
        let project = tempfile::tempdir().unwrap();
        std::fs::write(project.path().join("calm-nobody"), "").unwrap();
        for (source, place) in [
            ("r.example/me/calm-nobody", "r.example/me/calm-nobody:1.2.3"),
            ("/media/stick", "/media/stick//calm-nobody:1.2.3"),
        ] {
            let pin = format!(
                "schema = 1\n[[package]]\nname = \"calm-nobody\"\nversion = \"1.2.3\"\nsource = \"{source}\"\n\
                 sha256 = \"{}\"\ninterface = \"0.2.0\"\nhighest = \"1.2.3\"\n",
                "0".repeat(64)
            );
            std::fs::write(project.path().join("tunebox.lock"), pin).unwrap();
            let error = crate::Reference::parse("calm-nobody", project.path()).unwrap_err();
            assert_eq!(error.to_string(), format!("`{place}` was not pulled yet"));
            assert_eq!(error.hint().unwrap(), format!("`tunebox pull {place}`"));
            assert!(error.why().unwrap().starts_with("tunebox.lock pins the name to it"), "{:?}", error.why());
        }
    }
}
