//! The custom section of a package: found in any bytes, and read as a manifest.

use tunebox_package::manifest::SECTION;
use tunebox_package::{component, read_manifest, section};

use crate::Target;

pub(super) const TARGET: Target = Target { name: "manifest", run, longest: 8 << 10, quick: 10_000 };

/// Beginning of every component.
const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

/// The bytes as a component, then as the section of one.
fn run(bytes: &[u8]) {
    if let Ok(manifest) = read_manifest(bytes) {
        let _ = component::interfaces(bytes);
        let without = section::without(bytes, SECTION);
        assert!(without.is_ok_and(|rest| rest.len() < bytes.len()), "{}", manifest.name);
    }
    let mut around = EMPTY.to_vec();
    section::append(&mut around, SECTION, bytes);
    assert_eq!(section::find(&around, SECTION).ok().flatten(), Some(bytes));
    if let Ok(manifest) = read_manifest(&around) {
        let shown = [&manifest.description, &manifest.version, &manifest.name];
        assert!(!shown.iter().any(|text| text.chars().any(char::is_control)), "{manifest:?}");
        assert!(manifest.settings.len() <= 64 && manifest.metrics.len() <= 64);
        again(&manifest);
    }
}

/// What was read is read again from what it is written as.
fn again(manifest: &tunebox_package::Manifest) {
    let Ok(text) = serde_json::to_vec(manifest) else { return };
    let mut around = EMPTY.to_vec();
    section::append(&mut around, SECTION, &text);
    let read = read_manifest(&around);
    assert!(read.as_ref().is_ok_and(|read| read == manifest), "{manifest:?} {read:?}");
}
