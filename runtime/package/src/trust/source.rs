//! Where a package came from, as far as trust is concerned: from a path, or from a name in a registry.

use tunebox_foundation::printable::printable;

use super::document::MAX_NAME_BYTES;
use crate::registry::{canonical_name, is_like_path};
use crate::statement::Statement;

/// Where a package came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    /// Whether a person named a file or folder by its path; false for a registry.
    pub(crate) is_local: bool,
    /// The source as the lock names it, without the version: the path, as a text that can be shown and kept, or
    /// `registry/namespace/name`, in lower case, the registry by the one name that it has.
    pub(crate) name: String,
    /// The source as messages name it: the path, or the text that was asked for.
    pub(crate) display_name: String,
    /// The version that was asked for. `None` for a path, or if no version was asked for.
    pub(crate) tag: Option<String>,
}

impl Source {
    /// Reads where a package came from. Only a text that [`is_path`] takes for a path, also after `oci:`, is one; any
    /// other is a name in a registry, which is trusted less.
    pub(crate) fn parse(text: &str) -> Self {
        let folder = text.strip_prefix("oci:").unwrap_or(text);
        if is_path(folder) {
            // `printable` may pass its limit by the length of an escape.
            let path = printable(folder, MAX_NAME_BYTES - 64);
            return Self { is_local: true, name: path.clone(), display_name: path, tag: None };
        }
        let last = text.rfind('/').map_or(0, |slash| slash + 1);
        let (name, tag) = match text[last..].split_once([':', '@']) {
            Some((name, tag)) => (&text[..last + name.len()], Some(tag.to_owned())),
            None => (text, None),
        };
        Self { is_local: false, name: normalize_repository(name), display_name: text.to_owned(), tag }
    }

    /// Returns the last part of the source; for a name in a registry that is the package's name.
    pub(crate) fn package_name(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or_default()
    }

    /// Returns the name by which publishers are found: `registry/namespace/name`, or `local:` and the package's name
    /// for a package from a path. The path itself does not count, since USB sticks and folders change hands.
    pub(crate) fn publisher_path(&self, package: &str) -> String {
        if self.is_local { format!("{LOCAL}{package}") } else { self.name.clone() }
    }

    /// Returns what a signer is accepted for: the registry with the namespace, without the package's name. `local:NAME`
    /// for a path, and the whole name if there is no namespace.
    pub(crate) fn publisher_prefix(&self, package: &str) -> String {
        let path = self.publisher_path(package);
        match path.rsplit_once('/') {
            Some((namespace, _)) if namespace.contains('/') => namespace.to_owned(),
            _ => path,
        }
    }

    /// Whether a statement has the name, and the version if there is one, that was asked for of a registry. Always true
    /// for a path.
    pub(crate) fn is_matched_by(&self, statement: &Statement) -> bool {
        let fits = |tag: &String| *tag == statement.version;
        self.is_local || (self.package_name() == statement.name && self.tag.as_ref().is_none_or(fits))
    }
}

/// Returns a name in a registry in the form in which names are compared: lower case, the registry under its one name.
fn normalize_repository(text: &str) -> String {
    let text = text.to_ascii_lowercase();
    let known = text.split_once('/').and_then(|(host, rest)| Some(format!("{}/{rest}", canonical_name(host)?)));
    known.unwrap_or(text)
}

/// The prefix of the names of packages from paths. No registry can have this name, since a port is a number.
pub(super) const LOCAL: &str = "local:";

/// Whether a text is plainly a path: it begins like one, or is the bare name of a `.wasm` file.
fn is_path(text: &str) -> bool {
    is_like_path(text) || (text.ends_with(".wasm") && !text.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_a_registry_is_taken_apart_and_has_one_spelling() {
        for (text, name, tag, prefix) in [
            (
                "Registry.example:5000/me/calm:0.1.0",
                "registry.example:5000/me/calm",
                "0.1.0",
                "registry.example:5000/me",
            ),
            ("r.example/me/calm@sha256:00", "r.example/me/calm", "sha256:00", "r.example/me"),
            ("r.example/me/calm@1.0.0", "r.example/me/calm", "1.0.0", "r.example/me"),
            ("r.example:5000/calm", "r.example:5000/calm", "", "r.example:5000/calm"),
            ("docker.io/me/calm", "docker.io/me/calm", "", "docker.io/me"),
            ("Index.docker.io/me/calm:0.1.0", "docker.io/me/calm", "0.1.0", "docker.io/me"),
            ("registry-1.docker.io.:443/me/calm@0.1.0", "docker.io/me/calm", "0.1.0", "docker.io/me"),
            ("[::0001]:5000/me/calm", "[::1]:5000/me/calm", "", "[::1]:5000/me"),
        ] {
            let source = Source::parse(text);
            assert_eq!((source.name.as_str(), source.tag.as_deref().unwrap_or_default()), (name, tag), "{text}");
            assert_eq!(source.publisher_prefix("calm"), prefix, "{text}");
        }
    }

    #[test]
    fn a_path_is_a_text_that_can_be_kept() {
        let path = format!("./{}\n{}", "a".repeat(90), "\u{1b}".repeat(2 * MAX_NAME_BYTES));
        let source = Source::parse(&path);
        assert!(source.is_local && source.name.len() <= MAX_NAME_BYTES, "{}", source.name.len());
        assert!(!source.name.chars().any(char::is_control));
    }

    #[test]
    fn only_what_is_plainly_a_path_is_local() {
        for path in ["./x", "../x", "/media/stick//calm:0.1.0", "calm-0.1.0.wasm", "oci:/x"] {
            assert!(Source::parse(path).is_local, "{path}");
        }
        for name in [
            "r.example/me/x",
            "r.example/me/x.wasm",
            "stick/calm:0.1.0",
            "calm",
            "calm@0.1.0",
            "local:5000/a/b",
            "r:5000/a/b",
            "r:/a/b",
            "oci:5000/a/b",
        ] {
            assert!(!Source::parse(name).is_local, "{name}");
        }
        assert_eq!(Source::parse("./x").publisher_prefix("calm"), "local:calm");
    }
}
