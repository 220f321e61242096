//! Parses the host of a registry, and normalizes it so that all spellings of one registry compare equal.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// The longest name of a host, in bytes.
const MAX_HOST_BYTES: usize = 253;

/// The default ports with and without encryption. A normalized name leaves them out: both ports of a host have the same
/// owner, so trust treats them as the same registry.
pub(super) const DEFAULT_PORTS: [u16; 2] = [443, 80];

/// Docker Hub: its normalized name, all its names, and the host that answers requests.
pub(super) const DOCKER_HUB: &str = "docker.io";
const DOCKER_HUB_NAMES: [&str; 4] = [DOCKER_HUB, "index.docker.io", "registry.hub.docker.com", DOCKER_HUB_HOST];
const DOCKER_HUB_HOST: &str = "registry-1.docker.io";

/// A registry's host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Host {
    /// The normalized name: in lower case, without a default port, and `docker.io` for Docker Hub.
    pub(super) name: String,
    /// The host that answers requests, with the port as it was written.
    pub(super) authority: String,
}

impl Host {
    /// Parses a host with an optional port: a name or IPv4 address with a dot, any name with a port, `localhost`, or an
    /// IPv6 address in brackets. `None` if the text is something else, such as a folder.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (address, port) = rest.split_once(']')?;
                let port = if port.is_empty() { None } else { Some(port.strip_prefix(':')?) };
                (format!("[{}]", address.parse::<Ipv6Addr>().ok()?), port)
            }
            None => match text.split_once(':') {
                Some((host, port)) => (normalize_name(host)?, Some(port)),
                None => (normalize_name(&text)?, None),
            },
        };
        // Another spelling, such as `0443` or `+1`, is no port, and neither is 0.
        let number = |text: &str| text.parse().ok().filter(|port: &u16| *port > 0 && port.to_string() == text);
        let port = match port {
            Some(text) => Some(number(text)?),
            None => None,
        };
        let alone = host.contains(['.', '[']) || host == "localhost";
        if !alone && port.is_none() {
            return None;
        }
        let usual = alone && port.is_some_and(|port| DEFAULT_PORTS.contains(&port));
        let hub = DOCKER_HUB_NAMES.contains(&host.as_str());
        let (called, answers) = if hub { (DOCKER_HUB, DOCKER_HUB_HOST) } else { (host.as_str(), host.as_str()) };
        Some(Self { name: join_port(called, port.filter(|_| !usual)), authority: join_port(answers, port) })
    }
}

/// Returns the one name by which a registry is compared, in the store, the lock, and among publishers and logins: lower
/// case, without the ports 443 and 80, and `docker.io` for all names of Docker Hub. `None` if the text is no host.
pub(crate) fn canonical_name(text: &str) -> Option<String> {
    Host::parse(text).map(|host| host.name)
}

/// Whether a text looks like a host, valid or not: it has a dot or colon and does not begin with a dot, or is
/// `localhost`. A text that begins so is never a path, even if such a path exists.
pub(crate) fn is_like_host(text: &str) -> bool {
    (text.contains(['.', ':']) && !text.starts_with('.')) || text.eq_ignore_ascii_case("localhost")
}

/// Whether a text begins like a path, relative or absolute: with a slash of either kind, also after one or two dots.
pub(crate) fn is_like_path(text: &str) -> bool {
    let rest = text.strip_prefix("..").or_else(|| text.strip_prefix('.')).unwrap_or(text);
    rest.starts_with(['/', '\\']) || Path::new(text).is_absolute()
}

/// Whether a host, with or without a port, is this machine: `localhost` or a loopback address.
pub(super) fn is_loopback(authority: &str) -> bool {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Checks the name of a host, or an IPv4 address of four decimal numbers, and removes a dot at its end. A name has at
/// most 253 bytes: parts of ASCII letters, digits and hyphens, not beginning with a hyphen, joined by dots. `None` if
/// the text is neither. Other spellings of an IPv4 address are rejected.
fn normalize_name(text: &str) -> Option<String> {
    let text = text.strip_suffix('.').unwrap_or(text);
    let letters = |part: &str| part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let good = |part: &str| !part.is_empty() && !part.starts_with('-') && letters(part);
    if text.len() > MAX_HOST_BYTES || !text.split('.').all(good) {
        return None;
    }
    // What ends in a number is an address, for which systems know more spellings than one.
    let last = text.rsplit('.').next().unwrap_or_default();
    let is_address = last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x");
    (!is_address || text.parse::<Ipv4Addr>().is_ok()).then(|| text.to_owned())
}

/// Joins a host and a port with a colon; without a port, returns the host.
fn join_port(host: &str, port: Option<u16>) -> String {
    port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_registry_has_one_name_however_it_is_written() {
        for (name, spellings) in [
            ("ghcr.io", &["ghcr.io", "GHCR.io", "ghcr.io.", "ghcr.io:443", "ghcr.io.:443", "ghcr.io:80"][..]),
            ("docker.io", &["docker.io", "index.docker.io", "registry-1.docker.io", "Index.Docker.io:443"]),
            ("docker.io", &["registry.hub.docker.com", "Registry.Hub.Docker.com.:443"]),
            ("ghcr.io:5000", &["ghcr.io:5000", "GHCR.IO.:5000"]),
            ("[::1]:5000", &["[::1]:5000", "[0:0:0:0:0:0:0:1]:5000", "[::0001]:5000"]),
            ("localhost", &["localhost", "LOCALHOST", "localhost.", "localhost:80"]),
            ("127.0.0.1:5000", &["127.0.0.1:5000"]),
            ("r:80", &["r:80"]),
        ] {
            for spelling in spellings {
                assert_eq!(canonical_name(spelling).as_deref(), Some(name), "{spelling}");
            }
            assert_eq!(canonical_name(name).as_deref(), Some(name));
        }
    }

    #[test]
    fn where_a_registry_answers_is_as_it_was_written() {
        for (text, authority) in [
            ("GHCR.io.:80", "ghcr.io:80"),
            ("ghcr.io", "ghcr.io"),
            ("docker.io", "registry-1.docker.io"),
            ("index.docker.io:443", "registry-1.docker.io:443"),
        ] {
            assert_eq!(Host::parse(text).unwrap().authority, authority);
        }
    }

    #[test]
    fn what_is_no_host_has_no_name() {
        let numbers = ["10.1:5000", "127.1", "0x7f.1", "1.0x1", "010.0.0.1", "256.1.1.1"];
        let ports = ["r:", "ghcr.io:0443", "ghcr.io:0", "ghcr.io:65536", "ghcr.io:+1", "[::1]5000", "a:1:2"];
        let others = ["", "me", "stick", "..", "a..b", ".a.b", "-a.b", "a_b.c", "a.b@c", "ghcr.", "[::1", "[x]:1"];
        for text in [&numbers[..], &ports, &others].concat() {
            assert_eq!(canonical_name(text), None, "{text}");
        }
    }

    #[test]
    fn only_this_machine_is_spoken_to_without_encryption() {
        for host in ["localhost", "localhost:5000", "127.0.0.1:5000", "127.1.2.3", "[::1]:5000"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["registry.example:5000", "10.0.0.1", "localhost.example", "127.0.0.1.example", "0.0.0.0:1"] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
