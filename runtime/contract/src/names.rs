//! Names of the contract as names in Rust.

/// `log-ratio` as `log_ratio`: a function, a parameter, a module.
pub fn snake(name: &str) -> String {
    name.replace('-', "_")
}

/// `log-ratio` as `LogRatio`: a type or a case.
pub fn camel(name: &str) -> String {
    let capitalize = |word: &str| {
        let mut letters = word.chars();
        letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect::<String>()
    };
    name.split('-').map(capitalize).collect()
}

/// The name of a function in the table, in reports and in errors: `[method]tensor.exp` of the interface `tensor` is
/// `tensor.tensor.exp`.
pub(crate) fn path(interface: &str, key: &str) -> String {
    match key.strip_prefix("[constructor]") {
        Some(resource) => format!("{interface}.{resource}.constructor"),
        None => format!("{interface}.{}", key.rsplit(']').next().unwrap_or(key)),
    }
}
