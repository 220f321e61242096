//! The labels of a package: annotations of its entry in the index, from which packages are listed without opening them.

use std::collections::BTreeMap;

use tunebox_foundation::printable::is_unprintable;

use super::Stored;
use crate::artifact::document::Descriptor;

const REFERENCE: &str = "org.opencontainers.image.ref.name";
const NAME: &str = "dev.tunebox.name";
const VERSION: &str = "dev.tunebox.version";
const SOURCE: &str = "dev.tunebox.source";
const DIGEST: &str = "dev.tunebox.digest";
const SIZE: &str = "dev.tunebox.size";
const SIGNER: &str = "dev.tunebox.signer";

/// Returns the annotations of a package's entry in the index: name, version, digest, size, and source and signer where
/// there are any.
pub(super) fn annotations(stored: &Stored) -> BTreeMap<String, String> {
    let Stored { name, version, source, digest, size, signer, .. } = stored.clone();
    let all = [
        (REFERENCE, Some(format!("{name}:{version}"))),
        (NAME, Some(name)),
        (VERSION, Some(version)),
        (DIGEST, Some(digest)),
        (SIZE, Some(size.to_string())),
        (SOURCE, Some(source).filter(|source| !source.is_empty())),
        (SIGNER, signer),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// Reads a package's description from its entry in the index. `None` if another tool wrote the entry: if name, version,
/// digest or size is missing or not readable. A source or signer that is missing counts as none. A value with a
/// character that [`is_unprintable`] counts as missing.
pub(super) fn read_label(entry: &Descriptor) -> Option<Stored> {
    let text = |name| {
        let text = entry.annotation(name)?;
        (!text.chars().any(is_unprintable)).then(|| text.to_owned())
    };
    Some(Stored {
        name: text(NAME)?,
        version: text(VERSION)?,
        source: text(SOURCE).unwrap_or_default(),
        digest: text(DIGEST)?,
        manifest_digest: entry.digest.clone(),
        size: text(SIZE)?.parse().ok()?,
        signer: text(SIGNER),
    })
}

/// Returns where the package of an entry came from; empty if the entry does not say.
pub(super) fn entry_source(entry: &Descriptor) -> &str {
    entry.annotation(SOURCE).unwrap_or_default()
}

/// Whether storing `new` replaces an entry: both have the same source, and the same name and version or the same
/// manifest.
pub(super) fn can_replace(new: &Stored, entry: &Descriptor) -> bool {
    if entry_source(entry) != new.source {
        return false;
    }
    let said = |name| entry.annotation(name);
    entry.digest == new.manifest_digest
        || (said(NAME), said(VERSION)) == (Some(new.name.as_str()), Some(new.version.as_str()))
}
