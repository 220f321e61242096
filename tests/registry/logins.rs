//! Who is asking: the login of `docker login` goes to its registry, and nowhere else.

use tunebox_foundation::explain::Explain;
use tunebox_package::registry::{pull, push};

use super::{failed_pull, location, lora, registry_with_package, silent, with_logins};
use crate::support::fake_registry::{Answer, Asked, FakeRegistry};

/// The refusal with a login and without one.
fn wants_login(asked: &Asked) -> Option<Answer> {
    let right = "Basic bWU6c2VjcmV0";
    let taken = asked.headers.get("authorization").is_some_and(|given| given == right);
    (!taken).then(|| Answer::of(401, "").with("WWW-Authenticate", "Basic realm=\"here\""))
}

/// A file as `docker login` writes it: for this host, of this name and password.
pub(crate) fn logged_in(host: &str, login: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let text = serde_json::json!({ "auths": { host: { "auth": login } } });
    std::fs::write(folder.path().join("config.json"), text.to_string()).unwrap();
    folder
}

#[test]
fn a_registry_that_wants_a_login_gets_that_of_docker_login() {
    let registry = registry_with_package(wants_login);
    let error = failed_pull(&location(&registry.host()));
    assert!(error.to_string().ends_with("wants a login"), "{error}");
    assert_eq!(error.hint().unwrap(), format!("`docker login {}`", registry.host()));

    let right = logged_in(&registry.host(), "bWU6c2VjcmV0");
    let with = with_logins(&registry.host(), right.path());
    assert_eq!(pull(&with, &mut silent).unwrap().0, lora());

    let wrong = logged_in(&registry.host(), "bWU6d3Jvbmc=");
    let error = failed_pull(&with_logins(&registry.host(), wrong.path()));
    assert!(error.to_string().ends_with("does not take the login"), "{error}");
    assert!(!format!("{error:?}{:?}", error.explanation()).contains("wrong"), "{error:?}");
}

#[test]
fn a_token_is_fetched_with_the_login_where_the_registry_says_and_shown_to_the_registry() {
    let tokens = FakeRegistry::with(|asked| {
        let known = asked.headers.get("authorization").is_some_and(|given| given == "Basic bWU6c2VjcmV0");
        let answer = Answer::of(200, r#"{"token":"a-token"}"#);
        Some(if known { answer } else { Answer::of(401, "") })
    });
    let demand = format!("Bearer realm=\"http://{}/token?a=1\",service=\"here\",scope=\"x\"", tokens.host());
    let registry = registry_with_package(move |asked| {
        let shown = asked.headers.get("authorization").is_some_and(|given| given == "Bearer a-token");
        (!shown).then(|| Answer::of(401, "").with("WWW-Authenticate", demand.clone()))
    });
    let error = failed_pull(&location(&registry.host()));
    assert!(error.to_string().ends_with("wants a login"), "{error}");

    let login = logged_in(&registry.host(), "bWU6c2VjcmV0");
    let with = with_logins(&registry.host(), login.path());
    assert_eq!(pull(&with, &mut silent).unwrap().0, lora());
    assert_eq!(tokens.asked().last().unwrap().path, "/token?a=1&scope=x&service=here");
    push(&with, &lora(), &mut silent).unwrap();
    let writing = "/token?a=1&scope=repository%3Ame%2Flora%3Apull%2Cpush&service=here";
    assert_eq!(tokens.asked().last().unwrap().path, writing);
}

#[test]
fn a_redirect_is_followed_without_the_login() {
    let other = registry_with_package(|_| None);
    let to = other.host();
    let registry = registry_with_package(move |asked| {
        let moved = asked.is("GET", "/blobs/");
        let elsewhere = || Answer::of(307, "").with("Location", format!("http://{to}{}", asked.path));
        wants_login(asked).or_else(|| moved.then(elsewhere))
    });
    let login = logged_in(&registry.host(), "bWU6c2VjcmV0");
    let with = with_logins(&registry.host(), login.path());
    assert_eq!(pull(&with, &mut silent).unwrap().0, lora());
    assert_eq!(other.asked().len(), 2);
    assert!(other.asked().iter().all(|asked| !asked.headers.contains_key("authorization")));
}

#[test]
fn a_login_is_not_sent_to_another_machine_without_encryption() {
    let registry = registry_with_package(wants_login);
    // This machine under an address that is not its loopback's.
    let host = format!("0.0.0.0:{}", registry.port());
    let login = logged_in(&host, "bWU6c2VjcmV0");
    let mut with = with_logins(&host, login.path());
    with.plain_http = true;
    let error = failed_pull(&with);
    assert!(error.to_string().ends_with("none is sent without encryption"), "{error:?}");
    let asked = registry.asked();
    assert!(!asked.is_empty() && asked.iter().all(|asked| !asked.headers.contains_key("authorization")), "{asked:?}");
}
