//! Requests to one registry, with login, redirects and errors.
//!
//! A login is sent only to the registry and to the address that the registry names for tokens. Nothing is sent
//! unencrypted, except to this machine or where the location allows plain HTTP.

mod authorization;

use std::io::{self, Read};
use std::time::Duration;

use serde_json::Value;
use tunebox_foundation::printable::printable;
use ureq::http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, LOCATION, RETRY_AFTER};
use ureq::http::{Method, Request, Response, StatusCode};
use ureq::{Agent, AsSendBody, Body, SendBody};

use super::address::Address;
use super::agent::{NETWORK_TIMEOUT, create_agent};
use super::error::{bad_status, broken_connection, explain, insecure_redirect, no_answer, unauthorized};
use super::host::is_loopback;
use super::location::{Location, Remote};
use super::login::Login;
use crate::Error;
use crate::trust::refusal::locate;

/// The most redirects of one request that are followed.
const MAX_REDIRECTS: usize = 8;
/// The largest response other than a blob, in bytes: a manifest, an error, a token or a list of tags.
const MAX_RESPONSE_BYTES: u64 = 1 << 20;
/// The lowest speed, in bytes per second, that the time limit of a request and its response allows for.
const MIN_BYTES_PER_SECOND: u64 = 16 << 10;

/// A connection to a registry, for one repository.
pub(super) struct Connection<'a> {
    pub(super) location: &'a Location,
    remote: &'a Remote,
    root: Address,
    agent: Agent,
    /// The login that was found, once the registry has demanded one.
    login: Option<Login>,
    /// The `Authorization` header for the registry, once logged in.
    authorization: Option<String>,
    writes: bool,
    /// The time limit for a request and response without bytes.
    timeout: Duration,
}

/// An HTTP request that a [`Connection`] sends.
pub(super) struct HttpRequest<'a> {
    pub(super) method: Method,
    pub(super) address: Address,
    /// The value of the `Accept` header: media types.
    pub(super) accept: Option<&'a str>,
    /// The body that is sent, and its media type.
    pub(super) body: Option<(&'a [u8], &'a str)>,
    /// The expected size of the response in bytes, from which its time limit is computed.
    pub(super) expected_response_bytes: u64,
    /// Receives the number of bytes of the body that were sent so far.
    pub(super) progress: Option<&'a mut dyn FnMut(u64)>,
}

impl HttpRequest<'_> {
    /// Makes a request without a body, with time for a response of 1 MiB.
    pub(super) fn without_body(method: Method, address: Address) -> Self {
        Self { method, address, accept: None, body: None, expected_response_bytes: MAX_RESPONSE_BYTES, progress: None }
    }
}

impl<'a> Connection<'a> {
    /// Prepares a connection to the registry of a package; sends nothing. Uses HTTP if the location says so or the
    /// registry is on this machine, else HTTPS. `writes` says whether a login must allow pushing. Errors: the location
    /// is offline, or certificates cannot be read.
    pub(super) fn new(location: &'a Location, remote: &'a Remote, writes: bool) -> Result<Self, Error> {
        if location.offline {
            let hint = "leave `--offline` out, or use what was pulled before: `tunebox list`";
            return Err(explain(format!("`{location}` is on a network, and none is used offline"), hint).into());
        }
        let is_here = is_loopback(&remote.authority);
        let plain = location.plain_http || is_here;
        Ok(Self {
            location,
            remote,
            root: Address::root(&remote.authority, !plain),
            agent: create_agent(location.certificates.as_deref(), is_here)?,
            login: None,
            authorization: None,
            writes,
            timeout: NETWORK_TIMEOUT,
        })
    }

    /// Returns the address of a path in the package's repository: `/v2/<repository>/<path>`.
    pub(super) fn address(&self, path: &str) -> Address {
        self.root.with_path(&format!("/v2/{}/{path}", self.remote.repository))
    }

    /// Adds the place of this package to the location of an [`Error::Explained`]: `PLACE`, or `LOCATION from PLACE` if
    /// the error has a location already. Returns errors of other kinds unchanged.
    pub(super) fn locate(&self, error: Error) -> Error {
        locate(error, "", &self.location.to_string())
    }

    /// Sends a request, and returns the response if its status is among `expected`. If the registry answers with 401,
    /// logs in once and sends it again; if it redirects, sends it to that address. Sends it nine times at most. Errors:
    /// no answer, a login that is missing or rejected, a redirect that may not be followed or is one too many, or the
    /// registry's refusal for any other status.
    pub(super) fn send(
        &mut self,
        mut request: HttpRequest<'_>,
        expected: &[StatusCode],
    ) -> Result<Response<Body>, Error> {
        let (mut address, mut logged_in) = (request.address.clone(), false);
        for _ in 0..=MAX_REDIRECTS {
            let is_registry = address.has_host_of(&self.root);
            let response = self.send_to_address(&mut request, &address, is_registry)?;
            if response.status() == StatusCode::UNAUTHORIZED && is_registry && !logged_in {
                logged_in = true;
                self.log_in(&response)?;
                continue;
            }
            match self.redirect_target(&request.method, &address, &response)? {
                Some(next) => address = next,
                None if expected.contains(&response.status()) => return Ok(response),
                None => return Err(self.status_error(response)),
            }
        }
        let hint = "tell the operator of the registry, or of a proxy in front of it";
        Err(explain(format!("`{}` leads from address to address without end", self.remote.registry), hint).into())
    }

    /// Reads the body of a response. Errors: it breaks off, or has more than 1 MiB.
    pub(super) fn read_body(&self, response: Response<Body>) -> Result<Vec<u8>, Error> {
        let text = response.into_body().into_with_config().limit(MAX_RESPONSE_BYTES).read_to_vec();
        text.map_err(|error| self.request_error(&self.root, error))
    }

    /// Turns a failure of the HTTP client into the error for a request to `address` that got no answer.
    pub(super) fn request_error(&self, address: &Address, error: ureq::Error) -> Error {
        no_answer(&address.authority, address.secure, &error)
    }

    /// Turns a response with an unexpected status into an error, with the registry's own message and the `Retry-After`
    /// seconds, if it sends them. Status 401 becomes the error for a missing or rejected login; its body is not read.
    pub(super) fn status_error(&self, response: Response<Body>) -> Error {
        let status = response.status();
        if status == StatusCode::UNAUTHORIZED {
            return unauthorized(&self.location.to_string(), &self.remote.registry, self.login.as_ref());
        }
        let wait = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        // An answer that cannot be read says nothing; its number is enough.
        let said = self.read_body(response).ok().and_then(|text| registry_message(&text));
        bad_status(&self.location.to_string(), &self.remote.registry, status.as_u16(), said, wait)
    }

    /// Sends a request to one address, without login and redirects. `is_registry` says whether the address is that of
    /// the registry: only then the request carries the authorization.
    fn send_to_address(
        &self,
        request: &mut HttpRequest<'_>,
        address: &Address,
        is_registry: bool,
    ) -> Result<Response<Body>, Error> {
        // Compressed bytes would have another digest.
        let builder = Request::builder().method(request.method.clone()).uri(address.to_string());
        let mut builder = builder.header(ACCEPT_ENCODING, "identity");
        if let Some(accept) = request.accept {
            builder = builder.header(ACCEPT, accept);
        }
        if let Some(authorization) = self.authorization.as_ref().filter(|_| is_registry) {
            builder = builder.header(AUTHORIZATION, authorization);
        }
        let answer = if let Some((bytes, media_type)) = request.body {
            let builder = builder.header(CONTENT_LENGTH, bytes.len()).header(CONTENT_TYPE, media_type);
            let total = request.expected_response_bytes + bytes.len() as u64;
            let progress = |sent| request.progress.iter_mut().for_each(|progress| progress(sent));
            let mut body = Watched { bytes, done: 0, progress };
            self.send_with_time_limit(builder.body(SendBody::from_reader(&mut body)), total)
        } else {
            self.send_with_time_limit(builder.body(()), request.expected_response_bytes)
        };
        answer.map_err(|error| self.request_error(address, error))
    }

    /// Sends a request with a time limit for request and answer together: the time for `bytes` bytes at 16 KiB a
    /// second, added to [`NETWORK_TIMEOUT`]. A server that takes or sends a byte now and then would otherwise never
    /// end.
    fn send_with_time_limit<Sent: AsSendBody>(
        &self,
        request: ureq::http::Result<Request<Sent>>,
        bytes: u64,
    ) -> Result<Response<Body>, ureq::Error> {
        let timeout = self.timeout + Duration::from_secs(bytes / MIN_BYTES_PER_SECOND);
        self.agent.run(self.agent.configure_request(request?).timeout_global(Some(timeout)).build())
    }

    /// Returns the address that a response redirects to, or `None` if it is no redirect. Statuses 301 to 303 count only
    /// for GET and HEAD. Errors: the address is invalid, or is unencrypted where that is not allowed.
    fn redirect_target(
        &self,
        method: &Method,
        from: &Address,
        response: &Response<Body>,
    ) -> Result<Option<Address>, Error> {
        let reads = matches!(*method, Method::GET | Method::HEAD);
        let leads = match response.status().as_u16() {
            301..=303 => reads,
            307 | 308 => true,
            _ => false,
        };
        let Some(location) = response.headers().get(LOCATION).filter(|_| leads) else { return Ok(None) };
        self.resolve_redirect(from, location.to_str().unwrap_or_default()).map(Some)
    }

    /// Resolves the value of a `Location` header relative to `from`. Errors: the result is no `http` or `https`
    /// address, or is unencrypted where that is not allowed. `http` is allowed only if the registry itself is reached
    /// by `http`, and then only to this machine, or to any host if the location allows plain HTTP.
    pub(super) fn resolve_redirect(&self, from: &Address, location: &str) -> Result<Address, Error> {
        let nowhere = || {
            broken_connection(
                &self.remote.registry,
                format!("it leads to `{}`, which is no address", printable(location, 120)),
            )
        };
        let next = from.join(location).ok_or_else(nowhere)?;
        // An address without encryption is only for a registry without it, on this machine or where a person said so.
        let may_reach = next.secure || (!self.root.secure && (next.is_loopback() || self.location.plain_http));
        if may_reach {
            Ok(next)
        } else {
            Err(insecure_redirect(&self.remote.registry, &printable(&next.authority, 120)))
        }
    }
}

/// A reader that calls `progress` with the number of bytes read so far, to show the progress of a transfer.
pub(super) struct Watched<Bytes, Progress> {
    pub(super) bytes: Bytes,
    /// The number of bytes read so far.
    pub(super) done: u64,
    pub(super) progress: Progress,
}

impl<Bytes: Read, Progress: FnMut(u64)> Read for Watched<Bytes, Progress> {
    /// Reads the next bytes, and calls `progress` with the number of all read so far.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.bytes.read(buffer)?;
        self.done += read as u64;
        (self.progress)(self.done);
        Ok(read)
    }
}

/// Returns the message, else the code, of the first error in a registry's JSON answer, with control characters escaped
/// and cut to about 200 bytes. `None` if there is none.
fn registry_message(text: &[u8]) -> Option<String> {
    let answer: Value = serde_json::from_slice(text).ok()?;
    let word = |path| answer.pointer(path)?.as_str();
    let words = word("/errors/0/message").filter(|message| !message.is_empty()).or(word("/errors/0/code"))?;
    Some(printable(words, 200))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;
    use crate::registry::location::Kind;

    #[test]
    fn a_server_that_takes_all_and_says_nothing_or_little_is_not_waited_for() {
        for said in ["", "H"] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let place = Location::parse(&format!("{}/me/calm:1.0.0", listener.local_addr().unwrap())).unwrap();
            let silent = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(said.as_bytes()).unwrap();
                // Until the receiver has been dropped.
                while stream.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {}
            });
            let Kind::Remote(remote) = &place.kind else { unreachable!("it is no folder") };
            let mut connection = Connection::new(&place, remote, true).unwrap();
            connection.timeout = Duration::from_millis(200);
            let body = Some((b"a package".as_slice(), "application/octet-stream"));
            let request = HttpRequest {
                body,
                expected_response_bytes: 0,
                ..HttpRequest::without_body(Method::PUT, connection.address("blobs/uploads/"))
            };
            let error = connection.send(request, &[StatusCode::OK]).unwrap_err();
            assert!(error.to_string().ends_with("does not answer in time"), "{error:?}");
            drop(connection);
            silent.join().unwrap();
        }
    }

    #[test]
    fn an_answer_that_only_drips_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = Location::parse(&format!("{}/me/calm:1.0.0", listener.local_addr().unwrap())).unwrap();
        let dripping = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n").unwrap();
            // Until the receiver has been dropped.
            while stream.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let Kind::Remote(remote) = &place.kind else { unreachable!("it is no folder") };
        let mut connection = Connection::new(&place, remote, false).unwrap();
        connection.timeout = Duration::from_millis(200);
        let request = HttpRequest {
            expected_response_bytes: 0,
            ..HttpRequest::without_body(Method::GET, connection.address("tags/list"))
        };
        let answer = connection.send(request, &[StatusCode::OK]).unwrap();
        let error = connection.read_body(answer).unwrap_err();
        assert!(error.to_string().ends_with("does not answer in time"), "{error:?}");
        dripping.join().unwrap();
    }
}
