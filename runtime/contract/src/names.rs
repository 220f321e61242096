//! Names of the contract as names in Rust.

/// Converts a WIT name to snake case, for a function, parameter or module: `log-ratio` to `log_ratio`. A keyword of
/// Rust that the contract uses gets an underscore, as in generated bindings: `where` becomes `where_`.
pub fn snake(name: &str) -> String {
    match name {
        "where" => "where_".to_owned(),
        _ => name.replace('-', "_"),
    }
}

/// Converts a WIT name to camel case, for a type or case: `log-ratio` to `LogRatio`.
pub fn camel(name: &str) -> String {
    let capitalize = |word: &str| {
        let mut letters = word.chars();
        letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect::<String>()
    };
    name.split('-').map(capitalize).collect()
}

/// Returns the path of a function in the table, in reports and in errors: `tensor.tensor.exp` for the key
/// `[method]tensor.exp` of the interface `tensor`, `tensor.tensor.constructor` for `[constructor]tensor`,
/// `tensor.logical-and` for the function `logical-and` of the interface itself.
pub(crate) fn path(interface: &str, key: &str) -> String {
    match key.strip_prefix("[constructor]") {
        Some(resource) => format!("{interface}.{resource}.constructor"),
        None => format!("{interface}.{}", key.rsplit(']').next().unwrap_or(key)),
    }
}
