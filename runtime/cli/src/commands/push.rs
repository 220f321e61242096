//! `tunebox push`: a package to a registry, or to a folder in the form of one.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tunebox_package::reference::signature_path;
use tunebox_package::registry::{self, Location};
use tunebox_package::statement::Statement;
use tunebox_package::{Artifact, Reference};

use super::{Ending, Outcome};
use crate::arguments::Global;
use crate::terminal::Terminal;
use crate::terminal::diagnostic::Failure;
use crate::terminal::progress::Transfer;
use tunebox_foundation::format::bytes;

#[derive(Debug, Args)]
pub(crate) struct Push {
    /// A package, as `tunebox pack` makes it; its signature is taken from the file beside it
    file: PathBuf,
    /// `registry.example/namespace/name`; or a folder: `./stick`, `../stick`, `/media/stick`, or one that exists and is not
    /// spelt like a name in a registry
    place: String,
    /// Speak to the registry without encryption, and so without a login; one on this machine always is spoken to so
    #[arg(long)]
    plain_http: bool,
}

impl Push {
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> Outcome {
        // A signature that is not that of the file ends it here.
        let package = Reference::File(self.file.clone()).open()?;
        let statement = Statement::of(&package.bytes)?;
        let place = Location::parse(&self.place)?.offline(global.offline).plain_http(self.plain_http);
        if package.signer.is_none() {
            self.check_signed_beside(&statement)?;
        }
        let (size, signer) = (package.bytes.len() as u64, package.signer.map(|signer| signer.key));
        let artifact = Artifact { wasm: package.bytes.into_owned(), signature: package.signature };
        let manifest = registry::push(&place, &artifact, &mut Transfer::new(terminal))?;

        let between = if place.is_folder() { format!("//{}", statement.name) } else { String::new() };
        let name = place.source().trim_start_matches("oci:").to_owned();
        let pushed = format!("{name}{between}:{}", statement.version);
        terminal.say("Pushed", format!("{pushed}, {}", bytes(size)));
        terminal.say("Signed", signed(signer.as_deref(), place.is_folder()));
        if signer.is_some() || place.is_folder() {
            terminal.next(format!("tunebox pull {pushed}    (on another machine)"));
        }
        if terminal.json {
            terminal.object(json!({
                "event": "pushed", "place": pushed, "bytes": size, "digest": format!("sha256:{}", package.digest),
                "manifest": manifest, "signer": signer,
            }));
        }
        Ok(Ending::Done)
    }

    /// Errors: the package that was packed from this component, and signed, lies beside it.
    fn check_signed_beside(&self, statement: &Statement) -> Result<(), Failure> {
        let packed = self.file.with_file_name(format!("{}-{}.wasm", statement.name, statement.version));
        if packed == self.file || !packed.is_file() || !signature_path(&packed).is_file() {
            return Ok(());
        }
        let (file, packed) = (self.file.display(), packed.display());
        let what = format!("`{file}` is not signed, and `{packed}` beside it is");
        Err(Failure::usage(what, format!("`tunebox push {packed} {}`", self.place)))
    }
}

/// Who signed what was pushed, in words.
fn signed(signer: Option<&str>, to_folder: bool) -> String {
    match signer {
        Some(signer) => format!("by {signer}"),
        None if to_folder => "no: nobody vouches for it; `tunebox pack --sign KEY` signs it".to_owned(),
        None => "no: nobody can pull it with tunebox; `tunebox pack --sign KEY` signs it".to_owned(),
    }
}
