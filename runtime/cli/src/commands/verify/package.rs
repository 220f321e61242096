//! A package looked at again: is it whole, who signed it, and is that one known here.

use std::path::Path;

use serde_json::json;
use tunebox_foundation::explain::Exit;
use tunebox_package::home::home;
use tunebox_package::signature::Signer;
use tunebox_package::trust::{Mode, Refusal, Trust};
use tunebox_package::{Artifact, Error, Package, Reference, TrustError, bounded};

use super::super::build::training_with;
use super::super::trust::{interfaces, publisher, signed};
use super::super::{Ending, Outcome};
use crate::terminal::Terminal;
use crate::terminal::diagnostic::Failure;

/// Bytes of the longest file of a public key.
const LONGEST_KEY: u64 = 4 << 10;

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
    let doubt = match found {
        Reference::Builtin(_) => None,
        _ if package.signer.is_none() => Some(Doubt::Unsigned),
        Reference::Stored(_) => None,
        // A key that is named makes its signer known; what else speaks against the package stays.
        Reference::File(path) | Reference::Folder(path) => of_a_path(&package, path)?.filter(|_| wanted.is_none()),
    };
    if let Some(wanted) = wanted {
        check_signer(&package, wanted)?;
    }
    let known = publisher(&package)?;
    let (name, digest) = (&package.manifest.name, &package.digest);
    let verb = if doubt.is_none() { "Verified" } else { "Unverified" };
    terminal.say(verb, format!("{name} {}, sha256:{digest}", package.manifest.version));
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
            "verified": doubt.is_none(),
        }));
    }
    if let Some(doubt) = doubt {
        terminal.next(doubt.next(found));
        return Ok(Ending::Exit(Exit::No));
    }
    terminal.next(match found {
        Reference::Stored(stored) => training_with(format!("{name}@{}", stored.version), package.bytes.len() as u64),
        Reference::Builtin(_) => format!("tunebox inspect {name}"),
        Reference::Folder(path) | Reference::File(path) => format!("tunebox inspect {}", path.display()),
    });
    Ok(Ending::Done)
}

/// Why a package that is whole is not verified: exit code 1.
enum Doubt {
    /// Nobody vouches for it.
    Unsigned,
    /// Somebody does whom nobody knows here: anybody can make a key.
    Unknown,
}

impl Doubt {
    /// What would verify it.
    fn next(&self, found: &Reference) -> String {
        match (self, found) {
            (Self::Unsigned, _) => "ask its publisher for a signature; `tunebox pack --sign KEY` makes one".to_owned(),
            (Self::Unknown, Reference::File(path)) => {
                format!("tunebox verify {} --signer KEY    (the key that its publisher shows)", path.display())
            }
            (Self::Unknown, _) => "the same with `--signer KEY`, the key that its publisher shows".to_owned(),
        }
    }
}

/// The same for what lies at a path, where a signer who is new here is only a doubt: `--signer` ends that one alone.
fn of_a_path(package: &Package, path: &Path) -> Result<Option<Doubt>, Failure> {
    let path = std::path::absolute(path).map_err(|error| Failure::file(path, &error))?;
    match admitted(package, &path.display().to_string())? {
        Ok(()) => Ok(None),
        Err(error) if matches!(*error.refusal, Refusal::NotAccepted { .. }) => Ok(Some(Doubt::Unknown)),
        Err(error) => Err(error.into()),
    }
}

/// Asks what a run asks, and writes nothing down: the signer must be known here, and the lock of this folder, if it
/// lists the package, must list this one.
fn as_a_run_would(package: &Package, source: &str) -> Result<(), Failure> {
    admitted(package, source)??;
    Ok(())
}

fn admitted(package: &Package, source: &str) -> Result<Result<(), TrustError>, Failure> {
    let artifact = Artifact { wasm: package.bytes.to_vec(), signature: package.signature.clone() };
    let mut trust = Trust::open(&home()?, Path::new("."))?;
    Ok(trust.admit(&artifact, source, Mode::Ask(&mut |_| false)).map(drop))
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
    let lines = bounded::read_text(path, LONGEST_KEY).map_err(|error| Failure::file(path, &error))?;
    let key = lines.lines().find_map(|line| Signer::parse(line.trim()));
    key.ok_or_else(|| {
        let public = format!("{text}.pub");
        let hint = if Path::new(&public).is_file() {
            format!("`{public}` beside it holds one: `--signer {public}`")
        } else {
            "`tunebox key` writes one into `FILE.pub`".to_owned()
        };
        Failure::usage(format!("`{text}` holds no public key"), hint)
    })
}
