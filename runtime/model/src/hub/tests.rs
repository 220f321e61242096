//! Tests of the hub client against a server on the loopback interface.

mod data_set;
#[path = "../../../../tests/support/fake_hub.rs"]
mod fake_hub;

use std::collections::HashMap;

use super::*;
use fake_hub::Server;

const INDEXED: &[u8] =
    br#"{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}"#;

fn tiny() -> Server {
    Server::start(&[
        ("config.json", b"{}"),
        ("tokenizer.json", b"[]"),
        ("model.safetensors.index.json", INDEXED),
        ("model-00001-of-00002.safetensors", b"first"),
        ("model-00002-of-00002.safetensors", b"second shard"),
        ("modeling_tiny.py", b"import os"),
        ("pytorch_model.bin", b"a pickle"),
    ])
}

fn explained(error: Error) -> Explanation {
    let Error::Explained(explanation) = error else { panic!("{error}") };
    *explanation
}

fn name() -> Name {
    Name::parse("acme/tiny", None).unwrap()
}

#[test]
fn all_shards_come_and_a_second_time_nothing_is_fetched() {
    let (server, cache) = (tiny(), tempfile::tempdir().unwrap());
    let hub = Hub::at(&server.address, cache.path(), false);
    let folder = hub.fetch(&name()).unwrap();
    assert_eq!(std::fs::read(folder.join("model-00001-of-00002.safetensors")).unwrap(), b"first");
    assert_eq!(std::fs::read(folder.join("model-00002-of-00002.safetensors")).unwrap(), b"second shard");
    assert_eq!(std::fs::read(folder.join("tokenizer.json")).unwrap(), b"[]");
    let before = server.asked().len();
    assert_eq!(hub.fetch(&name()).unwrap(), folder);
    assert_eq!(server.asked().len(), before + 1, "only the list of files is asked for again");
}

#[test]
fn code_and_pickles_are_never_fetched() {
    let (server, cache) = (tiny(), tempfile::tempdir().unwrap());
    Hub::at(&server.address, cache.path(), false).fetch(&name()).unwrap();
    assert!(!server.asked().iter().any(|path| path.ends_with(".py") || path.ends_with(".bin")));
}

#[test]
fn a_reward_model_is_fetched_although_its_family_is_none_that_is_trained() {
    let config: &[u8] =
        br#"{"model_type": "deberta-v2", "architectures": ["DebertaV2ForSequenceClassification"], "vocab_size": 9,
        "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "num_labels": 1,
        "max_position_embeddings": 16}"#;
    let files: [(&str, &[u8]); 3] =
        [("config.json", config), ("tokenizer.json", b"[]"), ("model.safetensors", b"weights")];
    let (server, cache) = (Server::start(&files), tempfile::tempdir().unwrap());
    let find =
        |offline| crate::reward::find_reward_model("acme/tiny", &Hub::at(&server.address, cache.path(), offline));
    let folder = find(false).unwrap().path().to_owned();
    assert_eq!(find(true).unwrap().path(), folder, "offline");
    assert!(Hub::at(&server.address, cache.path(), false).fetch(&name()).is_err(), "it cannot be trained");
}

#[test]
fn what_was_fetched_is_found_offline() {
    let (server, cache) = (tiny(), tempfile::tempdir().unwrap());
    let folder = Hub::at(&server.address, cache.path(), false).fetch(&name()).unwrap();
    let before = server.asked().len();
    let again = Hub::at(&server.address, cache.path(), true).fetch(&name()).unwrap();
    assert_eq!(again, folder);
    assert_eq!(server.asked().len(), before);
}

#[test]
fn offline_never_opens_a_connection() {
    let (server, cache) = (tiny(), tempfile::tempdir().unwrap());
    let error = Hub::at(&server.address, cache.path(), true).fetch(&name()).unwrap_err();
    assert_eq!(explained(error).category, "hub");
    assert!(server.asked().is_empty());
}

#[test]
fn a_model_that_is_not_there_says_so() {
    let (server, cache) = (tiny(), tempfile::tempdir().unwrap());
    let wanted = Name::parse("acme/absent", None).unwrap();
    let error = Hub::at(&server.address, cache.path(), false).fetch(&wanted).unwrap_err();
    let Explanation { why, hint, .. } = explained(error);
    assert!(why.unwrap().contains("404"));
    assert!(hint.unwrap().contains("check owner, name and revision"));
}

#[test]
fn an_index_that_leads_outside_its_folder_is_refused() {
    let server = Server::start(&[
        ("config.json", b"{}"),
        ("model.safetensors.index.json", br#"{"weight_map": {"a": "../../outside"}}"#),
    ]);
    let cache = tempfile::tempdir().unwrap();
    let error = Hub::at(&server.address, cache.path(), false).fetch(&name()).unwrap_err();
    assert_eq!(error.to_string(), "the index names a file outside its folder");
}

#[test]
fn one_file_of_many_can_be_named() {
    let server = Server::start(&[("tiny-q8.gguf", b"GGUF!"), ("tiny-q4.gguf", b"GGUF?")]);
    let cache = tempfile::tempdir().unwrap();
    let hub = Hub::at(&server.address, cache.path(), false);
    let wanted = Name::parse("acme/tiny/tiny-q4.gguf", None).unwrap();
    assert_eq!(std::fs::read(hub.fetch(&wanted).unwrap()).unwrap(), b"GGUF?");
    let hint = explained(hub.fetch(&name()).unwrap_err()).hint.unwrap();
    assert!(hint.contains("GGUF files"), "{hint}");
}

#[test]
fn names_are_an_owner_and_a_model() {
    let parsed = Name::parse("acme/tiny@v1", Some("main")).unwrap();
    assert_eq!((parsed.repository.as_str(), parsed.revision.as_str()), ("acme/tiny", "v1"));
    for wrong in ["tiny", "a/b/c", "../tiny", "acme/..", "/acme/tiny", "acme/tiny@../x", "acme/ti ny", ""] {
        assert_eq!(Name::parse(wrong, None), None, "`{wrong}`");
    }
}

#[test]
fn the_environment_chooses_hub_and_cache() {
    let variables = HashMap::from([("HF_ENDPOINT", "http://mirror/"), ("HF_HOME", "/cache"), ("HF_HUB_OFFLINE", "1")]);
    let hub = Hub::from_variables(false, |name| variables.get(name).map(|value| (*value).to_owned()), None);
    assert_eq!(hub.endpoint, "http://mirror");
    assert_eq!(hub.cache.as_deref(), Some(Path::new("/cache/hub")));
    assert!(hub.offline);
}

#[test]
fn models_of_the_cache_are_named_as_on_the_hub_and_nothing_else_is() {
    let cache = tempfile::tempdir().unwrap();
    for folder in ["models--Qwen--Qwen2.5-0.5B", "models--HuggingFaceTB--SmolLM2-135M", "datasets--a--b"] {
        std::fs::create_dir(cache.path().join(folder)).unwrap();
    }
    let hub = Hub::at("https://hub.example", cache.path(), true);
    assert_eq!(hub.cached_models(), ["HuggingFaceTB/SmolLM2-135M", "Qwen/Qwen2.5-0.5B"]);
}

#[test]
fn a_family_that_is_not_known_is_refused_before_weights_are_fetched() {
    let server = Server::start(&[("config.json", br#"{"model_type": "mamba"}"#), ("model.safetensors", b"weights")]);
    let cache = tempfile::tempdir().unwrap();
    let error = Hub::at(&server.address, cache.path(), false).fetch(&name()).unwrap_err();
    assert!(error.to_string().contains("mamba"), "{error}");
    assert!(!server.asked().iter().any(|path| path.ends_with(".safetensors")), "{:?}", server.asked());
}
