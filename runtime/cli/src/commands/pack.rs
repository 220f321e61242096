//! `tunebox pack`: one file that can be given away, signed if there is a key.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use tunebox_foundation::files;
use tunebox_foundation::paths::simplify;
use tunebox_package::artifact::LARGEST_DOCUMENT;
use tunebox_package::build::{Options, Record};
use tunebox_package::reference::{signature_in, signature_path};
use tunebox_package::signature::{SecretKey, Signed, Signer, sign};
use tunebox_package::statement::Statement;
use tunebox_package::{Error, Package, Reference, bounded, digest, pack::pack};

use super::building::{RUNS_SOURCE, built, warn_of_compiler};
use super::{Ending, Outcome};
use crate::arguments::Global;
use crate::terminal::Terminal;
use crate::terminal::diagnostic::Failure;
use tunebox_foundation::format::bytes;

#[derive(Debug, Args)]
#[command(after_long_help = RUNS_SOURCE)]
pub(crate) struct Pack {
    /// The method's folder, or a component
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// The file of a secret key, as `tunebox key` makes it
    #[arg(long, value_name = "KEY")]
    sign: Option<PathBuf>,
    /// The file to write; `NAME-VERSION.wasm` in the method's folder unless given
    #[arg(long)]
    out: Option<PathBuf>,
}

impl Pack {
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> Outcome {
        // Before a build, which takes its time.
        let key = self.key(terminal)?;
        let method = self.method(terminal, global.offline)?;
        let packed = pack(&method.bytes, self.page()?.as_deref())?;
        let statement = Statement::of(&packed)?;
        let path = match &self.out {
            Some(path) => path.clone(),
            None => simplify(&self.beside().join(format!("{}-{}.wasm", statement.name, statement.version))),
        };

        let signature = key.map(|key| signature(terminal, &statement, &key)).transpose()?;
        files::write(&path, &packed)?;
        let signer = leave_signature(terminal, &path, &packed, signature.as_deref())?;

        let (digest, size) = (digest::sha256(&packed), packed.len() as u64);
        terminal.say("Packed", format!("{}, {}, sha256:{digest}", path.display(), bytes(size)));
        match &signer {
            Some(signer) => terminal.say("Signed", format!("{}, by {}", signature_path(&path).display(), signer.key)),
            None => terminal.say("Signed", "no: nobody can pull it from a registry; `--sign KEY` signs it"),
        }
        terminal.next(match &signer {
            Some(_) => format!("tunebox push {} REGISTRY/NAMESPACE/{}", path.display(), statement.name),
            None => self.signing(),
        });
        if terminal.json {
            terminal.object(json!({
                "event": "packed", "path": path, "bytes": size, "digest": format!("sha256:{digest}"),
                "name": statement.name, "version": statement.version, "signer": signer.map(|signer| signer.key),
            }));
        }
        Ok(Ending::Done)
    }

    /// The component, built first where it is not what its source gives, or keeps what is only for its author.
    fn method(&self, terminal: Terminal, offline: bool) -> Result<Package, Failure> {
        if self.folder.is_file() {
            return Ok(Reference::File(self.folder.clone()).open()?);
        }
        let found = Reference::Folder(self.folder.clone());
        match found.open() {
            // A component that only says what it was built from is not signed: the source is built.
            Ok(_) if self.sign.is_some() => {}
            Ok(package) if !Record::read(&package.bytes)?.is_some_and(|record| record.debug) => return Ok(package),
            Ok(_) | Err(Error::NotBuilt { .. } | Error::Stale { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        // Nor is one that was compiled from something else and left where cargo takes it for done.
        let afresh = self.sign.is_some();
        let made = built(terminal, &self.folder, &Options { offline, afresh, ..Options::default() })?;
        warn_of_compiler(terminal, &made.warnings);
        Ok(found.open()?)
    }

    /// The command that signs it.
    fn signing(&self) -> String {
        let folder = if self.folder == Path::new(".") { String::new() } else { format!("{} ", self.folder.display()) };
        let out = self.out.as_ref().map_or(String::new(), |path| format!(" --out {}", path.display()));
        format!("tunebox pack {folder}--sign KEY{out}    (`tunebox key FILE` makes one)")
    }

    /// The folder that the package goes to.
    fn beside(&self) -> PathBuf {
        match self.folder.is_dir() {
            true => self.folder.clone(),
            false => self.folder.parent().map(Path::to_owned).unwrap_or_default(),
        }
    }

    /// The page that a person wrote for the method.
    fn page(&self) -> Result<Option<String>, Failure> {
        let path = self.folder.join("README.md");
        if !path.is_file() {
            return Ok(None);
        }
        bounded::read_text(&path, LARGEST_DOCUMENT).map(Some).map_err(|error| Failure::file(&path, &error))
    }

    /// The key that signs it, if one is to.
    fn key(&self, terminal: Terminal) -> Result<Option<SecretKey>, Failure> {
        let Some(path) = &self.sign else { return Ok(None) };
        let password = || terminal.password(&format!("password of `{}`", path.display()));
        Ok(Some(SecretKey::read(path, password)?))
    }
}

/// Signs what a package is.
fn signature(terminal: Terminal, statement: &Statement, key: &SecretKey) -> Result<String, Failure> {
    if let Some(text) = key.warning() {
        terminal.say("Warning", text);
    }
    Ok(sign(statement, key)?)
}

/// Writes the signature beside the package. Without one, an older signature stays if it is still right, and goes if not.
fn leave_signature(
    terminal: Terminal,
    path: &Path,
    packed: &[u8],
    signature: Option<&str>,
) -> Result<Option<Signer>, Failure> {
    let place = signature_path(path);
    if let Some(text) = signature {
        files::write(&place, text.as_bytes())?;
        return Ok(Some(Signed::verify(packed, text)?));
    }
    let Ok(older) = signature_in(&place) else { return Ok(None) };
    if let Ok(signer) = Signed::verify(packed, &older) {
        return Ok(Some(signer));
    }
    std::fs::remove_file(&place).map_err(|error| Failure::file(&place, &error))?;
    terminal.say("Removed", format!("{}, which was the signature of another package", place.display()));
    Ok(None)
}
