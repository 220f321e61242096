//! Logging in to a registry: with name and password, or with a token from the address that the registry names.

use ureq::Body;
use ureq::http::header::{AUTHORIZATION, CONTENT_TYPE};
use ureq::http::{Request, Response, StatusCode};

use super::{Connection, LARGEST_ANSWER};
use crate::Error;
use crate::registry::address::{Address, form};
use crate::registry::error::{broken, unauthorized};
use crate::registry::login::{Bearer, Challenge, Login, basic, token_header};

/// The media type of a form.
const FORM: &str = "application/x-www-form-urlencoded";

impl Connection {
    /// Obtains the `Authorization` header that a response of status 401 demands, and keeps it for later requests. Looks
    /// the login up in Docker's file, once for a connection. Without encryption, except on this machine, no login is looked
    /// up or sent; a token is then asked for anonymously. Errors: there is no login and no anonymous token, the login is
    /// rejected, or the address that issues tokens does not answer.
    pub(super) fn log_in(&mut self, response: &Response<Body>) -> Result<(), Error> {
        let challenge = Challenge::read(response.headers());
        let realm = match &challenge {
            Some(Challenge::Bearer(bearer)) => Some(self.follow(&self.root, &bearer.realm)?),
            _ => None,
        };
        let find = || Login::find_in_time(&self.registry, self.logins.as_deref());
        // In the open anybody on the way could ask for a login, and read it.
        let open = std::iter::once(&self.root).chain(&realm).any(in_the_open);
        let login = if open { Login::Withheld } else { self.login.take().unwrap_or_else(find) };
        let authorization = match (&challenge, &realm, &login) {
            (Some(Challenge::Basic), _, Login::Password(name, password)) => Ok(Some(basic(name, password))),
            (Some(Challenge::Bearer(bearer)), Some(realm), login) => self.token(realm, bearer, login),
            _ => Ok(None),
        };
        self.login = Some(login);
        self.authorization = authorization?;
        if self.authorization.is_some() {
            Ok(())
        } else {
            Err(unauthorized(&self.place, &self.registry, self.login.as_ref()))
        }
    }

    /// Fetches a token from the address `realm` and returns it as an `Authorization` header. A connection that writes asks
    /// for the scope pull and push, others for the scope that the registry names, else pull. Without a login, the request is
    /// anonymous. `None` if the server rejects the login (status 400, 401 or 403). Errors: no answer, any other status than
    /// 200, or an answer without a token.
    fn token(&self, realm: &Address, bearer: &Bearer, login: &Login) -> Result<Option<String>, Error> {
        // Reading is asked for first and writing later, so a token for writing must be good for both.
        let everything = format!("repository:{}:pull,push", self.repository);
        let reading = format!("repository:{}:pull", self.repository);
        let scope = if self.writes { everything.as_str() } else { bearer.scope.as_ref().unwrap_or(&reading) };

        let mut parameters = vec![("scope", scope)];
        parameters.extend(bearer.service.as_ref().map(|service| ("service", service.as_str())));
        let answer = match login {
            Login::Identity(token) => {
                let refresh =
                    [("client_id", "tunebox"), ("grant_type", "refresh_token"), ("refresh_token", token.as_str())];
                parameters.extend(refresh);
                let request = Request::post(realm.to_string()).header(CONTENT_TYPE, FORM);
                self.run(request.body(form(&parameters)), LARGEST_ANSWER)
            }
            login => {
                let mut request = Request::get(realm.with(&parameters).to_string());
                if let Login::Password(name, password) = login {
                    request = request.header(AUTHORIZATION, basic(name, password));
                }
                self.run(request.body(()), LARGEST_ANSWER)
            }
        };
        let answer = answer.map_err(|error| self.no_answer(realm, error))?;
        match answer.status() {
            StatusCode::OK => {
                let token = token_header(&self.text(answer)?);
                let problem = || format!("{} gives no token", realm.authority);
                token.map(Some).ok_or_else(|| broken(&self.registry, problem()))
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::BAD_REQUEST => Ok(None),
            _ => Err(self.refusal(answer)),
        }
    }
}

/// Whether others on the network path can read requests to an address: it is unencrypted and not on this machine.
fn in_the_open(address: &Address) -> bool {
    !address.secure && !address.is_loopback()
}
