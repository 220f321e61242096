//! What a component imports and exports, read off its bytes.

use serde::{Deserialize, Serialize};
use wasmparser::{Parser, Payload};

use crate::Error;

/// The names of a component's imports and exports, in the component's order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interfaces {
    /// The names of the exports.
    pub exports: Vec<String>,
    /// The names of the imports.
    pub imports: Vec<String>,
}

/// Reads the names of the imports and exports at the top level of a component; nested components do not count. Errors:
/// bytes that are no component.
pub fn interfaces(bytes: &[u8]) -> Result<Interfaces, Error> {
    if !Parser::is_component(bytes) {
        return Err(Error::not_component("its header is not that of a component"));
    }
    let (mut interfaces, mut depth) = (Interfaces::default(), 0u32);
    for payload in Parser::new(0).parse_all(bytes) {
        match payload? {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(imports) if depth == 0 => {
                for import in imports {
                    interfaces.imports.push(import?.name.name.to_owned());
                }
            }
            Payload::ComponentExportSection(exports) if depth == 0 => {
                for export in exports {
                    interfaces.exports.push(export?.name.name.to_owned());
                }
            }
            _ => {}
        }
    }
    Ok(interfaces)
}
