//! Names of the contract as names in Rust, as `wit-bindgen` forms them.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};
use wit_parser_of_bindings::Docs;

/// Converts `log-ratio` to `log_ratio`, for functions, fields, parameters and modules; keywords get a final `_`.
pub(crate) fn value(name: &str) -> Ident {
    let name = name.replace('-', "_");
    // A word of the language gets a line after it.
    syn::parse_str(&name).unwrap_or_else(|_| format_ident!("{name}_"))
}

/// Converts `log-ratio` to `LogRatio`, for types and cases.
pub(crate) fn camel(name: &str) -> Ident {
    let mut joined = String::new();
    for word in name.split('-') {
        let mut letters = word.chars();
        joined.extend(letters.next().into_iter().flat_map(char::to_uppercase));
        joined.push_str(letters.as_str());
    }
    format_ident!("{joined}")
}

/// Converts the documentation of an item to `#[doc]` attributes, one for each line, trimmed; `None` if it has none.
pub(crate) fn documentation(docs: &Docs) -> Option<TokenStream> {
    let lines = docs.contents.as_deref()?.trim().lines().map(|line| format!(" {}", line.trim()));
    Some(quote!(#(#[doc = #lines])*))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_rust() {
        assert_eq!(value("log1p").to_string(), "log1p");
        assert_eq!(value("move").to_string(), "move_");
        assert_eq!(camel("error-code").to_string(), "ErrorCode");
        assert_eq!(camel("bf16").to_string(), "Bf16");
    }
}
