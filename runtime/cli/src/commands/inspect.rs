//! `tunebox inspect`: shows what a method is and what it can access, from its bytes, without running it.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use tunebox_foundation::printable::printable;
use tunebox_package::home::existing;
use tunebox_package::pack::readme;
use tunebox_package::sizes::{Part, sizes};
use tunebox_package::trust::Lock;
use tunebox_package::{Manifest, Package, Reference, Trust, World, provenance, world};
use tunebox_sandbox::confinement::{CONFINED, Ring};
use tunebox_sandbox::{COSTS, Limits, interface_of};
use tunebox_training::package_files;

use crate::access::Access;
use crate::package::describe::{
    describe_settings, expect_no_run, find_publisher, provenance_text, signer_text, usage_command,
};
use crate::terminal::{CommandResult, ExitStatus, Failure, Terminal, escape};
use tunebox_foundation::format::bytes;

#[derive(Debug, Args)]
pub(crate) struct Inspect {
    /// A built-in method, a method folder, a `.wasm` file, or `NAME[@VERSION]` of a package in the store
    package: String,
    /// Print what the component imports and exports as WIT, the interface language of WebAssembly components
    #[arg(long)]
    wit: bool,
    /// Print the software bill of materials (SBOM) that its author put into the package, a CycloneDX document
    #[arg(long, conflicts_with = "wit")]
    sbom: bool,
    /// Print the README that its author put into the package
    #[arg(long, conflicts_with_all = ["wit", "sbom"])]
    readme: bool,
}

/// What each interface lets a method do.
const INTERFACE_MEANINGS: &[(&str, &str)] = &[
    ("types", "type definitions only"),
    ("run", "read the step number, report declared metrics, write a limited number of log lines"),
    ("tensor", "compute on tensors through handles; read back a limited number of values per step"),
    ("data", "read the batch as token ids, masks and lengths, never as text"),
    ("model", "score rows with the model, without access to logits or weights"),
    ("learn", "back-propagate a loss: change the adapter or weights that the run trains"),
    ("optimizer", "read and update the parameters that the run trains, and keep state and parameters of its own"),
    ("sample", "generate completions with the model"),
    ("teacher", "learn from the run's other models"),
    ("reward", "have the run's verifiers judge completions"),
    ("hidden", "read activations of the model"),
    ("patch", "change activations during the run"),
    ("weights", "READ AND CHANGE WEIGHTS of the model"),
    ("text", "convert tokens to TEXT and text to tokens"),
];

impl Inspect {
    /// Returns the files that the command reads. Fails if the argument is a run or names no package.
    pub(super) fn prepare(&self) -> Result<Option<Access>, Failure> {
        expect_no_run(Path::new(&self.package))?;
        let package = Reference::parse(&self.package, Path::new("."))?;
        let lock = PathBuf::from("tunebox.lock");
        Ok(Some(Access::read_only(package_files(&package).into_iter().chain([lock]).collect())))
    }

    /// Prints the description, or the WIT text with `--wit`, the CycloneDX document with `--sbom`, the README with
    /// `--readme`. With the description, notes a later version in `tunebox.lock`, and suggests how to use the package.
    /// Fails if the component is malformed.
    pub(crate) fn run(self, terminal: Terminal) -> CommandResult {
        let package = Reference::parse(&self.package, Path::new("."))?.open()?;
        let imports = tunebox_sandbox::imports(&package.bytes)?;
        if self.wit {
            let text = world::wit(&package.bytes)?;
            if !terminal.json {
                terminal.print(&text);
            }
            terminal.event(json!({ "name": package.manifest.name, "wit": text }));
            return Ok(ExitStatus::Success);
        }
        let provenance = provenance::read(&package.bytes)?;
        if self.sbom {
            let lack = ["does not say what it was built from", "`tunebox pack` of its folder writes it into a package"];
            return print_part(terminal, &package, "sbom", provenance::sbom(&package.bytes)?, lack);
        }
        if self.readme {
            let lack = ["has no README in it", "`tunebox pack` puts the `README.md` of a folder into the package"];
            return print_part(terminal, &package, "readme", readme(&package.bytes)?, lack);
        }
        let (parts, publisher) = (sizes(&package.bytes)?, find_publisher(&package)?);
        if !terminal.json {
            let signed = signer_text(&package, publisher.as_ref());
            let made = provenance.as_ref().map_or("none".to_owned(), provenance_text);
            terminal.print_rows(&escape(&describe_package(&package, &imports, [&signed, &made], &parts)));
        }
        terminal.event(json!({
            "name": package.manifest.name, "version": package.manifest.version, "origin": package.origin,
            "digest": format!("sha256:{}", package.digest), "bytes": package.bytes.len(), "sections": parts,
            "signer": package.signer.as_ref().map(|signer| &signer.key), "source": package.source,
            "first_seen": publisher.map(|publisher| publisher.first_seen), "imports": imports,
            "provenance": provenance, "manifest": package.manifest, "limits": Limits::default(), "costs": COSTS,
            "rings": Ring::list(),
        }));
        let later = required_later_version(&package)?;
        if let Some(later) = &later {
            terminal.note(format!("tunebox.lock has {later}: a run refuses older versions"));
        }
        terminal.suggest(usage_command(&package, &imports, later.as_ref().unwrap_or(&self.package)));
        Ok(ExitStatus::Success)
    }
}

/// Prints a text that the author put into a package, which is escaped already; with `--json` an object that has it
/// under `key`. If `text` is `None`, fails with what the package lacks and a hint.
fn print_part(
    terminal: Terminal,
    package: &Package,
    key: &str,
    text: Option<String>,
    [lack, hint]: [&str; 2],
) -> CommandResult {
    let name = &package.manifest.name;
    let text = text.ok_or_else(|| Failure::usage(format!("`{name}` {lack}"), hint))?;
    if !terminal.json {
        terminal.print_line(&text);
    }
    terminal.event(json!({ "name": name, key: text }));
    Ok(ExitStatus::Success)
}

/// Finds the version that `tunebox.lock` of the present folder requires if it is later than the package's, as
/// `NAME@VERSION`. `None` if it is not, for packages that are not from the store, or if the user has no tunebox folder
/// yet.
fn required_later_version(package: &Package) -> Result<Option<String>, Failure> {
    let (Some(home), Some(_)) = (existing()?, &package.source) else { return Ok(None) };
    Ok(later_version_in(Trust::open(&home, Path::new("."))?.lock(), &package.manifest))
}

/// Returns the highest version of the manifest's package that the lock has seen if the manifest's version is older, as
/// `NAME@VERSION`. `None` if it is not older, or if the lock does not pin a package of this name.
fn later_version_in(lock: &Lock, manifest: &Manifest) -> Option<String> {
    let version = lock.find(&manifest.name)?.later_than(&manifest.version)?;
    Some(format!("{}@{version}", manifest.name))
}

/// Formats the description of a package: its manifest, who signed it (`signed`) and how it was made (`made`), the sizes
/// of its `parts`, what each import permits, its settings and the default limits. Metrics and confinement are left out
/// for a verifier and an environment.
fn describe_package(package: &Package, imports: &[String], [signed, made]: [&str; 2], parts: &[Part]) -> String {
    let manifest = &package.manifest;
    let mut lines = vec![format!("{} {}  {}", manifest.name, manifest.version, manifest.description)];
    let mut row = |name: &str, value: String| lines.push(format!("{name:>11}  {value}"));
    if let Some(paper) = &manifest.paper {
        row("paper", paper.clone());
    }
    row("license", manifest.license.clone().unwrap_or_else(|| "not stated".into()));
    row("signed", signed.to_owned());
    row("provenance", made.to_owned());
    row("from", package.origin.clone());
    row("size", format!("{}: {}", bytes(package.bytes.len() as u64), format_sections(parts)));
    row("digest", format!("sha256:{}", package.digest));
    if let Ok(Some(text)) = readme(&package.bytes) {
        row("readme", format!("{} lines of its author; `--readme` prints them", text.lines().count()));
    }
    row("contract", format!("tunebox:method@{}", manifest.interface));
    let whole = if manifest.batch.is_micro() { "" } else { ", all records of an update in one batch" };
    row("data", format!("{}{whole}", manifest.shape));
    if manifest.world == World::Method {
        row("metrics", manifest.metrics.join(", "));
    }
    lines.push(match imports {
        [] if manifest.world == World::Environment => {
            "\nImports nothing: it can only answer the text that it is given.".into()
        }
        [] => "\nImports nothing: it can only judge the text that it is given.".into(),
        _ => "\nImports, and what each lets it do:".into(),
    });
    for import in imports {
        let name = interface_of(import).unwrap_or(import);
        let meaning = INTERFACE_MEANINGS
            .iter()
            .find(|(known, _)| *known == name)
            .map_or("UNKNOWN: no run grants it", |(_, words)| words);
        lines.push(format!("{:>11}  {meaning}", printable(name, 64)));
    }
    lines.push("             Cannot open files, reach the network, or read a clock or the environment.".into());
    if manifest.world == World::Method {
        let rings: Vec<&str> = Ring::list().iter().filter(|ring| ring.is_active).map(|ring| ring.name).collect();
        let rings = if rings.is_empty() { "nothing".to_owned() } else { rings.join("; ") };
        lines.push(format!("             Of {}, this system confines: {rings}.", CONFINED.join(" and ")));
    }
    if !manifest.settings.is_empty() {
        lines.extend(describe_settings("\nSettings:", manifest));
    }
    lines.push("\nDefault limits; `[limits]` of a run file changes them:".into());
    lines.extend(format_limits(manifest.world));
    lines.join("\n")
}

/// Maximum number of sections that are listed.
const MAX_SECTIONS: usize = 4;

/// Lists the first [`MAX_SECTIONS`] sections with their sizes, and the total size of the others.
fn format_sections(parts: &[Part]) -> String {
    let (shown, rest) = parts.split_at(parts.len().min(MAX_SECTIONS));
    let mut cells: Vec<String> = shown.iter().map(|part| format!("{} {}", part.name, bytes(part.bytes))).collect();
    if !rest.is_empty() {
        cells.push(format!("the rest {}", bytes(rest.iter().map(|part| part.bytes).sum())));
    }
    cells.join(", ")
}

/// Lists the default limits with their units, one line each: for a verifier or an environment those whose names begin
/// with `verifier-` or `environment-`, for a method all others.
fn format_limits(world: World) -> impl Iterator<Item = String> {
    let world_of = |name: &str| match name.split_once('-') {
        Some(("verifier", _)) => World::Verifier,
        Some(("environment", _)) => World::Environment,
        _ => World::Method,
    };
    let own = Limits::default().entries().filter(move |(limit, _)| world_of(limit.name) == world);
    own.map(|(limit, value)| format!("  {:>24}  {}", limit.name, limit.unit.show(&value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_version_is_offered_for_one_that_the_lock_refuses() {
        let mut package = Reference::parse("lora", Path::new(".")).unwrap().open().unwrap();
        let (seen, digest) = ("9.0.0", "0".repeat(64));
        let text = format!(
            "schema = 1\n[[package]]\nname = \"lora\"\nversion = \"{seen}\"\nsource = \"/media/stick\"\n\
             sha256 = \"{digest}\"\ninterface = \"0.2.0\"\nhighest = \"{seen}\"\n"
        );
        let lock = Lock::parse("tunebox.lock", &text).unwrap();
        let later = later_version_in(&lock, &package.manifest).unwrap();
        assert_eq!(usage_command(&package, &[], &later), "tunebox train --sample --method lora@9.0.0");
        package.manifest.version = seen.to_owned();
        assert_eq!(later_version_in(&lock, &package.manifest), None);
    }
}
