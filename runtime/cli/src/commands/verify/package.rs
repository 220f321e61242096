//! Verification of a package: its bytes, its signature, and whether the signer is known here.

use std::path::Path;

use serde_json::json;
use tunebox_foundation::explain::{Exit, Explanation};
use tunebox_foundation::files::FileError;
use tunebox_package::error::Reason;
use tunebox_package::home::home;
use tunebox_package::signature::Signer;
use tunebox_package::trust::{Mode, Trust};
use tunebox_package::{Artifact, Error, Package, Reference, bounded, provenance};

use crate::package::describe::{find_publisher, import_names, provenance_text, signer_text, train_command};
use crate::terminal::{CommandResult, ExitStatus, Failure, Terminal};

/// Largest public key file that is read, in bytes.
const MAX_KEY_BYTES: u64 = 4 << 10;

/// Finds the package that the argument names. `None` if the argument means a run: it is a folder and not written as a
/// package of the store is, it names nothing that is known, or it is a path without `.wasm` that cannot be found. Other
/// errors of the name fail.
pub(super) fn find_package(subject: &Path) -> Result<Option<Reference>, Failure> {
    let text = subject.to_string_lossy();
    if subject.is_dir() && !Reference::means_package(&text) {
        return Ok(None);
    }
    match Reference::parse(&text, Path::new(".")) {
        Ok(found) => Ok(Some(found)),
        // An argument that names nothing is more likely meant as a run.
        Err(Error::NoMethod { .. }) => Ok(None),
        Err(Error::File(_)) if subject.extension().is_none_or(|end| end != "wasm") => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Verifies a package and shows its signer; `wanted` is the key of `--signer`. Exit code 1 if the package is unsigned,
/// unless it is built in, or if it is from a path and its signer is unknown and `wanted` is `None`; other problems are
/// errors, also another signer than `wanted`. Opening the package already checks its digest and signature.
pub(super) fn verify_package(terminal: Terminal, found: &Reference, wanted: Option<&str>) -> CommandResult {
    let package = found.open()?;
    if let Reference::Stored(stored) = found {
        check_trust(&package, &stored.source)??;
    }
    // What would remove the reason why an intact package counts as unverified.
    let doubt = match found {
        Reference::Builtin(_) => None,
        _ if package.signer.is_none() => {
            Some("ask the publisher for a signed package; `tunebox pack --sign KEY` signs one".to_owned())
        }
        Reference::Stored(_) => None,
        Reference::File(path) | Reference::Folder(path) if is_signer_known(&package, path)? => None,
        // `--signer` makes an unknown signer acceptable, and overrules no other problem.
        _ if wanted.is_some() => None,
        Reference::File(path) => {
            Some(format!("tunebox verify {} --signer KEY    (the key that the publisher shows)", path.display()))
        }
        Reference::Folder(_) => Some("the same command with `--signer KEY`, the key that the publisher shows".into()),
    };
    if let Some(wanted) = wanted {
        check_signer(&package, wanted)?;
    }
    let known = find_publisher(&package)?;
    let provenance = provenance::read(&package.bytes)?;
    let (name, digest) = (&package.manifest.name, &package.digest);
    let verb = if doubt.is_none() { "Verified" } else { "Unverified" };
    terminal.status(verb, format!("{name} {}, sha256:{digest}", package.manifest.version));
    let is_built_in = matches!(found, Reference::Builtin(_));
    let signer = if is_built_in { "as part of the program".to_owned() } else { signer_text(&package, known.as_ref()) };
    terminal.status("Signed", signer);
    terminal.status("Contract", format!("tunebox:method@{}, supported", package.manifest.interface));
    terminal.status("Imports", import_names(&package.imports));
    terminal.status("Provenance", provenance.as_ref().map_or("none".to_owned(), provenance_text));
    terminal.event(json!({
        "event": "verified", "name": name, "version": package.manifest.version,
        "digest": format!("sha256:{digest}"), "signer": package.signer.as_ref().map(|signer| &signer.key),
        "known": known, "interface": package.manifest.interface, "imports": package.imports,
        "verified": doubt.is_none(), "provenance": provenance,
    }));
    if let Some(doubt) = doubt {
        terminal.suggest(doubt);
        return Ok(ExitStatus::Code(Exit::No));
    }
    terminal.suggest(match found {
        Reference::Stored(stored) => {
            train_command(format!("{name}@{}", stored.version), package.bytes.len() as u64, &[])
        }
        Reference::Builtin(_) => format!("tunebox inspect {name}"),
        Reference::Folder(path) | Reference::File(path) => format!("tunebox inspect {}", path.display()),
    });
    Ok(ExitStatus::Success)
}

/// Checks the trust of a package from a path as a run does. Returns whether its signer is known on this machine, since
/// anybody can create a key. Any other refusal is an error.
fn is_signer_known(package: &Package, path: &Path) -> Result<bool, Failure> {
    let path = std::path::absolute(path).map_err(FileError::at("used", path))?;
    match check_trust(package, &path.display().to_string())? {
        Ok(()) => Ok(true),
        Err(Error::Explained { reason: Reason::UnknownSigner, .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Checks the signer and `tunebox.lock` of the present folder as [`Trust::admit`] does, answering no to every question,
/// and saves nothing. `source` is where the package came from. The inner result is the verdict; the outer error is a
/// trust file that cannot be opened.
fn check_trust(package: &Package, source: &str) -> Result<Result<(), Error>, Failure> {
    let artifact = Artifact { wasm: package.bytes.to_vec(), signature: package.signature.clone() };
    let mut trust = Trust::open(&home()?, Path::new("."))?;
    Ok(trust.admit(&artifact, source, Mode::Ask(&mut |_| false)).map(drop))
}

/// Fails with exit code 4 unless the package is signed by the key `wanted`, given as text or as the path of a key file.
fn check_signer(package: &Package, wanted: &str) -> Result<(), Failure> {
    let key = read_key(wanted)?;
    let found = package.signer.as_ref().map_or("no key", |signer| signer.key.as_str());
    if found == key.key {
        return Ok(());
    }
    let title = format!("{}@{}", package.manifest.name, package.manifest.version);
    let what = format!("`{title}` is not signed by the key of `--signer`");
    let why = format!("signed by {found}, `--signer` is {}", key.key);
    let explanation = Explanation::new("trust", what).with_why(why).with_kept("nothing ran");
    let hint = "ask the publisher for the key in another way than through the registry";
    Err(Failure::new(explanation.with_hint(hint), Exit::Trust))
}

/// Parses a public key: the key itself, or the first key in the file at that path. Fails if the file holds none.
fn read_key(text: &str) -> Result<Signer, Failure> {
    if let Some(key) = Signer::parse(text) {
        return Ok(key);
    }
    let path = Path::new(text);
    let lines = bounded::read_text(path, MAX_KEY_BYTES).map_err(FileError::at("used", path))?;
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
