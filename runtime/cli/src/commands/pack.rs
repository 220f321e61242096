//! `tunebox pack`: writes a method as one package file, signed if a key is given.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use tunebox_foundation::explain::{Exit, Explanation, Snippet};
use tunebox_foundation::files::{self, FileError};
use tunebox_foundation::paths::{parent, simplify};
use tunebox_package::artifact::LARGEST_DOCUMENT;
use tunebox_package::build::{Options, Record};
use tunebox_package::provenance::attach;
use tunebox_package::reference::{signature_in, signature_path};
use tunebox_package::signature::{SecretKey, Signed, Signer, sign};
use tunebox_package::statement::Statement;
use tunebox_package::template::DESCRIPTIONS;
use tunebox_package::{Error, Package, Reference, bounded, digest, pack::pack};

use crate::arguments::Global;
use crate::package::build::{BUILD_WARNING, build_method, show_compiler_warnings};
use crate::terminal::{CommandResult, ExitStatus, Failure, Terminal};
use tunebox_foundation::format::bytes;

/// The files of a method folder that say what the method does, and go into the package.
const DESCRIPTION_FILES: [&str; 3] = ["Cargo.toml", "pyproject.toml", "README.md"];

#[derive(Debug, Args)]
#[command(after_long_help = BUILD_WARNING)]
pub(crate) struct Pack {
    /// Method folder or component
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// Secret key file from `tunebox key` to sign the package with; the source is built again first
    #[arg(long, value_name = "KEY")]
    sign: Option<PathBuf>,
    /// Package file to write [default: NAME-VERSION.wasm in the method's folder]
    #[arg(long)]
    out: Option<PathBuf>,
}

impl Pack {
    /// Writes the package file, and its signature beside it with `--sign`. Builds the component of a folder first where
    /// [`open_or_build`](Self::open_or_build) says so, and adds what it was built from. Suggests `tunebox push`, or how
    /// to sign.
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> CommandResult {
        // The key is read first, because a build takes time.
        let key = self.read_key(terminal)?;
        self.check_description()?;
        let method = self.open_or_build(terminal, global.offline)?;
        // A component without its folder keeps what it says about its making, if anything.
        let component = match self.folder.is_dir() {
            true => attach(&method.bytes, &self.folder)?.into(),
            false => method.bytes,
        };
        let packed = pack(&component, self.read_readme()?.as_deref())?;
        let statement = Statement::of(&packed)?;
        let path = self.out.clone().unwrap_or_else(|| {
            let folder = if self.folder.is_dir() { self.folder.as_path() } else { parent(&self.folder) };
            simplify(&folder.join(format!("{}-{}.wasm", statement.name, statement.version)))
        });

        let signature = key.map(|key| sign(&statement, &key)).transpose()?;
        files::write(&path, &packed)?;
        let signer = write_signature(terminal, &path, &packed, signature.as_deref())?;

        let (digest, size) = (digest::sha256(&packed), packed.len() as u64);
        terminal.status("Packed", format!("{}, {}, sha256:{digest}", path.display(), bytes(size)));
        match &signer {
            Some(signer) => {
                terminal.status("Signed", format!("{}, by {}", signature_path(&path).display(), signer.key))
            }
            None => terminal.status("Signed", "no: `tunebox pull` refuses it from a registry; `--sign KEY` signs it"),
        }
        terminal.suggest(match &signer {
            Some(_) => format!("tunebox push {} REGISTRY/NAMESPACE/{}", path.display(), statement.name),
            None => self.sign_command(),
        });
        terminal.event(json!({
            "event": "packed", "path": path, "bytes": size, "digest": format!("sha256:{digest}"),
            "name": statement.name, "version": statement.version, "signer": signer.map(|signer| signer.key),
        }));
        Ok(ExitStatus::Success)
    }

    /// Fails if `Cargo.toml`, `pyproject.toml` or `README.md` of the method folder still has a description of the
    /// template. The error shows the first one found. Skips files that do not exist or cannot be read, so does nothing
    /// for a component file.
    fn check_description(&self) -> Result<(), Failure> {
        for name in DESCRIPTION_FILES {
            let path = simplify(&self.folder.join(name));
            let Ok(text) = bounded::read_text(&path, LARGEST_DOCUMENT) else { continue };
            let find = |words: &&str| text.find(words).map(|start| start..start + words.len());
            let Some(range) = DESCRIPTIONS.iter().find_map(find) else { continue };
            let snippet = Snippet::of(&text, &range);
            let explanation = Explanation::new("package", "the package has no description yet")
                .with_location(format!("{}:{}:{}", path.display(), snippet.line, snippet.column))
                .with_snippet(snippet)
                .with_why("these are the words of the template, and others would read them in the package")
                .with_hint("replace them by a sentence about what it does");
            return Err(Failure::new(explanation, Exit::Usage));
        }
        Ok(())
    }

    /// Opens the component. A component file is opened as it is. The component of a folder is built first if it is
    /// missing, stale or a debug build; with `--sign` always, in an empty target folder.
    fn open_or_build(&self, terminal: Terminal, offline: bool) -> Result<Package, Failure> {
        if self.folder.is_file() {
            return Ok(Reference::File(self.folder.clone()).open()?);
        }
        let found = Reference::Folder(self.folder.clone());
        match found.open() {
            // Before signing, the source is built: the component only claims to be built from it.
            Ok(_) if self.sign.is_some() => {}
            Ok(package) if !Record::read(&package.bytes)?.is_some_and(|record| record.debug) => return Ok(package),
            Ok(_) | Err(Error::NotBuilt { .. } | Error::Stale { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        // Without cargo's cached outputs, which could have been compiled from other source.
        let clean = self.sign.is_some();
        let built = build_method(terminal, &self.folder, &Options { offline, clean, ..Options::default() })?;
        show_compiler_warnings(terminal, &built.warnings);
        Ok(found.open()?)
    }

    /// The command, for the user to type, that packs the same folder with `--sign`.
    fn sign_command(&self) -> String {
        let folder = if self.folder == Path::new(".") { String::new() } else { format!("{} ", self.folder.display()) };
        let out = self.out.as_ref().map_or(String::new(), |path| format!(" --out {}", path.display()));
        format!("tunebox pack {folder}--sign KEY{out}    (`tunebox key FILE` creates a key)")
    }

    /// Reads `README.md` of the method folder, which becomes part of the package. `None` if there is no such file.
    /// Fails if it is larger than 1 MiB or not UTF-8; packing has a lower limit.
    fn read_readme(&self) -> Result<Option<String>, Failure> {
        let path = self.folder.join("README.md");
        if !path.is_file() {
            return Ok(None);
        }
        Ok(Some(bounded::read_text(&path, LARGEST_DOCUMENT).map_err(FileError::at("used", &path))?))
    }

    /// Reads the secret key of `--sign`, asking for its password if it has one, and shows the key's warning. `None`
    /// without `--sign`.
    fn read_key(&self, terminal: Terminal) -> Result<Option<SecretKey>, Failure> {
        let Some(path) = &self.sign else { return Ok(None) };
        let password = || terminal.ask_password(&format!("password of `{}`", path.display()));
        let key = SecretKey::read(path, password)?;
        key.warning().iter().for_each(|text| terminal.warn(text));
        Ok(Some(key))
    }
}

/// Writes the signature beside the package at `path` and returns its signer. Without a signature, keeps an existing
/// file that is valid for the package and returns its signer; removes and reports an invalid one.
fn write_signature(
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
    std::fs::remove_file(&place).map_err(FileError::at("used", &place))?;
    terminal.status("Removed", format!("{}, a signature of another package", place.display()));
    Ok(None)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use tunebox_package::template::{Language, Start, Template};

    use super::*;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        pack: Pack,
    }

    #[test]
    fn the_words_of_the_template_are_refused_with_their_file_and_line() {
        let starts = [Start::Shape("supervised"), Start::Verifier, Start::Environment];
        let languages = [(Language::Rust, "Cargo.toml"), (Language::Python, "pyproject.toml")];
        for ((language, file), start) in languages.into_iter().flat_map(|one| starts.map(|start| (one, start))) {
            let place = tempfile::tempdir().unwrap();
            let template = Template::new("calm", language, start).unwrap();
            let folder = template.write(place.path(), |_| Ok::<_, Failure>(())).unwrap();
            let pack = || CommandLine::parse_from(["tunebox", folder.to_str().unwrap()]).pack.check_description();
            let location = || pack().unwrap_err().explanation.location.unwrap();
            let path = folder.join(file);
            assert_eq!(location(), format!("{}:3:16", path.display()));

            let described = |path: &Path| {
                let text = std::fs::read_to_string(path).unwrap();
                let text = DESCRIPTIONS.iter().fold(text, |text, words| text.replace(words, "Keeps calm"));
                std::fs::write(path, text).unwrap();
            };
            described(&path);
            assert_eq!(location(), format!("{}:3:1", folder.join("README.md").display()));
            described(&folder.join("README.md"));
            assert!(pack().is_ok());
        }
    }
}
