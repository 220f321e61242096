//! What an index says of a package, so that a list opens no package.

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

/// What the index says of a package.
pub(super) fn annotations(stored: &Stored) -> BTreeMap<String, String> {
    let mut all = vec![
        (REFERENCE, format!("{}:{}", stored.name, stored.version)),
        (NAME, stored.name.clone()),
        (VERSION, stored.version.clone()),
        (DIGEST, stored.digest.clone()),
        (SIZE, stored.size.to_string()),
    ];
    if !stored.source.is_empty() {
        all.push((SOURCE, stored.source.clone()));
    }
    all.extend(stored.signer.clone().map(|signer| (SIGNER, signer)));
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The same, read back. None: another tool wrote the entry, or somebody put control characters into it.
pub(super) fn read(entry: &Descriptor) -> Option<Stored> {
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

/// Where an entry says that its package came from; empty where it does not.
pub(super) fn source(entry: &Descriptor) -> &str {
    entry.annotation(SOURCE).unwrap_or_default()
}

/// Whether a package takes the place of an entry: the same name, version and source, or the very same manifest.
pub(super) fn replaces(new: &Stored, entry: &Descriptor) -> bool {
    if source(entry) != new.source {
        return false;
    }
    let said = |name| entry.annotation(name);
    entry.digest == new.manifest_digest
        || (said(NAME), said(VERSION)) == (Some(new.name.as_str()), Some(new.version.as_str()))
}
