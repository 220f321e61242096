//! The world of a component as WIT text, read off its bytes. Nothing of it runs or is compiled.

use std::time::Duration;

use tunebox_foundation::bounded;
use tunebox_foundation::panics::catch_panic;
use tunebox_foundation::printable::printable;
use wasmparser::Parser;
use wit_component::WitPrinter;

use crate::Error;

/// The longest line of WIT text, and the longest error message, that are shown, in bytes.
const TEXT_BYTES: usize = 10_000;

/// The time limit for decoding a component: even small ones can be made to take hours.
const DECODE_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns a component's imports and exports as WIT text, without doc comments. In each line, control characters are
/// escaped, and what follows about 10,000 bytes is cut. Decodes on a thread of its own. Errors: bytes that are no
/// component, one that WIT cannot express, or one that takes longer than 5 s to decode.
pub fn wit(bytes: &[u8]) -> Result<String, Error> {
    if !Parser::is_component(bytes) {
        return Err(Error::not_component("its header is not that of a component"));
    }
    // The reader is made for components that a tool wrote and may panic over others.
    let bytes = bytes.to_vec();
    match bounded::run_with_timeout(DECODE_TIMEOUT, move || catch_panic(|| decode_wit(&bytes))) {
        Ok(Ok(Ok(text))) => Ok(text.lines().map(|line| printable(line, TEXT_BYTES) + "\n").collect()),
        Ok(Ok(Err(problem))) => Err(Error::not_component(printable(&problem, TEXT_BYTES))),
        Ok(Err(_)) => Err(Error::not_component("WIT has no words for its imports and exports")),
        Err(error) => Err(Error::not_component(format!("its types cannot be read: {error}"))),
    }
}

/// Decodes a component and prints its packages as WIT, without doc comments. May panic on components that no tool
/// wrote.
fn decode_wit(bytes: &[u8]) -> Result<String, String> {
    let decoded = wit_component::decode(bytes).map_err(|error| format!("{error:#}"))?;
    let (resolve, main) = (decoded.resolve(), decoded.package());
    let others: Vec<_> = resolve.packages.iter().map(|(id, _)| id).filter(|id| *id != main).collect();
    let mut printer = WitPrinter::default();
    // Comments are untrusted text.
    printer.emit_docs(false);
    printer.print(resolve, main, &others).map_err(|error| format!("{error:#}"))?;
    Ok(printer.output.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_world_of_a_built_in_method_is_the_part_of_the_contract_that_it_uses() {
        let lora = crate::builtin::list().iter().find(|method| method.name == "lora").unwrap();
        let text = wit(lora.bytes).unwrap();
        for line in [
            "  import tunebox:method/tensor@0.2.0;",
            "  export tunebox:method/training@0.2.0;",
            "package tunebox:method@0.2.0 {",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        assert!(!text.contains("interface weights"), "{text}");
    }

    #[test]
    fn bytes_that_are_no_component_are_an_error() {
        assert!(wit(b"").is_err());
        assert!(wit(b"\0asm\x01\0\0\0").is_err());
        assert!(wit(b"\0asm\x0d\0\x01\0\x07").is_err());
    }
}
