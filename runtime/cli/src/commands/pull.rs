//! `tunebox pull`: downloads a package from a registry, or a folder in OCI layout, into the user's store.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tunebox_foundation::format::bytes;
use tunebox_foundation::printable::printable;
use tunebox_package::home::home;
use tunebox_package::reference::signature_in;
use tunebox_package::registry::{self, Location};
use tunebox_package::store::Store;
use tunebox_package::trust::Admitted;

use crate::arguments::Global;
use crate::package::describe::{import_names, train_command};
use crate::package::trust::TrustOptions;
use crate::terminal::progress::transfer_display;
use crate::terminal::{CommandResult, ExitStatus, Terminal};

/// Longest path that is stored as a source, in bytes.
const MAX_SOURCE_BYTES: usize = 4000;

#[derive(Debug, Args)]
pub(crate) struct Pull {
    /// Package to download: `registry.example/namespace/name:1.2.3`, or in a folder `./folder//name:1.2.3`
    place: String,
    /// Use HTTP instead of HTTPS, without a login. Registries on this machine always use HTTP
    #[arg(long)]
    plain_http: bool,
    /// Signature file, for a package that another program uploaded without its signature
    #[arg(long, value_name = "FILE")]
    signature: Option<PathBuf>,
    #[command(flatten)]
    trust: TrustOptions,
}

impl Pull {
    /// Downloads a package, checks its signer, stores it and updates `tunebox.lock` of the present folder. The file of
    /// `--signature` replaces the package's own signature. Nothing is stored if a check fails, or if the imports of the
    /// component cannot be read.
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> CommandResult {
        let mut place = Location::parse(&self.place)?;
        (place.offline, place.plain_http) = (global.offline, self.plain_http);
        let signature = self.signature.as_deref().map(signature_in).transpose()?;
        if !place.is_folder() {
            terminal.status("Connecting", format!("to the registry of {place}"));
        }
        let (mut artifact, manifest) = registry::pull(&place, &mut transfer_display(terminal))?;
        artifact.signature = signature.or(artifact.signature);

        // The source of a folder is its path, without `//name`, so that its packages count as local.
        let source = printable(place.source().trim_start_matches("oci:"), MAX_SOURCE_BYTES);
        let asked = if place.is_folder() { source.clone() } else { place.to_string() };
        let (trust, admitted) = self.trust.admit(terminal, &artifact, &asked)?;
        // A component that no run could admit is not stored. Which imports a run grants is decided by its run file.
        let imports = tunebox_sandbox::imports(&artifact.wasm)?;
        let stored = trust.commit_with(|| Store::open(&home()?)?.put(&artifact, &source))?;

        let name = format!("{}@{}", stored.name, stored.version);
        terminal.status("Pulled", format!("{name}, {}, sha256:{}", bytes(stored.size), stored.digest));
        terminal.status("Signed", signer_text(&admitted));
        terminal.status("Imports", import_names(&imports));
        // The suggested command grants nothing: the user has not yet seen which permissions the package needs.
        terminal.suggest(format!("tunebox inspect {name}; {}", train_command(&name, stored.size, &[])));
        terminal.event(json!({
            "event": "pulled", "name": stored.name, "version": stored.version, "source": stored.source,
            "bytes": stored.size, "digest": format!("sha256:{}", stored.digest), "manifest": manifest,
            "signer": stored.signer, "first_seen": admitted.first_seen, "previous": admitted.previous,
            "imports": imports,
        }));
        Ok(ExitStatus::Success)
    }
}

/// Describes who signed the pulled package, since when the signer is known, and which version the lock had before.
fn signer_text(admitted: &Admitted) -> String {
    let by = match (&admitted.signer, &admitted.first_seen) {
        (None, _) => "no: the package comes from a path and has no signature".to_owned(),
        (Some(signer), None) => format!("by {signer}"),
        (Some(signer), Some(day)) => format!("by {signer}, known here since {day}"),
    };
    match &admitted.previous {
        Some(previous) => format!("{by}; the lock had {previous}"),
        None => by,
    }
}
