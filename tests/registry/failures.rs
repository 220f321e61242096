//! What can go wrong on the way: each failure has its own words, and leaves nothing behind.

use std::net::TcpListener;

use tunebox_foundation::explain::{Exit, Explain};
use tunebox_package::artifact::MANIFEST;
use tunebox_package::registry::{Location, pull, push};

use super::{failed_pull, location, lora, registry_with_altered_manifest, registry_with_package, silent};
use crate::support::absent::absent;
use crate::support::fake_registry::{Answer, FakeRegistry};

#[test]
fn a_port_without_a_listener_is_a_refused_connection() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = failed_pull(&location(&free.to_string()));
    assert!(error.to_string().ends_with("refuses the connection"), "{error}");
    assert_eq!((error.to_string(), error.exit()), (format!("`{free}` refuses the connection"), Exit::Usage));
}

#[test]
#[ignore = "needs a direct network"]
fn a_name_that_nothing_knows_is_told_as_such() {
    // A proxy looks names up itself, and says in its own way that it cannot.
    let proxies = ["ALL_PROXY", "HTTPS_PROXY", "all_proxy", "https_proxy"];
    if proxies.iter().any(|name| std::env::var_os(name).is_some()) {
        absent("direct network", "this one is behind a proxy");
    }
    let error = failed_pull(&location("nobody.invalid"));
    assert!(error.to_string().ends_with("to be found"), "{error:?}");
}

#[test]
fn offline_nothing_is_asked() {
    let registry = registry_with_package(|_| None);
    let mut place = location(&registry.host());
    place.offline = true;
    let error = failed_pull(&place);
    assert!(error.to_string().ends_with("none is used offline"), "{error}");
    let error = push(&place, &lora(), &mut silent).unwrap_err();
    assert!(error.to_string().ends_with("none is used offline"), "{error}");
    assert!(registry.asked().is_empty());
}

#[test]
fn another_machine_is_spoken_to_without_encryption_only_where_a_person_says_so() {
    let registry = registry_with_package(|_| None);
    // This machine under an address that is not its loopback's.
    let mut elsewhere = location(&format!("0.0.0.0:{}", registry.port()));
    let error = failed_pull(&elsewhere);
    assert!(error.to_string().starts_with("no encrypted connection to"), "{error:?}");
    assert!(error.hint().unwrap().contains("--plain-http"), "{:?}", error.hint());
    elsewhere.plain_http = true;
    assert_eq!(pull(&elsewhere, &mut silent).unwrap().0, lora());
}

#[test]
fn redirects_without_end_end() {
    let registry = FakeRegistry::with(|asked| Some(Answer::of(302, "").with("Location", format!("{}x", asked.path))));
    let error = failed_pull(&location(&registry.host()));
    assert!(error.to_string().ends_with("without end"), "{error}");
    assert!(registry.asked().len() < 20);
}

#[test]
fn a_registry_on_this_machine_leads_to_no_other_without_encryption() {
    let registry = FakeRegistry::with(|_| Some(Answer::of(302, "").with("Location", "http://registry.example/x")));
    let error = failed_pull(&location(&registry.host()));
    assert!(error.to_string().ends_with("leads to `registry.example`, without encryption"), "{error}");
}

#[test]
fn each_refusal_has_its_own_words_and_end() {
    let says = |status: u16, said: &str| {
        let said = said.to_owned();
        let registry = registry_with_package(move |_| {
            let body = serde_json::json!({ "errors": [{ "code": "NO", "message": said }] });
            Some(Answer::of(status, body.to_string()).with("Retry-After", "7"))
        });
        failed_pull(&location(&registry.host()))
    };
    let forbidden = says(403, "not for you\u{1b}[2J");
    assert!(forbidden.to_string().ends_with("does not allow it"), "{forbidden}");
    assert_eq!(forbidden.why().unwrap(), "it says: not for you\\u{1b}[2J");
    let often = says(429, "slow down");
    assert_eq!((often.hint().unwrap().as_str(), often.exit()), ("try again in 7 seconds", Exit::No));
    let broken = says(500, "out of order");
    assert_eq!((broken.why().unwrap().as_str(), broken.exit()), ("it says: out of order", Exit::No));
    assert_eq!(says(418, "teapot").exit(), Exit::Usage);
}

#[test]
fn a_version_that_is_not_there_is_answered_with_those_that_are() {
    let registry = registry_with_package(|_| None);
    let named = |tag: &str| Location::parse(&format!("{}/me/lora{tag}", registry.host())).unwrap();
    let error = failed_pull(&named(":0.1.1"));
    assert!(error.to_string().starts_with("there is no `"), "{error}");
    assert_eq!(error.why().unwrap(), "there are: 0.1.0");
    assert_eq!(error.hint().unwrap(), format!("did you mean `{}/me/lora:0.1.0`?", registry.host()));
    let error = failed_pull(&named(""));
    assert_eq!(error.hint().unwrap(), format!("the highest there is `{}/me/lora:0.1.0`", registry.host()));
    let nothing = Location::parse(&format!("{}/you/lora:0.1.0", registry.host())).unwrap();
    assert!(failed_pull(&nothing).why().unwrap().contains("nothing of that name"));
}

#[test]
fn a_server_that_fails_in_the_middle_leaves_nothing() {
    let wasm = lora().manifest().unwrap().layer;
    let registry = registry_with_package(move |asked| asked.is("GET", &wasm).then(|| Answer::of(500, "")));
    let error = failed_pull(&location(&registry.host()));
    assert!(error.to_string().ends_with("answers with status 500"), "{error}");
}

#[test]
fn a_server_that_fails_in_the_middle_of_a_push_leaves_no_package_of_that_name() {
    for part in ["/uploads/1", "/manifests/"] {
        let registry = FakeRegistry::with(move |asked| asked.is("PUT", part).then(|| Answer::of(503, "")));
        let error = push(&location(&registry.host()), &lora(), &mut silent).unwrap_err();
        assert!(error.to_string().ends_with("answers with status 503"), "{error}");
        let error = failed_pull(&location(&registry.host()));
        assert!(error.to_string().starts_with("there is no `"), "{error}");
    }
}

#[test]
fn a_package_that_ends_early_is_told_with_how_much_came() {
    let wasm = lora().wasm;
    let (layer, half) = (lora().manifest().unwrap().layer, wasm.len() / 2);
    let registry = registry_with_package(move |asked| {
        let torn = Answer { cut: Some(half), ..Answer::of(200, wasm.clone()) };
        asked.is("GET", &layer).then_some(torn)
    });
    let error = failed_pull(&location(&registry.host()));
    assert!(error.to_string().ends_with("ended early"), "{error:?}");
    assert!(error.why().unwrap().starts_with(&format!("{half} of ")), "{error:?}");
    assert_eq!(error.exit(), Exit::No);
}

#[test]
fn other_bytes_than_the_manifest_names_are_a_matter_of_trust() {
    let mut wasm = lora().wasm;
    wasm[100] ^= 1;
    let layer = lora().manifest().unwrap().layer;
    let (other, named) = (wasm.clone(), layer.clone());
    let registry = registry_with_package(move |asked| asked.is("GET", &named).then(|| Answer::of(200, other.clone())));
    let error = failed_pull(&location(&registry.host()));
    assert_eq!(error.to_string(), "the package is not what was named");
    assert_eq!((error.exit(), error.category().as_ref()), (Exit::Trust, "trust"));

    wasm.push(0);
    let registry = registry_with_package(move |asked| asked.is("GET", &layer).then(|| Answer::of(200, wasm.clone())));
    let error = failed_pull(&location(&registry.host()));
    assert_eq!(error.to_string(), "the package is not as long as was named");
    assert_eq!(error.exit(), Exit::Trust);
}

#[test]
fn a_manifest_of_another_digest_than_the_registry_says_is_refused() {
    let body = lora().manifest().unwrap().manifest;
    let registry = registry_with_package(move |asked| {
        let answer = || Answer::of(200, body.clone()).with("Content-Type", MANIFEST);
        let other = format!("sha256:{}", "0".repeat(64));
        asked.is("GET", "/manifests/").then(|| answer().with("Docker-Content-Digest", other))
    });
    let error = failed_pull(&location(&registry.host()));
    assert_eq!(error.to_string(), "the manifest is not what was named");
}

/// How a manifest is tampered with, and the error.
type Change = fn(&mut serde_json::Value);

#[test]
fn what_is_no_package_is_refused_before_its_bytes_are_fetched() {
    let cases: [(&str, Change, &str); 5] = [
        (
            "two layers",
            |document| {
                let layer = document["layers"][0].clone();
                document["layers"].as_array_mut().unwrap().push(layer);
            },
            "this is not a WebAssembly package: it has 2 layers",
        ),
        (
            "an image",
            |document| {
                document["config"]["mediaType"] = "application/vnd.oci.image.config.v1+json".into();
            },
            "this is not a WebAssembly package: its configuration is `application/vnd.oci.image.config.v1+json`",
        ),
        (
            "an index",
            |document| {
                document["mediaType"] = "application/vnd.oci.image.index.v1+json".into();
            },
            "this is not a WebAssembly package: its manifest is `application/vnd.oci.image.index.v1+json`",
        ),
        (
            "something else in the layer",
            |document| {
                document["layers"][0]["mediaType"] = "application/vnd.oci.image.layer.v1.tar+gzip".into();
            },
            "this is not a WebAssembly package: its layer is `application/vnd.oci.image.layer.v1.tar+gzip`",
        ),
        (
            "a huge package",
            |document| document["layers"][0]["size"] = (1u64 << 40).into(),
            "the package is too large for a package",
        ),
    ];
    for (name, change, expected) in cases {
        let registry = registry_with_altered_manifest(change);
        let error = failed_pull(&location(&registry.host()));
        assert_eq!(error.to_string(), expected, "{name}");
        assert!(!registry.asked().iter().any(|asked| asked.path.contains("/blobs/")), "{name}");
    }
}

#[test]
fn a_manifest_without_end_is_not_read() {
    let registry = registry_with_package(|asked| {
        let huge = Answer { cut: Some(0), ..Answer::of(200, "") }.with("Content-Length", (1u64 << 40).to_string());
        asked.is("GET", "/manifests/").then_some(huge)
    });
    let error = failed_pull(&location(&registry.host()));
    assert_eq!(error.to_string(), "the manifest is too large for a package");
}
