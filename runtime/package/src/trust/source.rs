//! Where a package came from, as far as trust is concerned: from a path, or from a name in a registry.

use tunebox_foundation::printable::printable;

use super::document::LONGEST_NAME;
use crate::registry::{canonical, spelt_as_path};
use crate::statement::Statement;

/// Where a package came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// A file or folder that a person named by its path, as a text that can be shown and kept.
    Local(String),
    /// A registry.
    Registry {
        /// What was asked for, as it was written.
        asked: String,
        /// `registry/namespace/name`, in lower case, the registry by the one name that it has.
        repository: String,
        /// The version that was asked for.
        tag: Option<String>,
    },
}

impl Source {
    /// Reads where a package came from. A text that is not plainly a path is a name in a registry, which is trusted
    /// less.
    pub(crate) fn parse(text: &str) -> Self {
        let folder = text.strip_prefix("oci:").unwrap_or(text);
        if is_path(folder) {
            // An escape at the end may be a few bytes longer than what it was cut to.
            return Self::Local(printable(folder, LONGEST_NAME - 64));
        }
        let last = text.rfind('/').map_or(0, |slash| slash + 1);
        let (name, tag) = match text[last..].split_once([':', '@']) {
            Some((name, tag)) => (last + name.len(), Some(tag.to_owned())),
            None => (text.len(), None),
        };
        Self::Registry { asked: text.to_owned(), repository: repository(&text[..name]), tag }
    }

    /// Whether a person named the package by a path; false for a registry.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self, Self::Local(_))
    }

    /// Returns the source as the lock names it, without the version: the path, or `registry/namespace/name`.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Local(path) => path,
            Self::Registry { repository, .. } => repository,
        }
    }

    /// Returns the last part of the source; for a name in a registry that is the package's name.
    pub(crate) fn package(&self) -> &str {
        self.name().rsplit('/').next().unwrap_or_default()
    }

    /// Returns the source as messages name it: the path, or the text that was asked for.
    pub(crate) fn asked(&self) -> &str {
        match self {
            Self::Local(path) => path,
            Self::Registry { asked, .. } => asked,
        }
    }

    /// Returns the version that was asked for. `None` for a path, or if no version was asked for.
    pub(crate) fn tag(&self) -> Option<&str> {
        match self {
            Self::Local(_) => None,
            Self::Registry { tag, .. } => tag.as_deref(),
        }
    }

    /// Returns the name by which publishers are found: `registry/namespace/name`, or `local:` and the package's name
    /// for a package from a path, since sticks and folders change hands.
    pub(crate) fn path(&self, package: &str) -> String {
        match self {
            Self::Local(_) => format!("{LOCAL}{package}"),
            Self::Registry { repository, .. } => repository.clone(),
        }
    }

    /// Returns what a signer is accepted for: the registry with the namespace, without the package's name. `local:NAME`
    /// for a path, and the whole name if there is no namespace.
    pub(crate) fn prefix(&self, package: &str) -> String {
        let path = self.path(package);
        match path.rsplit_once('/') {
            Some((namespace, _)) if namespace.contains('/') => namespace.to_owned(),
            _ => path,
        }
    }

    /// Whether a statement has the name, and the version if there is one, that was asked for of a registry. Always true
    /// for a path.
    pub(crate) fn names(&self, statement: &Statement) -> bool {
        let Self::Registry { tag, .. } = self else { return true };
        self.package() == statement.name && tag.as_ref().is_none_or(|tag| *tag == statement.version)
    }
}

/// Returns a name in a registry in the form in which names are compared: lower case, the registry under its one name.
fn repository(text: &str) -> String {
    let text = text.to_ascii_lowercase();
    let known = text.split_once('/').and_then(|(host, rest)| Some(format!("{}/{rest}", canonical(host)?)));
    known.unwrap_or(text)
}

/// What the packages of paths are known by. No registry is called so: a port is a number.
pub(super) const LOCAL: &str = "local:";

/// Whether a text is plainly a path: it begins like one, or is the bare name of a `.wasm` file.
fn is_path(text: &str) -> bool {
    spelt_as_path(text) || (text.ends_with(".wasm") && !text.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_a_registry_is_taken_apart() {
        let source = Source::parse("Registry.example:5000/me/calm-dpo:0.1.0");
        assert_eq!(source.name(), "registry.example:5000/me/calm-dpo");
        assert_eq!(source.tag(), Some("0.1.0"));
        assert_eq!(source.prefix("calm-dpo"), "registry.example:5000/me");
        assert_eq!(Source::parse("r.example/me/calm@sha256:00").name(), "r.example/me/calm");
        assert_eq!(Source::parse("r.example/me/calm@1.0.0").tag(), Some("1.0.0"));
        assert_eq!(Source::parse("r.example:5000/calm").prefix("calm"), "r.example:5000/calm");
    }

    #[test]
    fn all_spellings_of_a_registry_are_one_source() {
        for text in ["docker.io/me/calm", "Index.docker.io/me/calm:0.1.0", "registry-1.docker.io.:443/me/calm@0.1.0"] {
            assert_eq!(Source::parse(text).name(), "docker.io/me/calm");
        }
        assert_eq!(Source::parse("[::0001]:5000/me/calm").prefix("calm"), "[::1]:5000/me");
    }

    #[test]
    fn a_path_is_a_text_that_can_be_kept() {
        let path = format!("./{}\n{}", "a".repeat(90), "\u{1b}".repeat(2 * LONGEST_NAME));
        let source = Source::parse(&path);
        assert!(source.is_local() && source.name().len() <= LONGEST_NAME, "{}", source.name().len());
        assert!(!source.name().chars().any(char::is_control));
    }

    #[test]
    fn only_what_is_plainly_a_path_is_local() {
        for path in ["./x", "../x", "/media/stick//calm:0.1.0", "calm-0.1.0.wasm", "oci:/x"] {
            assert!(Source::parse(path).is_local(), "{path}");
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
            assert!(!Source::parse(name).is_local(), "{name}");
        }
        assert_eq!(Source::parse("./x").prefix("calm"), "local:calm");
    }
}
