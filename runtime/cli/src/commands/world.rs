//! `tunebox inspect --wit`: the world of a component as WIT text, from its bytes.

use serde_json::json;
use tunebox_package::{Package, world};

use super::{Ending, Outcome};
use crate::terminal::Terminal;

/// Shows what a package asks for and offers, with every type and function.
pub(super) fn show(terminal: Terminal, package: &Package) -> Outcome {
    let text = world::wit(&package.bytes)?;
    match terminal.json {
        true => terminal.object(json!({ "name": package.manifest.name, "wit": text })),
        false => terminal.raw(text),
    }
    Ok(Ending::Done)
}
