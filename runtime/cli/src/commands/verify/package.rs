//! A package looked at again: is it whole, who signed it, and is that one known here.

use std::path::Path;

use serde_json::json;
use tunebox_compute::explain::Exit;
use tunebox_package::home::home;
use tunebox_package::signature::Signer;
use tunebox_package::trust::{Mode, Trust};
use tunebox_package::{Artefact, Error, Package, Reference};

use super::super::trust::{interfaces, publisher, signed};
use super::super::{Ending, Outcome};
use crate::terminal::Terminal;
use crate::terminal::diagnostic::Failure;

/// The package that a person named; none: it is the folder of a run.
pub(super) fn named(subject: &Path) -> Result<Option<Reference>, Failure> {
    let text = subject.to_string_lossy();
    if subject.is_dir() && !Reference::means_package(&text) {
        return Ok(None);
    }
    match Reference::parse(&text, Path::new(".")) {
        Ok(found) => Ok(Some(found)),
        // A path or a bare word that leads nowhere is more likely a run.
        Err(Error::NoMethod { .. }) => Ok(None),
        Err(Error::File { .. }) if subject.extension().is_none_or(|end| end != "wasm") => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Says whether a package is what was signed. Opening it hashes it and compares its signature, whatever it is.
pub(super) fn verify(terminal: Terminal, found: &Reference, wanted: Option<&str>) -> Outcome {
    let package = found.open()?;
    if let Reference::Stored(stored) = found {
        as_a_run_would(&package, &stored.source)?;
    }
    if let Some(wanted) = wanted {
        check_signer(&package, wanted)?;
    }
    let known = publisher(&package)?;
    let (name, digest) = (&package.manifest.name, &package.digest);
    terminal.say("Verified", format!("{name} {}, sha256:{digest}", package.manifest.version));
    let built_in = matches!(found, Reference::Builtin(_));
    terminal
        .say("Signed", if built_in { "as part of the program".to_owned() } else { signed(&package, known.as_ref()) });
    terminal.say("Contract", format!("tunebox:method@{}, which this program keeps", package.manifest.interface));
    terminal.say("Asks for", interfaces(&package.imports));
    if terminal.json {
        terminal.object(json!({
            "event": "verified", "name": name, "version": package.manifest.version,
            "digest": format!("sha256:{digest}"), "signer": package.signer.as_ref().map(|signer| &signer.key),
            "known": known, "interface": package.manifest.interface, "imports": package.imports,
        }));
    }
    if package.signer.is_none() && !built_in {
        terminal.next("ask its publisher for a signature; `tunebox pack --sign KEY` makes one");
        return Ok(Ending::Exit(Exit::No));
    }
    terminal.next(match found {
        Reference::Stored(stored) => format!("tunebox train --sample --method {name}@{}", stored.version),
        Reference::Builtin(_) => format!("tunebox inspect {name}"),
        Reference::Folder(path) | Reference::File(path) => format!("tunebox inspect {}", path.display()),
    });
    Ok(Ending::Done)
}

/// Asks what a run asks, and writes nothing down: the signer must be known here, and the lock of this folder, if it
/// lists the package, must list this one.
fn as_a_run_would(package: &Package, source: &str) -> Result<(), Failure> {
    let artefact = Artefact { wasm: package.bytes.to_vec(), signature: package.signature.clone() };
    Trust::open(&home()?, Path::new("."))?.admit(&artefact, source, Mode::Ask(&mut |_| false))?;
    Ok(())
}

/// Errors: somebody else signed it, or nobody.
fn check_signer(package: &Package, wanted: &str) -> Result<(), Failure> {
    let key = wanted_key(wanted)?;
    let found = package.signer.as_ref().map_or("nobody", |signer| signer.key.as_str());
    if found == key.key {
        return Ok(());
    }
    let title = format!("{}@{}", package.manifest.name, package.manifest.version);
    let what = format!("`{title}` is not signed by the key that was asked for");
    let why = format!("{found} signed it, {} was asked for", key.key);
    Err(Failure::trust(what, why, "ask its publisher which key is theirs, not by way of the registry"))
}

/// A public key: as it is written, or in a file of minisign.
fn wanted_key(text: &str) -> Result<Signer, Failure> {
    if let Some(key) = Signer::parse(text) {
        return Ok(key);
    }
    let path = Path::new(text);
    let lines = std::fs::read_to_string(path).map_err(|error| Failure::file(path, &error))?;
    let key = lines.lines().find_map(|line| Signer::parse(line.trim()));
    key.ok_or_else(|| {
        Failure::usage(format!("`{text}` holds no public key"), "`tunebox key` writes one into `FILE.pub`")
    })
}
