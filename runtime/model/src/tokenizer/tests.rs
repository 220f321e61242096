//! Compares the tokenizer with transformers, by the golden files of `tests/golden/text` (made by
//! `tests/golden/text.py`).

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use tunebox_foundation::explain::Explain as _;

use super::{StreamDecoder, Tokenizer};
use crate::error::Result;
use crate::weights::gguf::{Metadata, Value as Stored};

const TINY: [&str; 3] = ["bytes", "pieces-gemma", "pieces-llama"];

pub(crate) fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/text").join(name)
}

pub(crate) fn read(name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(golden(name)).unwrap()).unwrap()
}

pub(crate) fn metadata(path: PathBuf) -> Metadata {
    Metadata::open(&path).unwrap()
}

pub(crate) fn tiny(name: &str) -> [Tokenizer; 2] {
    let folder = Tokenizer::from_folder(&golden(name)).unwrap();
    [folder, Tokenizer::from_gguf(&metadata(golden(&format!("{name}.gguf")))).unwrap()]
}

pub(crate) fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// Runs a check on every text of every tiny tokenizer, read from its folder and from its GGUF file.
fn each(check: impl Fn(&Tokenizer, &str, &Value)) {
    let texts = read("texts.json");
    for name in TINY {
        for tokenizer in tiny(name) {
            for row in texts[name].as_array().unwrap() {
                check(&tokenizer, row["text"].as_str().unwrap(), row);
            }
        }
    }
}

#[test]
fn folder_and_gguf_give_the_ids_that_transformers_gives() {
    each(|tokenizer, text, row| {
        assert_eq!(tokenizer.encode(text, false).unwrap(), ids(&row["ids"]), "{text:?}");
        assert_eq!(tokenizer.encode(text, true).unwrap(), ids(&row["full"]), "{text:?}");
    });
}

#[test]
fn decoding_gives_the_text_that_transformers_gives() {
    each(|tokenizer, text, row| {
        let full = ids(&row["full"]);
        assert_eq!(tokenizer.decode(&full, false).unwrap(), row["decoded"].as_str().unwrap(), "{text:?}");
        assert_eq!(tokenizer.decode(&full, true).unwrap(), row["clean"].as_str().unwrap(), "{text:?}");
    });
}

#[test]
fn streamed_pieces_join_to_the_decoded_text() {
    each(|tokenizer, text, row| {
        let mut decoder = StreamDecoder::new(false);
        let mut streamed = String::new();
        for id in ids(&row["full"]) {
            let piece = decoder.push(tokenizer, id).unwrap();
            assert!(!piece.ends_with('\u{FFFD}'), "{text:?} gave half a character");
            streamed.push_str(&piece);
        }
        streamed.push_str(&decoder.finish(tokenizer).unwrap());
        assert_eq!(streamed, row["decoded"].as_str().unwrap());
    });
}

#[test]
fn every_byte_of_a_text_belongs_to_a_token() {
    each(|tokenizer, text, row| {
        let spans = tokenizer.encode_spans(text).unwrap();
        assert_eq!(spans.ids, ids(&row["ids"]));
        assert_eq!(spans.ranges.last().map_or(0, |range| range.end), text.len(), "{text:?}");
        assert_eq!(spans.ranges.first().map_or(0, |range| range.start), 0, "{text:?}");
        assert!(spans.ranges.windows(2).all(|pair| pair[1].start <= pair[0].end), "{text:?}");
    });
}

#[test]
fn pre_tokenizers_cut_by_the_name_in_the_file() {
    let golden_styles = read("styles.json");
    let stored = metadata(golden("bytes.gguf"));
    for (name, rows) in golden_styles["ids"].as_object().unwrap() {
        let mut stored = stored.clone();
        stored.values.insert("tokenizer.ggml.pre".into(), Stored::Text(name.clone()));
        let tokenizer = Tokenizer::from_gguf(&stored).unwrap();
        for (text, row) in golden_styles["texts"].as_array().unwrap().iter().zip(rows.as_array().unwrap()) {
            let text = text.as_str().unwrap();
            assert_eq!(tokenizer.encode(text, false).unwrap(), ids(row), "{name}: {text:?}");
        }
    }
}

#[test]
fn an_unknown_pre_tokenizer_is_refused_by_name() {
    let mut stored = metadata(golden("bytes.gguf"));
    stored.values.insert("tokenizer.ggml.pre".into(), Stored::Text("brand-new".into()));
    let error = Tokenizer::from_gguf(&stored).unwrap_err();
    assert_eq!(error.to_string(), "`brand-new` is not a known pre-tokenizer of a GGUF file");
}

/// A tokenizer with a vocabulary like that of Phi-3's GGUF files; `architecture` is `general.architecture`.
fn with_roles(architecture: &str) -> Tokenizer {
    let rows = [
        ("<unk>", 2),
        ("<s>", 3),
        ("</s>", 4),
        ("<0x0A>", 6),
        ("\u{2581}", 1),
        ("a", 1),
        ("b", 1),
        ("\u{2581}a", 1),
        ("\u{2581}b", 1),
        ("<|endoftext|>", 3),
        ("<|user|>", 3),
        ("<|end|>", 3),
    ];
    let text = |text: &str| Stored::Text(text.into());
    let values = [
        ("general.architecture", text(architecture)),
        ("tokenizer.ggml.model", text("llama")),
        ("tokenizer.ggml.tokens", Stored::Texts(rows.iter().map(|(token, _)| (*token).into()).collect())),
        ("tokenizer.ggml.token_type", Stored::Numbers(rows.iter().map(|(_, kind)| f64::from(*kind)).collect())),
        ("tokenizer.ggml.scores", Stored::Numbers((0..12).map(|id| -f64::from(id)).collect())),
        ("tokenizer.ggml.unknown_token_id", Stored::Number(0.0)),
        ("tokenizer.ggml.bos_token_id", Stored::Number(1.0)),
        ("tokenizer.ggml.eos_token_id", Stored::Number(9.0)),
    ];
    let values = values.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    Tokenizer::from_gguf(&Metadata { path: "model.gguf".into(), values }).unwrap()
}

#[test]
fn the_roles_of_phi_3_take_the_white_space_behind_them_in_gguf_as_well() {
    let text = "<|user|>\na\nb<|end|> \n<|endoftext|>\n<s> b</s> \n a";
    let phi3 = with_roles("phi3");
    assert_eq!(phi3.encode(text, false).unwrap(), [10, 7, 3, 6, 11, 9, 4, 3, 1, 4, 8, 2, 7]);
    assert_eq!(phi3.encode_spans("<|end|>\na").unwrap().ranges, [0..8, 8..9]);
    assert_eq!(with_roles("llama").encode("<|end|>\na", false).unwrap(), [11, 3, 5]);
}

#[test]
fn a_gguf_without_tokens_says_which_key_is_missing() {
    let mut stored = metadata(golden("bytes.gguf"));
    stored.values.remove("tokenizer.ggml.tokens");
    let error = Tokenizer::from_gguf(&stored).unwrap_err();
    assert_eq!(error.to_string(), "the GGUF metadata has no usable `tokenizer.ggml.tokens`");
}

#[test]
fn merges_that_the_vocabulary_cannot_spell_are_an_error() {
    let mut stored = metadata(golden("bytes.gguf"));
    stored.values.insert("tokenizer.ggml.merges".into(), Stored::Texts(vec!["qq zz".into()]));
    let error = Tokenizer::from_gguf(&stored).unwrap_err();
    assert_eq!(error.to_string(), "the tokenizer's parts do not fit together");
}

#[test]
fn special_ids_come_from_the_files() {
    let [folder, file] = tiny("bytes");
    let (end, stop) = (folder.id("<|end|>").unwrap(), folder.id("<|endoftext|>").unwrap());
    for tokenizer in [folder, file] {
        assert_eq!(tokenizer.eos(), [end, stop]);
        assert_eq!((tokenizer.bos(), tokenizer.pad()), (Some(stop), Some(stop)));
        assert_eq!(tokenizer.eos_text(), Some("<|end|>"));
        assert!(tokenizer.is_special(end) && !tokenizer.is_special(tokenizer.id("<note>").unwrap()));
        assert_eq!(tokenizer.size, 486);
    }
}

#[test]
fn the_end_flag_of_a_gguf_puts_an_end_token_behind_texts_but_not_behind_openings() {
    let mut stored = metadata(golden("pieces-gemma.gguf"));
    stored.values.insert("tokenizer.ggml.add_eos_token".into(), Stored::Boolean(true));
    let tokenizer = Tokenizer::from_gguf(&stored).unwrap();
    let (bos, eos) = (tokenizer.bos().unwrap(), tokenizer.eos()[0]);

    let full = tokenizer.encode("river", true).unwrap();
    assert_eq!((full[0], *full.last().unwrap()), (bos, eos));
    assert_eq!(tokenizer.encode_opening("river").unwrap(), full[..full.len() - 1]);
    assert_eq!(tokenizer.encode_whole("river<stop>").unwrap(), full);
}

#[test]
fn a_folder_without_a_tokenizer_says_so() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tokenizer.model"), "").unwrap();
    let error = Tokenizer::from_folder(folder.path()).unwrap_err();
    assert!(error.to_string().ends_with("has no `tokenizer.json`") && error.why().unwrap().contains("SentencePiece"));
}

#[test]
fn flags_of_the_configuration_decide_what_goes_around_a_text() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(golden("pieces-gemma/tokenizer.json"), folder.path().join("tokenizer.json")).unwrap();
    let configuration = r#"{"bos_token": "<start>", "eos_token": {"content": "<stop>"}, "add_eos_token": true}"#;
    fs::write(folder.path().join("tokenizer_config.json"), configuration).unwrap();

    let tokenizer = Tokenizer::from_folder(folder.path()).unwrap();
    assert_eq!((&tokenizer.leading[..], &tokenizer.trailing[..]), (&[][..], &[1][..]));
}

#[test]
#[ignore = "needs TUNEBOX_MODELS"]
fn real_models_give_the_ids_that_transformers_gives() {
    let absent = |_| panic!("absent `TUNEBOX_MODELS`: it names no folder of GGUF files of the real models");
    let folder = PathBuf::from(std::env::var("TUNEBOX_MODELS").unwrap_or_else(absent));
    for (name, rows) in read("real.json").as_object().unwrap() {
        let tokenizer = Tokenizer::from_gguf(&metadata(folder.join(format!("{name}.gguf")))).unwrap();
        for row in rows.as_array().unwrap() {
            let text = row["text"].as_str().unwrap();
            assert_eq!(tokenizer.encode(text, true).unwrap(), ids(&row["full"]), "{name}: {text:?}");
        }
    }
}

/// Reads a copy of the golden folder `bytes` with these top-level keys of its `tokenizer.json` replaced.
fn changed(changes: &Value) -> Result<Tokenizer> {
    let folder = tempfile::tempdir().unwrap();
    for file in fs::read_dir(golden("bytes")).unwrap() {
        let path = file.unwrap().path();
        fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    let path = folder.path().join("tokenizer.json");
    let mut whole: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    for (key, value) in changes.as_object().unwrap() {
        whole[key] = value.clone();
    }
    fs::write(&path, whole.to_string()).unwrap();
    Tokenizer::from_folder(folder.path())
}

#[test]
fn steps_of_a_file_that_make_much_of_little_are_refused_before_they_run() {
    let doubling = serde_json::json!({ "type": "Replace", "pattern": { "String": "a" }, "content": "aa" });
    let list = |key: &str| serde_json::json!({ "type": "Sequence", key: vec![doubling.clone(); 40] });
    let text = serde_json::json!({ "Sequence": { "id": "A", "type_id": 0 } });
    let ids = serde_json::json!({ "s": { "id": "s", "ids": vec![1; 9000], "tokens": vec!["s"; 9000] } });
    let token = serde_json::json!({
        "id": 0, "content": "aaaa", "single_word": false, "lstrip": false, "rstrip": false, "normalized": true,
        "special": false,
    });
    for changes in [
        serde_json::json!({ "normalizer": list("normalizers") }),
        // The library puts added tokens through the normalizer while it reads.
        serde_json::json!({ "normalizer": list("normalizers"), "added_tokens": [token] }),
        serde_json::json!({ "decoder": list("decoders") }),
        // The library does not look at the name of a post-processor.
        serde_json::json!({ "post_processor": {
            "type": "ByteLevel", "single": vec![text.clone(); 64], "pair": [], "special_tokens": {},
        } }),
        serde_json::json!({ "post_processor": {
            "type": "TemplateProcessing", "pair": [], "special_tokens": ids,
            "single": [{ "SpecialToken": { "id": "s", "type_id": 0 } }, text],
        } }),
    ] {
        let error = changed(&changes).unwrap_err();
        assert!(error.to_string().ends_with("is not a tokenizer file"), "{error:?}");
    }
}

#[test]
fn padding_and_truncation_of_a_file_are_not_used() {
    let padding = serde_json::json!({
        "strategy": { "Fixed": 1_000_000_000_000_u64 }, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
        "pad_type_id": 0, "pad_token": "a",
    });
    let truncation =
        serde_json::json!({ "max_length": 1, "strategy": "LongestFirst", "stride": 0, "direction": "Right" });
    let tokenizer = changed(&serde_json::json!({ "padding": padding, "truncation": truncation })).unwrap();
    let [plain, _] = tiny("bytes");
    assert_eq!(tokenizer.encode("a longer text", true).unwrap(), plain.encode("a longer text", true).unwrap());
}

#[test]
fn a_file_that_leaves_out_random_merges_gives_a_text_the_same_tokens_each_time() {
    let file = fs::read_to_string(golden("bytes").join("tokenizer.json")).unwrap();
    let mut model = serde_json::from_str::<Value>(&file).unwrap()["model"].take();
    model["dropout"] = 0.5.into();
    let tokenizer = changed(&serde_json::json!({ "model": model })).unwrap();
    let [plain, _] = tiny("bytes");
    let text = "the same text each time, and the same tokens for it";
    for _ in 0..20 {
        assert_eq!(tokenizer.encode(text, false).unwrap(), plain.encode(text, false).unwrap());
    }
}

#[test]
fn texts_that_may_grow_too_long_and_patterns_without_an_end_are_errors() {
    let [plain, _] = tiny("bytes");
    let error = plain.encode(&"a".repeat((4 << 20) + 1), false).unwrap_err();
    assert!(format!("{error:?}").contains("at most 4194304 are encoded"), "{error:?}");
    let pattern = serde_json::json!({ "type": "Split", "pattern": { "Regex": "(?=a)(?:(?:a|aa)+)+b|[^b]*c" },
        "behavior": "Isolated", "invert": false });
    let slow = changed(&serde_json::json!({ "pre_tokenizer": pattern })).unwrap();
    let begun = std::time::Instant::now();
    let outcome = slow.encode(&"a".repeat(64 << 10), false);
    assert!(begun.elapsed().as_secs() < 20, "{outcome:?}");
}
