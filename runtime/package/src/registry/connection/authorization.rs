//! Logging in to a registry: with name and password, or with a token from the address that the registry names.

use ureq::Body;
use ureq::http::header::{AUTHORIZATION, CONTENT_TYPE};
use ureq::http::{Request, Response, StatusCode};

use super::{Connection, MAX_RESPONSE_BYTES};
use crate::Error;
use crate::registry::address::{Address, encode_form};
use crate::registry::error::{broken_connection, unauthorized};
use crate::registry::login::{Bearer, Challenge, Login, basic_header, token_header};

/// The media type of a form.
const FORM: &str = "application/x-www-form-urlencoded";

impl Connection<'_> {
    /// Obtains the `Authorization` header that a response of status 401 demands, and keeps it for later requests. Looks
    /// the login up in Docker's file, once for a connection. Without encryption, except on this machine, no login is
    /// looked up or sent; a token is then asked for anonymously. Errors: there is no login and no anonymous token, the
    /// login is rejected, or the address that issues tokens does not answer.
    pub(super) fn log_in(&mut self, response: &Response<Body>) -> Result<(), Error> {
        let challenge = Challenge::read(response.headers());
        let realm = match &challenge {
            Some(Challenge::Bearer(bearer)) => Some(self.resolve_redirect(&self.root, &bearer.realm)?),
            _ => None,
        };
        let find = || Login::find_in_time(&self.remote.registry, self.location.logins.as_deref());
        // In the open anybody on the way could ask for a login, and read it.
        let open = std::iter::once(&self.root).chain(&realm).any(is_exposed);
        let login = if open { Login::Withheld } else { self.login.take().unwrap_or_else(find) };
        let authorization = match (&challenge, &realm, &login) {
            (Some(Challenge::Basic), _, Login::Password(name, password)) => Ok(Some(basic_header(name, password))),
            (Some(Challenge::Bearer(bearer)), Some(realm), login) => self.fetch_token(realm, bearer, login),
            _ => Ok(None),
        };
        self.login = Some(login);
        self.authorization = authorization?;
        if self.authorization.is_some() {
            Ok(())
        } else {
            Err(unauthorized(&self.location.to_string(), &self.remote.registry, self.login.as_ref()))
        }
    }

    /// Fetches a token from the address `realm` and returns it as an `Authorization` header. A connection that writes
    /// asks for the scope pull and push, others for the scope that the registry names, else pull. Without a login, the
    /// request is anonymous. `None` if the server rejects the login (status 400, 401 or 403). Errors: no answer, any
    /// other status than 200, or an answer without a token.
    fn fetch_token(&self, realm: &Address, bearer: &Bearer, login: &Login) -> Result<Option<String>, Error> {
        // Reading is asked for first and writing later, so a token for writing must be good for both.
        let everything = format!("repository:{}:pull,push", self.remote.repository);
        let reading = format!("repository:{}:pull", self.remote.repository);
        let scope = if self.writes { everything.as_str() } else { bearer.scope.as_ref().unwrap_or(&reading) };

        let mut parameters = vec![("scope", scope)];
        parameters.extend(bearer.service.as_ref().map(|service| ("service", service.as_str())));
        let answer = match login {
            Login::Identity(token) => {
                let refresh =
                    [("client_id", "tunebox"), ("grant_type", "refresh_token"), ("refresh_token", token.as_str())];
                parameters.extend(refresh);
                let request = Request::post(realm.to_string()).header(CONTENT_TYPE, FORM);
                self.send_with_time_limit(request.body(encode_form(&parameters)), MAX_RESPONSE_BYTES)
            }
            login => {
                let mut request = Request::get(realm.with_query(&parameters).to_string());
                if let Login::Password(name, password) = login {
                    request = request.header(AUTHORIZATION, basic_header(name, password));
                }
                self.send_with_time_limit(request.body(()), MAX_RESPONSE_BYTES)
            }
        };
        let answer = answer.map_err(|error| self.request_error(realm, error))?;
        match answer.status() {
            StatusCode::OK => {
                let token = token_header(&self.read_body(answer)?);
                let problem = || format!("{} gives no token", realm.authority);
                token.map(Some).ok_or_else(|| broken_connection(&self.remote.registry, problem()))
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::BAD_REQUEST => Ok(None),
            _ => Err(self.status_error(answer)),
        }
    }
}

/// Whether others on the network path can read requests to an address: it is unencrypted and not on this machine.
fn is_exposed(address: &Address) -> bool {
    !address.secure && !address.is_loopback()
}
