//! `tunebox inspect`: what a method is and what it may do, read off its bytes without running it.

use std::path::Path;

use clap::Args;
use serde_json::json;
use tunebox_foundation::printable::printable;
use tunebox_package::home::existing;
use tunebox_package::settings::range;
use tunebox_package::sizes::{Part, sizes};
use tunebox_package::trust::Lock;
use tunebox_package::{Manifest, Package, Reference, Setting, Trust, World};
use tunebox_sandbox::{COSTS, Limits, VerifierLimits, interface_of};

use super::build::training_with;
use super::subject::expect_method;
use super::{Ending, Outcome, trust, world};
use crate::terminal::diagnostic::Failure;
use crate::terminal::{Terminal, shown};
use tunebox_foundation::format::bytes;

#[derive(Debug, Args)]
pub(crate) struct Inspect {
    /// A built-in method, a method folder, a `.wasm` file, or a package in the store: `NAME` or `NAME@VERSION`
    package: String,
    /// The world that it asks for and what it offers, as WIT text
    #[arg(long)]
    wit: bool,
}

/// What each interface lets a method do, in plain words.
const MEANINGS: &[(&str, &str)] = &[
    ("types", "plain types; nothing by itself"),
    ("run", "know the step number, report declared metrics, write capped log lines"),
    ("tensor", "compute on tensors through handles; read back a few numbers a step"),
    ("data", "see the batch as token ids, masks and lengths, never as text"),
    ("model", "score rows through the model; it never sees logits or weights"),
    ("learn", "make a loss smaller: change the adapter that the run trains"),
    ("sample", "let the model write"),
    ("reward", "have the run's verifiers judge completions"),
    ("hidden", "read activations inside the model"),
    ("patch", "change activations while the run lasts"),
    ("weights", "READ AND CHANGE WEIGHTS of the model"),
    ("text", "turn tokens into TEXT and text into tokens"),
];

impl Inspect {
    pub(crate) fn run(self, terminal: Terminal) -> Outcome {
        expect_method(Path::new(&self.package))?;
        let package = Reference::parse(&self.package, Path::new("."))?.open()?;
        let imports = tunebox_sandbox::imports(&package.bytes)?;
        if self.wit {
            return world::show(terminal, &package);
        }
        let (parts, publisher) = (sizes(&package.bytes)?, trust::publisher(&package)?);
        if terminal.json {
            terminal.object(json!({
                "name": package.manifest.name, "version": package.manifest.version, "origin": package.origin,
                "digest": format!("sha256:{}", package.digest), "bytes": package.bytes.len(), "sections": parts,
                "signer": package.signer.as_ref().map(|signer| &signer.key), "source": package.source,
                "first_seen": publisher.map(|publisher| publisher.first_seen), "imports": imports,
                "manifest": package.manifest, "limits": Limits::default(), "costs": COSTS,
            }));
        } else {
            let signed = trust::signed(&package, publisher.as_ref());
            terminal.data(shown(&text(&package, &imports, &signed, &parts)));
        }
        let later = later(&package)?;
        if let Some(later) = &later {
            terminal.say("Note", format!("tunebox.lock has seen {later}: a run takes no older version"));
        }
        terminal.next(next(&package, later.as_ref().unwrap_or(&self.package)));
        Ok(Ending::Done)
    }
}

/// What is usually typed next: a method of this name is run, a verifier judges the runs of one.
fn next(package: &Package, name: &str) -> String {
    match package.manifest.world {
        World::Method => training_with(name, package.bytes.len() as u64),
        World::Verifier => format!("a `[[verifier]]` of a run file with `use = \"{name}\"`"),
    }
}

/// The later version of a package of the store, if a run in the present folder takes that alone.
fn later(package: &Package) -> Result<Option<String>, Failure> {
    let (Some(home), Some(_)) = (existing()?, &package.source) else { return Ok(None) };
    Ok(later_in(Trust::open(&home, Path::new("."))?.lock(), &package.manifest))
}

fn later_in(lock: &Lock, manifest: &Manifest) -> Option<String> {
    let version = lock.find(&manifest.name)?.later_than(&manifest.version)?;
    Some(format!("{}@{version}", manifest.name))
}

fn text(package: &Package, imports: &[String], signed: &str, parts: &[Part]) -> String {
    let manifest = &package.manifest;
    let mut lines = vec![format!("{} {}  {}", manifest.name, manifest.version, manifest.description)];
    let mut row = |name: &str, value: String| lines.push(format!("{name:>11}  {value}"));
    if let Some(paper) = &manifest.paper {
        row("paper", paper.clone());
    }
    row("licence", manifest.licence.clone().unwrap_or_else(|| "not stated".into()));
    row("signed", signed.to_owned());
    row("from", package.origin.clone());
    row("size", format!("{}: {}", bytes(package.bytes.len() as u64), largest(parts)));
    row("digest", format!("sha256:{}", package.digest));
    row("contract", format!("tunebox:method@{}", manifest.interface));
    let whole = if manifest.batch.is_micro() { "" } else { ", all records of an update at once" };
    row("data", format!("{}{whole}", manifest.shape));
    if manifest.world == World::Method {
        row("metrics", manifest.metrics.join(", "));
    }
    lines.push(match imports {
        [] => "\nIt asks for nothing: it judges the text that it is given.".into(),
        _ => "\nIt asks for, and so it may:".into(),
    });
    for import in imports {
        let name = interface_of(import).unwrap_or(import);
        let meaning =
            MEANINGS.iter().find(|(known, _)| *known == name).map_or("UNKNOWN: no run grants it", |(_, words)| words);
        lines.push(format!("{:>11}  {meaning}", printable(name, 64)));
    }
    lines.push("             It may not: open files, reach the network, read a clock or the environment.".into());
    if !manifest.settings.is_empty() {
        lines.extend(settings("\nSettings:", manifest));
    }
    lines.push(format!("\nLimits, unless the run file says otherwise in `[limits]`:\n{}", limits(manifest.world)));
    lines.join("\n")
}

/// A title, and under it every setting with what it does, what it takes and what it is by itself.
pub(super) fn settings(title: &str, manifest: &Manifest) -> Vec<String> {
    let width = manifest.settings.iter().map(|setting| setting.name.len()).fold(11, usize::max);
    let row = |setting: &Setting| {
        let default = setting.default.as_ref().map_or("must be given".into(), |value| format!("default {value}"));
        format!("{:>width$}  {} ({}; {default})", setting.name, setting.doc, range(setting))
    };
    std::iter::once(title.to_owned()).chain(manifest.settings.iter().map(row)).collect()
}

/// Sections that are shown one by one.
const SHOWN: usize = 4;

/// The largest sections and what is left, each with its size.
fn largest(parts: &[Part]) -> String {
    let (shown, rest) = parts.split_at(parts.len().min(SHOWN));
    let mut cells: Vec<String> = shown.iter().map(|part| format!("{} {}", part.name, bytes(part.bytes))).collect();
    if !rest.is_empty() {
        cells.push(format!("the rest {}", bytes(rest.iter().map(|part| part.bytes).sum())));
    }
    cells.join(", ")
}

/// The default limits, each by its name in `[limits]`, with its unit: two beside each other, read downwards.
fn limits(world: World) -> String {
    let pairs: Vec<_> = match world {
        World::Verifier => VerifierLimits::default().entries().collect(),
        World::Method => Limits::default().entries().collect(),
    };
    let cells: Vec<[String; 2]> =
        pairs.iter().map(|(limit, value)| [limit.name.to_owned(), limit.unit.show(value)]).collect();
    let (left, right) = cells.split_at(cells.len().div_ceil(2));
    let widest = |cells: &[[String; 2]], part: usize| cells.iter().map(|cell| cell[part].len()).max().unwrap_or(0);
    let (names, values, others) = (widest(left, 0), widest(left, 1), widest(right, 0));
    let rows = left.iter().enumerate().map(|(index, [name, value])| {
        let other = right.get(index).map_or_else(String::new, |[name, value]| format!("{name:>others$}  {value}"));
        format!("  {name:>names$}  {value:<values$}  {other}").trim_end().to_owned()
    });
    rows.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_version_that_the_lock_refuses_the_later_one_is_offered() {
        let mut package = Reference::parse("lora", Path::new(".")).unwrap().open().unwrap();
        let (seen, digest) = ("9.0.0", "0".repeat(64));
        let text = format!(
            "schema = 1\n[[package]]\nname = \"lora\"\nversion = \"{seen}\"\nsource = \"/media/stick\"\n\
             sha256 = \"{digest}\"\ninterface = \"0.1.0\"\nhighest = \"{seen}\"\n"
        );
        let lock = Lock::parse("tunebox.lock", &text).unwrap();
        let later = later_in(&lock, &package.manifest).unwrap();
        assert_eq!(next(&package, &later), "tunebox train --sample --method lora@9.0.0");
        package.manifest.version = seen.to_owned();
        assert_eq!(later_in(&lock, &package.manifest), None);
    }
}
