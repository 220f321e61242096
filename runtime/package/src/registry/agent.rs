//! The HTTP client: its time limits and the certificates that it trusts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ureq::Agent;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

use super::error::explain;
use crate::{Error, files};

/// The time limit for connecting, for the response's headers, for each read and each write, and for a whole request and
/// response without bytes.
pub(super) const NETWORK_TIMEOUT: Duration = Duration::from_secs(30);

/// The value of the `User-Agent` header.
const USER_AGENT: &str = concat!("tunebox/", env!("CARGO_PKG_VERSION"));

/// Creates an HTTP client that follows no redirects and returns every status as a response, with time limits of
/// [`NETWORK_TIMEOUT`]. It trusts the certificates in the file `certificates`, else in the one that `SSL_CERT_FILE`
/// names, else those of the public authorities. `loopback` says that the registry is on this machine: no proxy is used
/// then. Errors: a file without certificates.
pub(super) fn create_agent(certificates: Option<&Path>, loopback: bool) -> Result<Agent, Error> {
    let builder = Agent::config_builder().http_status_as_error(false).max_redirects(0).user_agent(USER_AGENT);
    let builder = builder.timeout_connect(Some(NETWORK_TIMEOUT)).timeout_recv_response(Some(NETWORK_TIMEOUT));
    let mut builder = builder.timeout_per_read(Some(NETWORK_TIMEOUT)).timeout_per_write(Some(NETWORK_TIMEOUT));
    if loopback {
        // Proxies are for what is elsewhere.
        builder = builder.proxy(None);
    }
    let named = || std::env::var_os("SSL_CERT_FILE").filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(file) = certificates.map(Path::to_owned).or_else(named) {
        builder = builder.tls_config(TlsConfig::builder().root_certs(read_root_certificates(&file)?).build());
    }
    Ok(builder.build().new_agent())
}

/// Reads the trusted certificates in a PEM file. Errors: it cannot be read, or holds no certificate.
fn read_root_certificates(file: &Path) -> Result<RootCerts, Error> {
    let text = files::read(file)?;
    let certificates: Vec<_> = parse_pem(&text)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if certificates.is_empty() {
        let what = format!("there is no certificate in `{}`", file.display());
        return Err(explain(what, "it must hold certificates in the form PEM").into());
    }
    Ok(RootCerts::from(certificates))
}
