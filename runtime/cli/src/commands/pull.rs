//! `tunebox pull`: a package from a registry, or from a folder in the form of one, into the store of this user.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use tunebox_foundation::printable::printable;
use tunebox_package::home::home;
use tunebox_package::reference::signature_in;
use tunebox_package::registry::{self, Location};
use tunebox_package::store::Store;
use tunebox_package::trust::Admitted;

use super::build::training_with;
use super::trust::{Trusting, interfaces};
use super::{Ending, Outcome};
use crate::arguments::Global;
use crate::terminal::Terminal;
use crate::terminal::progress::Transfer;
use tunebox_foundation::format::bytes;

/// Bytes of the longest path that is kept as a source.
const LONGEST_SOURCE: usize = 4000;

#[derive(Debug, Args)]
pub(crate) struct Pull {
    /// `registry.example/namespace/name:1.2.3`, or a package in a folder: `./folder//name:1.2.3`
    place: String,
    /// Speak to the registry without encryption, and so without a login; one on this machine always is spoken to so
    #[arg(long)]
    plain_http: bool,
    /// The package's signature, for one that another program pushed without it
    #[arg(long, value_name = "FILE")]
    signature: Option<PathBuf>,
    #[command(flatten)]
    trusting: Trusting,
}

impl Pull {
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> Outcome {
        let place = Location::parse(&self.place)?.offline(global.offline).plain_http(self.plain_http);
        let signature = self.signature.as_deref().map(signature_in).transpose()?;
        let (mut artifact, manifest) = registry::pull(&place, &mut Transfer::new(terminal))?;
        artifact.signature = signature.or(artifact.signature);

        // A folder is known by its path alone, so that what is in it counts as local; the path is kept as a text.
        let source = printable(place.source().trim_start_matches("oci:"), LONGEST_SOURCE);
        let asked = if place.is_folder() { source.clone() } else { place.to_string() };
        let (trust, admitted) = self.trusting.admit(terminal, &artifact, &asked, Path::new("."))?;
        // What no run could take is not kept either; what a run may grant is for its run file to say.
        let imports = tunebox_sandbox::imports(&artifact.wasm)?;
        let stored = trust.commit_with(|| Store::open(&home()?)?.put(&artifact, &source))?;

        let name = format!("{}@{}", stored.name, stored.version);
        terminal.say("Pulled", format!("{name}, {}, sha256:{}", bytes(stored.size), stored.digest));
        terminal.say("Signed", signed(&admitted));
        terminal.say("Asks for", interfaces(&imports));
        terminal.next(format!("tunebox inspect {name}; {}", training_with(&name, stored.size)));
        if terminal.json {
            terminal.object(json!({
                "event": "pulled", "name": stored.name, "version": stored.version, "source": stored.source,
                "bytes": stored.size, "digest": format!("sha256:{}", stored.digest), "manifest": manifest,
                "signer": stored.signer, "first_seen": admitted.first_seen, "previous": admitted.previous,
                "imports": imports,
            }));
        }
        Ok(Ending::Done)
    }
}

/// Who signed what was pulled, and what the lock held before.
fn signed(admitted: &Admitted) -> String {
    let by = match (&admitted.signer, &admitted.first_seen) {
        (None, _) => "no: it came from a path, and nobody vouches for it".to_owned(),
        (Some(signer), None) => format!("by {signer}"),
        (Some(signer), Some(day)) => format!("by {signer}, known here since {day}"),
    };
    match &admitted.previous {
        Some(previous) => format!("{by}; the lock had {previous}"),
        None => by,
    }
}
