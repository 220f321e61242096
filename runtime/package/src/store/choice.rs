//! Chooses the package that a search means.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use semver::Version;

use super::error::{ambiguous, no_package};
use super::{Stored, Wanted};
use crate::Error;
use tunebox_foundation::nearest::nearest;

/// Returns the package that fits `wanted`; the highest version if `wanted` names none. `known` must be sorted by name,
/// version and source. `folder` is the folder of the packages, or `None` for this user's own store. Copies of one
/// package from several paths count as one. Errors: none fits, or several of different names or sources do.
pub(super) fn choose_package(known: &[Stored], wanted: Wanted<'_>, folder: Option<&Path>) -> Result<Stored, Error> {
    let fits = |wanted: Option<&str>, value: &str| wanted.is_none_or(|wanted| wanted == value);
    let named = |stored: &&Stored| fits(wanted.name, &stored.name) && fits(wanted.source, &stored.source);
    let of_name: Vec<&Stored> = known.iter().filter(named).collect();
    let fitting: Vec<&Stored> = of_name.iter().copied().filter(|one| fits(wanted.version, &one.version)).collect();

    let candidates = without_copies(highest_versions(&fitting));
    let name = wanted.name.unwrap_or_default();
    if candidates.len() > 1 {
        // In a folder the names alone tell them apart, in the store the versions may.
        let there = if folder.is_some() { candidates } else { fitting };
        return Err(ambiguous(name, &format_packages(&there, folder), folder));
    }
    if let Some(chosen) = candidates.first() {
        return Ok((*chosen).clone());
    }
    let names: BTreeSet<_> = known.iter().map(|stored| stored.name.as_str()).collect();
    let others = names.into_iter().filter(|known| *known != name);
    let there = match folder {
        Some(_) if of_name.is_empty() => format_packages(&highest_versions(&known.iter().collect::<Vec<_>>()), folder),
        _ => format_packages(&of_name, folder),
    };
    Err(no_package(wanted, nearest(name, others), &there, folder))
}

/// Returns the highest version for each pair of name and source, out of packages sorted by version. The result is
/// sorted by name and source.
fn highest_versions<'a>(ordered: &[&'a Stored]) -> Vec<&'a Stored> {
    let highest: BTreeMap<_, _> = ordered.iter().map(|one| ((&one.name, &one.source), *one)).collect();
    highest.into_values().collect()
}

/// Keeps one of equal packages that came from several paths: the first signed one, else the first. One USB stick may be
/// mounted at several paths, so its packages would otherwise be ambiguous.
fn without_copies(packages: Vec<&Stored>) -> Vec<&Stored> {
    let mut kept: Vec<&Stored> = Vec::with_capacity(packages.len());
    for package in packages {
        match kept.iter_mut().find(|other| are_copies(other, package)) {
            Some(unsigned) if unsigned.signer.is_none() => *unsigned = package,
            Some(_) => {}
            None => kept.push(package),
        }
    }
    kept
}

/// Whether two packages came from paths, have the same bytes, and are not signed by two different keys.
fn are_copies(left: &Stored, right: &Stored) -> bool {
    let is_local = |one: &Stored| Path::new(&one.source).is_absolute();
    let signers = [left, right].map(|one| one.signer.as_ref());
    let by_one = signers.contains(&None) || signers[0] == signers[1];
    left.digest == right.digest && by_one && is_local(left) && is_local(right)
}

/// Formats packages for messages: of a folder as `NAME:VERSION`; of this user's store, where `folder` is `None`, as
/// `NAME@VERSION from SOURCE`.
fn format_packages(packages: &[&Stored], folder: Option<&Path>) -> Vec<String> {
    let write = |one: &&Stored| match folder {
        Some(_) => format!("{}:{}", one.name, one.version),
        None => one.to_string(),
    };
    packages.iter().map(write).collect()
}

/// Compares two versions. A text that is no version comes before all that are; equal versions are compared as text.
pub(crate) fn compare_versions(left: &str, right: &str) -> std::cmp::Ordering {
    let read = |text: &str| Version::parse(text).ok();
    read(left).cmp(&read(right)).then_with(|| left.cmp(right))
}
