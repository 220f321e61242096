//! A name in a registry, taken apart.

use std::fmt;

use super::host::{Host, is_loopback};
use super::{checked_version, is_component};

/// How long the part behind the registry may be: registries take no more.
const LONGEST_REPOSITORY: usize = 255;

/// A name in a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::registry) struct Remote {
    /// What the registry is called, however it was written.
    pub(in crate::registry) registry: String,
    /// Where it answers.
    pub(in crate::registry) authority: String,
    /// `namespace/name`.
    pub(in crate::registry) repository: String,
    /// The version.
    pub(in crate::registry) version: Option<String>,
}

impl Remote {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.contains("://") {
            return Err("a name in a registry stands without `https://`".into());
        }
        let missing = "it has no registry, namespace and name";
        let (registry, rest) = text.split_once('/').ok_or(missing)?;
        let Some(host) = Host::parse(registry) else {
            return Err(format!("`{registry}` is no host: one has a dot or a port"));
        };
        let last = rest.rfind('/').ok_or("it has no namespace between registry and name")?;
        let (repository, version) = match rest[last..].split_once([':', '@']) {
            Some((name, version)) => (&rest[..last + name.len()], Some(version)),
            None => (rest, None),
        };
        if repository.len() > LONGEST_REPOSITORY || !repository.split('/').all(is_component) {
            return Err(format!("`{repository}` is not made of lower-case words with `/` between them"));
        }
        let version = version.map(checked_version).transpose()?;
        let Host { name, authority } = host;
        Ok(Self { registry: name, authority, repository: repository.to_owned(), version })
    }

    /// The package's name.
    pub(in crate::registry) fn name(&self) -> &str {
        self.repository.rsplit('/').next().unwrap_or_default()
    }

    /// The same name with a version.
    pub(in crate::registry) fn of_version(&self, version: &str) -> Self {
        Self { version: Some(version.to_owned()), ..self.clone() }
    }

    /// The version as registries write it, where a plus is no letter.
    pub(in crate::registry) fn tag(&self) -> Option<String> {
        Some(self.version.as_ref()?.replace('+', "_"))
    }

    /// The name without the version.
    pub(in crate::registry) fn source(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }

    /// Whether the registry is on this machine.
    pub(in crate::registry) fn is_loopback(&self) -> bool {
        is_loopback(&self.authority)
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.registry, self.repository)?;
        self.version.as_ref().map_or(Ok(()), |version| write!(formatter, ":{version}"))
    }
}
