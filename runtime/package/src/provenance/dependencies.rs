//! What is built into a component beside its own source, as components of a CycloneDX document.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};
use tunebox_foundation::files::names;

use crate::{Error, Manifest, files};

/// The source, in `Cargo.lock`, of crates from crates.io: their package URL needs only name and version.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// A crate or a Python package.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Component {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    version: String,
    /// The package URL; `None` for a crate from a folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    purl: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hashes: Vec<BTreeMap<&'static str, String>>,
}

impl Component {
    /// Makes a component of type `library`. `purl` is its package URL, `checksum` its SHA-256 in hexadecimal.
    fn new(name: String, version: String, purl: Option<String>, checksum: Option<String>) -> Self {
        let hash = |checksum| BTreeMap::from([("alg", "SHA-256".to_owned()), ("content", checksum)]);
        Self { kind: "library", name, version, purl, hashes: checksum.into_iter().map(hash).collect() }
    }
}

/// A `Cargo.lock`.
#[derive(Deserialize)]
struct CargoLock {
    #[serde(default)]
    package: Vec<LockedCrate>,
}

/// A crate in a `Cargo.lock`.
#[derive(Deserialize)]
struct LockedCrate {
    name: String,
    version: String,
    source: Option<String>,
    checksum: Option<String>,
    /// Its dependencies, each as `NAME`, `NAME VERSION` or `NAME VERSION (SOURCE)`: the shortest that is unique.
    #[serde(default)]
    dependencies: Vec<String>,
}

impl LockedCrate {
    /// Whether `entry`, of the `dependencies` of another crate, names this crate.
    fn is_named_by(&self, entry: &str) -> bool {
        let mut words = entry.splitn(3, ' ');
        let source = |word: &str| Some(word.trim_matches(['(', ')'])) == self.source.as_deref();
        words.next() == Some(self.name.as_str())
            && words.next().is_none_or(|version| version == self.version)
            && words.next().is_none_or(source)
    }
}

/// Lists the direct and indirect dependencies of a method, sorted, from the `Cargo.lock` of its folder or of the
/// nearest folder above it that lists the method: a crate with the manifest's name and version, from a folder. Errors:
/// no `Cargo.lock` does, or one on the way cannot be read or parsed.
pub(super) fn list_crates(folder: &Path, manifest: &Manifest) -> Result<BTreeSet<Component>, Error> {
    let folder = folder.canonicalize().map_err(Error::file("found", folder))?;
    for path in folder.ancestors().map(|folder| folder.join("Cargo.lock")).filter(|path| path.is_file()) {
        let lock: CargoLock =
            toml::from_str(&files::read_text(&path)?).map_err(|error| Error::provenance(error.message()))?;
        let is_own = |locked: &LockedCrate| {
            (locked.name.as_str(), locked.version.as_str()) == (&*manifest.name, &*manifest.version)
                && locked.source.is_none()
        };
        if let Some(own) = lock.package.iter().position(is_own) {
            return Ok(dependencies_of(&lock.package, own));
        }
    }
    Err(Error::provenance("there is no `Cargo.lock` that lists the method in its present version"))
}

/// Returns the crates that `packages[root]` depends on, directly or not, without that crate itself.
fn dependencies_of(packages: &[LockedCrate], root: usize) -> BTreeSet<Component> {
    let (mut seen, mut next) = (BTreeSet::from([root]), vec![root]);
    while let Some(locked) = next.pop().and_then(|index| packages.get(index)) {
        for entry in &locked.dependencies {
            let meant = packages.iter().enumerate().filter(|(_, other)| other.is_named_by(entry));
            next.extend(meant.map(|(index, _)| index).filter(|index| seen.insert(*index)));
        }
    }
    seen.remove(&root);
    seen.iter().filter_map(|index| packages.get(*index)).map(component).collect()
}

/// Makes the component of a crate, with its checksum if it has one. The package URL is `pkg:cargo/NAME@VERSION`, with
/// `?vcs_url=SOURCE` added for a crate that is not from crates.io. A crate from a folder gets no package URL, since no
/// registry has its bytes.
fn component(locked: &LockedCrate) -> Component {
    let LockedCrate { name, version, source, checksum, .. } = locked;
    let purl = source.as_deref().map(|source| match source {
        CRATES_IO => format!("pkg:cargo/{name}@{version}"),
        other => {
            let other = percent_encoding::utf8_percent_encode(other, percent_encoding::NON_ALPHANUMERIC);
            format!("pkg:cargo/{name}@{version}?vcs_url={other}")
        }
    });
    Component::new(name.clone(), version.clone(), purl, checksum.clone())
}

/// Lists the packages that are installed in the `.venv` of a method's folder, by the names of their
/// `NAME-VERSION.dist-info` folders, with `NAME` in lower case and hyphens for underscores. Empty without a `.venv`.
/// Only these packages can get into a component. Errors: a folder that cannot be read.
pub(super) fn list_python_packages(folder: &Path) -> Result<BTreeSet<Component>, Error> {
    let mut found = BTreeSet::new();
    let library = folder.join(".venv").join("lib");
    let pythons = if library.is_dir() { names(&library)? } else { Vec::new() };
    let packages = pythons.iter().map(|python| library.join(python).join("site-packages"));
    for packages in packages.filter(|folder| folder.is_dir()) {
        for name in names(&packages)? {
            let Some((name, version)) = name.strip_suffix(".dist-info").and_then(|name| name.split_once('-')) else {
                continue;
            };
            let name = name.to_lowercase().replace('_', "-");
            let purl = format!("pkg:pypi/{name}@{version}");
            found.insert(Component::new(name, version.to_owned(), Some(purl), None));
        }
    }
    Ok(found)
}
