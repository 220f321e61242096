//! Logins: what a registry demands, and what `docker login` has stored for it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use docker_credential::{CredentialRetrievalError, DockerCredential, get_credential_from_reader};
use serde_json::Value;
use tunebox_foundation::bounded;
use ureq::http::HeaderMap;
use ureq::http::header::WWW_AUTHENTICATE;

use super::agent::NETWORK_TIMEOUT;
use super::host::{DEFAULT_PORTS, DOCKER_HUB, canonical_name};

/// The most bytes of a Docker configuration.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The names under which Docker stores the login of Docker Hub, the only registry that has other names than its own.
const DOCKER_HUB_KEYS: [&str; 3] = ["https://index.docker.io/v1/", DOCKER_HUB, "registry.hub.docker.com"];

/// The kind of login that a registry demands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Challenge {
    /// Name and password in every request.
    Basic,
    /// A token that another address issues.
    Bearer(Bearer),
}

/// Which address issues tokens, and for what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bearer {
    /// The address that issues the token.
    pub(super) realm: String,
    /// The registry's name at that address.
    pub(super) service: Option<String>,
    /// What the token permits, such as `repository:me/calm:pull`.
    pub(super) scope: Option<String>,
}

impl Challenge {
    /// Returns what the `WWW-Authenticate` headers of a response demand; Bearer is preferred to Basic. `None` if they
    /// offer neither.
    pub(super) fn read(headers: &HeaderMap) -> Option<Self> {
        let texts = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        let challenges: Vec<Self> = texts.filter_map(Self::parse).collect();
        let bearer = challenges.iter().find(|challenge| **challenge != Self::Basic);
        bearer.or(challenges.first()).cloned()
    }

    /// Parses the value of a `WWW-Authenticate` header. `None` for other schemes than Basic and Bearer, and for Bearer
    /// without a realm.
    fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let parameters = parse_parameters(rest);
        let find = |name: &str| {
            let found = parameters.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.clone())
        };
        Some(Self::Bearer(Bearer { realm: find("realm")?, service: find("service"), scope: find("scope") }))
    }
}

/// Parses `name="value",name=value` into pairs of name and value. A comma or an escaped quote inside quotes belongs to
/// the value.
fn parse_parameters(text: &str) -> Vec<(String, String)> {
    let (mut pairs, mut is_quoted) = (vec![String::new()], false);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (character, pairs.last_mut()) {
            ('"', _) => is_quoted = !is_quoted,
            (',', _) if !is_quoted => pairs.push(String::new()),
            ('\\', Some(pair)) if is_quoted => pair.extend(characters.next()),
            (_, Some(pair)) => pair.push(character),
            (_, None) => {}
        }
    }
    let split = |pair: String| pair.split_once('=').map(|(name, value)| (name.trim().to_owned(), value.to_owned()));
    pairs.into_iter().filter_map(split).collect()
}

/// Returns the `Authorization` header with the string `token`, else `access_token`, of `answer`, the JSON of the
/// address that issues tokens. `None` if it has neither, or one that is empty or not printable ASCII.
pub(super) fn token_header(answer: &[u8]) -> Option<String> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    let token = ["token", "access_token"].iter().find_map(|key| answer.get(key)?.as_str())?;
    (!token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic())).then(|| format!("Bearer {token}"))
}

/// Returns the `Authorization` header of a name and a password.
pub(super) fn basic_header(name: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))
}

/// The login that was found for a registry.
#[derive(Debug)]
pub(super) enum Login {
    /// There is none.
    Nobody,
    /// None was looked up, since it would be sent unencrypted.
    Withheld,
    /// There is one that cannot be used; the text says why.
    Unusable(String),
    /// A name and a password.
    Password(String, String),
    /// An identity token, which is exchanged for access tokens.
    Identity(String),
}

impl Login {
    /// Finds the login for a registry, under any of its names, in `file`, else in the file of `docker login`. Runs the
    /// credential helpers that the file names. Returns `Nobody` if there is no login, and `Unusable` with the reason if
    /// the file or a helper fails.
    pub(super) fn find(registry: &str, file: Option<&Path>) -> Self {
        let Some(file) = file.map(Path::to_owned).or_else(docker_config_file) else { return Self::Nobody };
        let text = match bounded::read(&file, MAX_FILE_BYTES) {
            Ok(text) => text,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Self::Nobody;
            }
            Err(error) => return Self::Unusable(format!("`{}` cannot be read: {error}", file.display())),
        };
        let mut found = login_keys(registry).into_iter().map(|key| Self::find_in_text(&text, &key, &file));
        found.find(|login| !matches!(login, Self::Nobody)).unwrap_or(Self::Nobody)
    }

    /// Runs [`find`](Self::find) on a new thread and returns its result, or `Unusable` if it takes longer than
    /// [`NETWORK_TIMEOUT`], because a credential helper does not end. The thread is not stopped then.
    pub(super) fn find_in_time(registry: &str, file: Option<&Path>) -> Self {
        let (registry, file) = (registry.to_owned(), file.map(Path::to_owned));
        bounded::run_with_timeout(NETWORK_TIMEOUT, move || Self::find(&registry, file.as_deref())).unwrap_or_else(
            |_| Self::Unusable(format!("the helper for logins did not end within {} s", NETWORK_TIMEOUT.as_secs())),
        )
    }

    /// Finds the login under `key` in the text of a Docker configuration. May run a credential helper, whose output no
    /// message repeats: it may hold the secret. `file` is the path for messages. Returns `Nobody` if there is no login,
    /// and `Unusable` with the reason if the helper fails, or the text or the login cannot be parsed.
    fn find_in_text(text: &[u8], key: &str, file: &Path) -> Self {
        use CredentialRetrievalError as Problem;
        let file = file.display();
        match get_credential_from_reader(text, key) {
            Ok(DockerCredential::UsernamePassword(name, password)) => Self::Password(name, password),
            Ok(DockerCredential::IdentityToken(token)) => Self::Identity(token),
            Err(Problem::NoCredentialConfigured | Problem::ConfigNotFound) => Self::Nobody,
            Err(Problem::HelperFailure { stdout, stderr, .. })
                if [&stdout, &stderr].iter().any(|text| text.contains("credentials not found")) =>
            {
                Self::Nobody
            }
            Err(Problem::HelperFailure { helper, .. }) => {
                Self::Unusable(format!("the helper `{helper}` did not succeed"))
            }
            Err(Problem::HelperCommunicationError | Problem::MalformedHelperResponse) => {
                Self::Unusable(format!("the helper that `{file}` names gives no answer"))
            }
            Err(Problem::ConfigReadError) => Self::Unusable(format!("`{file}` is not a Docker configuration")),
            Err(Problem::CredentialDecodingError | Problem::CredentialMismatchError) => {
                Self::Unusable(format!("the login in `{file}` is damaged"))
            }
        }
    }
}

/// Returns the keys under which a Docker configuration may hold the login for a registry, since `docker login` stores
/// what was typed: the name as given, and the name with each default port that means the same registry. For Docker Hub,
/// the keys that Docker itself uses.
fn login_keys(registry: &str) -> Vec<String> {
    if registry == DOCKER_HUB {
        return DOCKER_HUB_KEYS.map(str::to_owned).into();
    }
    let with_port = DEFAULT_PORTS.map(|port| format!("{registry}:{port}"));
    let same = with_port.into_iter().filter(|name| canonical_name(name).as_deref() == Some(registry));
    std::iter::once(registry.to_owned()).chain(same).collect()
}

/// Returns the path of Docker's `config.json`, in `DOCKER_CONFIG` or `~/.docker`. `None` if there is no home folder.
/// The file need not exist.
fn docker_config_file() -> Option<PathBuf> {
    let folder = std::env::var_os("DOCKER_CONFIG").filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = folder.or_else(|| Some(std::env::home_dir()?.join(".docker")))?;
    Some(folder.join("config.json"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_demand_of_a_registry_is_read_with_commas_and_quotes_in_it() {
        let text = r#"Bearer realm="https://auth.example/token",service=registry.example, scope="repository:me/calm:pull,push", error="a \"b\"""#;
        let expected = Bearer {
            realm: "https://auth.example/token".into(),
            service: Some("registry.example".into()),
            scope: Some("repository:me/calm:pull,push".into()),
        };
        assert_eq!(Challenge::parse(text), Some(Challenge::Bearer(expected)));
        assert_eq!(Challenge::parse("Basic realm=\"x\""), Some(Challenge::Basic));
        assert_eq!(Challenge::parse("Negotiate"), None);
        assert_eq!(Challenge::parse("Bearer service=\"x\""), None);
    }

    #[test]
    fn every_way_to_cut_a_demand_short_ends() {
        let text = r#"Bearer realm="https://auth.example/token",scope="a\\b","#;
        (0..=text.len()).for_each(|length| drop(Challenge::parse(&text[..length])));
    }

    /// The login for a registry, as it is written, where the file of logins has this text.
    fn find(text: Option<&str>, written: &str) -> Login {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.json");
        text.into_iter().for_each(|text| fs::write(&file, text).unwrap());
        Login::find(&canonical_name(written).unwrap(), Some(&file))
    }

    #[test]
    fn a_login_is_found_under_every_name_of_its_registry_and_no_other() {
        for (kept, written, is_found) in [
            ("registry.example:5000", "registry.example:5000", true),
            ("registry.example:5000", "registry.example", false),
            ("ghcr.io:443", "ghcr.io", true),
            ("ghcr.io", "ghcr.io:443", true),
            ("https://index.docker.io/v1/", "registry.hub.docker.com", true),
            ("docker.io", "index.docker.io", true),
            ("registry.hub.docker.com", "docker.io", true),
            ("ghcr.io:5000", "ghcr.io", false),
            ("ghcr.io", "ghcr.io:5000", false),
            ("r:443", "r:80", false),
        ] {
            let text = format!(r#"{{"auths":{{"{kept}":{{"auth":"{}"}}}}}}"#, STANDARD.encode("me:se:cret"));
            let found = match find(Some(&text), written) {
                Login::Password(name, word) => name == "me" && word == "se:cret",
                login => !matches!(login, Login::Nobody),
            };
            assert_eq!(found, is_found, "{kept} for {written}");
        }
        assert!(matches!(find(None, "registry.example"), Login::Nobody));
        for unusable in [r#"{"credHelpers":{"other.example":"tunebox-none"}}"#, "no JSON"] {
            assert!(matches!(find(Some(unusable), "other.example"), Login::Unusable(_)), "{unusable}");
        }
    }
}
