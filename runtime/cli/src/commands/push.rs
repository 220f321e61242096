//! `tunebox push`: uploads a package to a registry, or copies it to a folder in OCI layout.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tunebox_foundation::format::bytes;
use tunebox_package::reference::signature_path;
use tunebox_package::registry::{self, Location};
use tunebox_package::statement::Statement;
use tunebox_package::{Artifact, Reference};

use crate::arguments::Global;
use crate::terminal::progress::transfer_display;
use crate::terminal::{CommandResult, ExitStatus, Failure, Terminal};

#[derive(Debug, Args)]
pub(crate) struct Push {
    /// Package file from `tunebox pack`; the signature is read from the `.minisig` file beside it
    file: PathBuf,
    /// Destination: `registry.example/namespace/name`, or a folder such as `./stick` or `/media/stick`. An existing
    /// folder needs no `./` if its name cannot be one of a registry
    place: String,
    /// Use HTTP instead of HTTPS, without a login. Registries on this machine always use HTTP
    #[arg(long)]
    plain_http: bool,
}

impl Push {
    /// Uploads a package with the signature beside its file, which must be valid. Fails for the folder of a run or of a
    /// model, and if the file is unsigned and a signed package of it lies beside it; of another unsigned file, says how
    /// to sign it.
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> CommandResult {
        if ["run.lock", "adapter_config.json", "config.json"].iter().any(|file| self.file.join(file).is_file()) {
            let what = format!("`{}` is no package of a method, and no other is uploaded", self.file.display());
            let hint = "`tunebox export RUN --to peft` or `--to hf` writes a folder for `hf upload`";
            return Err(Failure::usage(what, hint));
        }
        // Fails if the signature beside the file is not one of its bytes.
        let package = Reference::File(self.file.clone()).open()?;
        let statement = Statement::of(&package.bytes)?;
        let mut place = Location::parse(&self.place)?;
        (place.offline, place.plain_http) = (global.offline, self.plain_http);
        if package.signer.is_none() {
            self.expect_no_signed_package(&statement)?;
        }
        let (size, signer) = (package.bytes.len() as u64, package.signer.map(|signer| signer.key));
        let artifact = Artifact { wasm: package.bytes.into_owned(), signature: package.signature };
        if !place.is_folder() {
            terminal.status("Connecting", format!("to the registry of {place}"));
        }
        let manifest = registry::push(&place, &artifact, &mut transfer_display(terminal))?;

        let between = if place.is_folder() { format!("//{}", statement.name) } else { String::new() };
        let name = place.source().trim_start_matches("oci:").to_owned();
        let pushed = format!("{name}{between}:{}", statement.version);
        terminal.status("Pushed", format!("{pushed}, {}", bytes(size)));
        terminal.status("Signed", signer_text(signer.as_deref(), place.is_folder()));
        if signer.is_some() || place.is_folder() {
            terminal.suggest(format!("tunebox pull {pushed}    (on another machine)"));
        }
        terminal.event(json!({
            "event": "pushed", "place": pushed, "bytes": size, "digest": format!("sha256:{}", package.digest),
            "manifest": manifest, "signer": signer,
        }));
        Ok(ExitStatus::Success)
    }

    /// Fails if the packed file of the same name and version lies beside this unsigned file with a signature: the user
    /// probably meant that one.
    fn expect_no_signed_package(&self, statement: &Statement) -> Result<(), Failure> {
        let packed = self.file.with_file_name(format!("{}-{}.wasm", statement.name, statement.version));
        if packed == self.file || !packed.is_file() || !signature_path(&packed).is_file() {
            return Ok(());
        }
        let (file, packed) = (self.file.display(), packed.display());
        let what = format!("`{file}` is not signed, but `{packed}` beside it is");
        Err(Failure::usage(what, format!("`tunebox push {packed} {}`", self.place)))
    }
}

/// Describes who signed the pushed package. Without a signer, says how to sign it, and that pulling from a registry
/// (not from a folder) refuses it.
fn signer_text(signer: Option<&str>, is_folder: bool) -> String {
    match signer {
        Some(signer) => format!("by {signer}"),
        None if is_folder => "no; `tunebox pack --sign KEY` signs it".to_owned(),
        None => "no: `tunebox pull` refuses it; `tunebox pack --sign KEY` signs it".to_owned(),
    }
}
