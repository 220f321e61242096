//! The shapes of records that a method can learn from.

use syn::LitStr;

/// Every shape by its name in a manifest. What its records hold is in the SDK's page.
const SHAPES: [&str; 6] = ["supervised", "preference", "unpaired", "prompts", "instructions", "contrast"];

/// Returns the shape that a literal names. Errors: there is none of that name.
pub(crate) fn read(word: &LitStr) -> syn::Result<String> {
    let name = word.value();
    if SHAPES.contains(&name.as_str()) {
        return Ok(name);
    }
    let known = SHAPES.join("\", \"");
    Err(syn::Error::new(word.span(), format!("no record has the shape \"{name}\"; a shape is one of \"{known}\"")))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proc_macro2::Span;

    use super::*;

    fn text(path: &str) -> String {
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
    }

    #[test]
    fn a_misspelt_shape_is_refused_with_all_of_them() {
        let known = "a shape is one of \"supervised\", \"preference\", \"unpaired\", \"prompts\", \"instructions\", \
                     \"contrast\"";
        for name in ["supervisd", "ranking"] {
            let error = read(&LitStr::new(name, Span::call_site())).unwrap_err();
            assert_eq!(error.to_string(), format!("no record has the shape \"{name}\"; {known}"));
        }
    }

    #[test]
    fn the_shapes_are_those_that_a_run_reads_in_every_language() {
        let runtime = text("runtime/training/src/data/shape.rs");
        let read: Vec<&str> = runtime
            .lines()
            .filter_map(|line| line.trim().strip_prefix('"')?.split_once("\" => Some(vec![Self::"))
            .map(|(name, _)| name)
            .collect();
        assert_eq!(read, SHAPES);
        let python = text("sdk/python/tunebox/declaration.py");
        assert!(python.contains(&format!("SHAPES = (\"{}\")", SHAPES.join("\", \""))), "{python}");
        for page in ["sdk/rust/README.md", "sdk/python/README.md"].map(text) {
            assert!(SHAPES.iter().all(|shape| page.contains(&format!("| `{shape}` |"))), "{page}");
        }
    }
}
