//! The shapes of records that a method can learn from.

use syn::LitStr;

/// Every shape by its name in a manifest. What its records hold is in the SDK's page.
const SHAPES: [&str; 6] = ["supervised", "preference", "unpaired", "prompts", "instructions", "contrast"];

/// The most letters by which a name is taken for another.
const CLOSE: usize = 2;

/// Returns the shape that a literal names. Errors: there is none of that name; suggests a similar one.
pub(crate) fn read(word: &LitStr) -> syn::Result<String> {
    let name = word.value();
    if SHAPES.contains(&name.as_str()) {
        return Ok(name);
    }
    let meant = nearest(&name).map(|meant| format!("did you mean \"{meant}\"? ")).unwrap_or_default();
    let known = SHAPES.join("\", \"");
    Err(syn::Error::new(
        word.span(),
        format!("no record has the shape \"{name}\"; {meant}a shape is one of \"{known}\""),
    ))
}

/// The shape with the smallest edit distance, if that is at most [`CLOSE`]; at a tie the first by name.
fn nearest(name: &str) -> Option<&'static str> {
    let close = SHAPES.into_iter().map(|shape| (distance(name, shape), shape)).min();
    close.filter(|(distance, _)| *distance <= CLOSE).map(|(_, shape)| shape)
}

/// The Levenshtein distance: how many characters to insert, remove or replace.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut above: Vec<usize> = (0..=right.len()).collect();
    for (index, letter) in left.chars().enumerate() {
        let mut row = vec![index + 1];
        for (column, other) in right.iter().enumerate() {
            let exchanged = above[column] + usize::from(letter != *other);
            row.push(exchanged.min(above[column + 1] + 1).min(row[column] + 1));
        }
        above = row;
    }
    above[right.len()]
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proc_macro2::Span;

    use super::*;

    fn told(name: &str) -> String {
        read(&LitStr::new(name, Span::call_site())).unwrap_err().to_string()
    }

    fn text(path: &str) -> String {
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
    }

    #[test]
    fn a_misspelt_shape_is_refused_with_the_one_that_was_meant_and_with_all_of_them() {
        let known = "a shape is one of \"supervised\", \"preference\", \"unpaired\", \"prompts\", \"instructions\", \
                     \"contrast\"";
        let meant = "no record has the shape \"supervisd\"; did you mean \"supervised\"? ";
        assert_eq!(told("supervisd"), format!("{meant}{known}"));
        assert_eq!(told("ranking"), format!("no record has the shape \"ranking\"; {known}"));
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
