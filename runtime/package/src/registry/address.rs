//! Absolute `http` and `https` addresses, and the resolution of relative ones.

use std::fmt;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use ureq::http::Uri;

use super::host::is_loopback;

/// An `http` or `https` address: scheme, host, port, path and query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    /// Whether the scheme is `https`.
    pub(super) secure: bool,
    /// Host and port.
    pub(super) authority: String,
    /// Path and query, from the first slash.
    path: String,
}

impl Address {
    /// Makes the address of the path `/` on a host. `authority` is the host with an optional port; it is put into lower
    /// case.
    pub(super) fn root(authority: &str, secure: bool) -> Self {
        Self { secure, authority: authority.to_ascii_lowercase(), path: "/".into() }
    }

    /// Parses an absolute address. `None` if it is neither `http` nor `https`, or holds a user name.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let secure = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let authority = uri.authority()?.as_str();
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        (!authority.contains('@')).then(|| Self { path, ..Self::root(authority, secure) })
    }

    /// Returns the address on the same host with `path`, which may hold a query, in place of its path and query.
    pub(super) fn with_path(&self, path: &str) -> Self {
        Self { path: path.to_owned(), ..self.clone() }
    }

    /// Resolves the value of a `Location` header relative to this address. `None` if it is empty, or does not lead to
    /// an `http` or `https` address.
    pub(super) fn join(&self, location: &str) -> Option<Self> {
        if location.is_empty() {
            return None;
        }
        let scheme = if self.secure { "https" } else { "http" };
        let path = self.path.split('?').next().unwrap_or_default();
        let folder = &path[..path.rfind('/').map_or(0, |slash| slash + 1)];
        Self::parse(&match location {
            whole if whole.contains("://") && !whole.starts_with('/') => whole.to_owned(),
            rest if rest.starts_with("//") => format!("{scheme}:{rest}"),
            path if path.starts_with('/') => format!("{scheme}://{}{path}", self.authority),
            name => format!("{scheme}://{}{folder}{name}", self.authority),
        })
    }

    /// Returns this address with parameters added to its query, their values percent-encoded.
    pub(super) fn with_query(&self, parameters: &[(&str, &str)]) -> Self {
        let between = if self.path.contains('?') { '&' } else { '?' };
        self.with_path(&format!("{}{between}{}", self.path, encode_form(parameters)))
    }

    /// Whether two addresses have the same scheme, host and port. The scheme's default port may be written or left out.
    pub(super) fn has_host_of(&self, other: &Self) -> bool {
        self.secure == other.secure && self.full_authority() == other.full_authority()
    }

    /// Whether the host is this machine.
    pub(super) fn is_loopback(&self) -> bool {
        is_loopback(&self.authority)
    }

    /// Returns host and port, without the port if it is the scheme's default.
    fn full_authority(&self) -> String {
        let usual = if self.secure { ":443" } else { ":80" };
        self.authority.strip_suffix(usual).unwrap_or(&self.authority).to_owned()
    }
}

impl fmt::Display for Address {
    /// Writes the whole address, with scheme, host, port, path and query.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { "https" } else { "http" };
        write!(formatter, "{scheme}://{}{}", self.authority, self.path)
    }
}

/// Encodes parameters as `name=value&name=value`. Values are percent-encoded, names are not.
pub(super) fn encode_form(parameters: &[(&str, &str)]) -> String {
    let encoded = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
    // Names are ours, and plain words.
    let pairs = parameters.iter().map(|(name, value)| format!("{name}={}", encoded(value)));
    pairs.collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(location: &str) -> Option<String> {
        let address = Address::parse("https://Registry.example/v2/me/calm/blobs/uploads/1?state=2").unwrap();
        address.join(location).map(|address| address.to_string())
    }

    #[test]
    fn a_location_leads_where_a_browser_would_go() {
        assert_eq!(joined("https://other.example/x?y=1").unwrap(), "https://other.example/x?y=1");
        assert_eq!(joined("//other.example/x").unwrap(), "https://other.example/x");
        assert_eq!(joined("/x?y=1").unwrap(), "https://registry.example/x?y=1");
        assert_eq!(joined("2?state=3").unwrap(), "https://registry.example/v2/me/calm/blobs/uploads/2?state=3");
        assert_eq!((joined("file:///etc/passwd"), joined("")), (None, None));
        assert_eq!(joined("https://me:secret@other.example/x"), None);
    }

    #[test]
    fn a_parameter_is_written_so_that_nothing_in_it_is_read_as_another() {
        let address = Address::parse("https://registry.example/token?a=1").unwrap();
        let with = address.with_query(&[("scope", "repository:me/calm:pull,push&x=1")]);
        assert_eq!(
            with.to_string(),
            "https://registry.example/token?a=1&scope=repository%3Ame%2Fcalm%3Apull%2Cpush%26x%3D1"
        );
    }

    #[test]
    fn a_host_is_the_same_with_and_without_its_usual_port() {
        let root = |text, secure| Address::root(text, secure);
        assert!(root("r.example", true).has_host_of(&root("R.example:443", true)));
        assert!(!root("r.example", true).has_host_of(&root("r.example", false)));
        assert!(!root("r.example:1", true).has_host_of(&root("r.example:2", true)));
    }
}
