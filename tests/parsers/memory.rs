//! Texts, adapters and completions that claim more memory than they may have.

use std::process::Child;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Stranger, find_inner};
use crate::support::workspace::errors;

#[test]
fn texts_too_long_for_the_memory_that_encoding_takes_are_refused_before_it() {
    let place = Stranger::new();
    let content = "a ".repeat(5_000_000);
    let messages = json!([{ "role": "user", "content": "Hi" }, { "role": "assistant", "content": content }]);
    let write = |file: &str, record: Value| std::fs::write(place.0.path(file), record.to_string()).unwrap();
    write("answers.jsonl", json!({ "messages": messages }));
    write("texts.jsonl", json!({ "text": content }));
    for told in place.refuse(&["check run.toml", "train run.toml", "score model --file texts.jsonl"]) {
        assert!(told.contains(" bytes; at most 4194304 are encoded"), "{told}");
    }
    for told in place.refuse(&[&format!("score model --text {}", "a".repeat(60_000))]) {
        assert!(told.contains("entry 1 has 60000 tokens, the model takes 256"), "{told}");
    }
}

/// An adapter of rank 10⁸ whose file is a hole behind its header; the header has the shapes of that rank if `lies`.
fn write_large_adapter(place: &Stranger, lies: bool) {
    const RANK: usize = 100_000_000;
    let folder = place.0.path("adapter");
    std::fs::create_dir_all(&folder).unwrap();
    let config = json!({ "peft_type": "LORA", "r": RANK, "lora_alpha": 1, "target_modules": ["q_proj"],
        "base_model_name_or_path": "model" });
    std::fs::write(folder.join("adapter_config.json"), config.to_string()).unwrap();
    let rank = if lies { RANK } else { 16 };
    let (mut header, mut end) = (serde_json::Map::new(), 0);
    for layer in 0..6 {
        for (factor, shape) in [("A", [rank, 128]), ("B", [128, rank])] {
            let name = format!("base_model.model.model.layers.{layer}.self_attn.q_proj.lora_{factor}.weight");
            let begin = end;
            end += 2 * rank * 128;
            header.insert(name, json!({ "dtype": "F16", "shape": shape, "data_offsets": [begin, end] }));
        }
    }
    let header = Value::Object(header).to_string();
    let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
    std::fs::write(folder.join("adapter_model.safetensors"), &bytes).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(folder.join("adapter_model.safetensors")).unwrap();
    file.set_len((bytes.len() + end) as u64).unwrap();
}

#[test]
fn an_adapter_that_claims_more_than_its_file_or_the_memory_holds_is_refused_before_it_is_allocated() {
    let place = Stranger::new();
    for (lies, wanted) in [
        (false, "has shape [16, 128], the model and its settings need [100000000, 128]"),
        (true, "what is trained, with its gradient, takes 1144.4 GiB"),
    ] {
        write_large_adapter(&place, lies);
        for words in ["score model --adapter adapter --text hi", "train run.toml --set model.adapter=adapter"] {
            let output = place.command(words).output().unwrap();
            let told = errors(&output);
            assert_eq!(output.status.code(), Some(2), "{words}: {told}");
            assert!(told.contains(wanted), "{words}: {told}");
        }
    }
}

/// The most memory that the process of a command has taken, in bytes, until it ends.
fn peak_of(mut command: Child) -> u64 {
    let inner = find_inner(&mut command);
    let mut most = 0;
    while command.try_wait().unwrap().is_none() {
        let status = std::fs::read_to_string(format!("/proc/{inner}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        most = most.max(1024 * peak.unwrap_or(0));
        std::thread::sleep(Duration::from_millis(5));
    }
    most
}

#[test]
fn long_training_texts_are_encoded_in_parts_that_fit_into_memory() {
    // 10 MB: encoded at once they take 3 GB.
    let (place, long) = (Stranger::new(), "a ".repeat(5_000_000));
    for record in [json!({ "text": long }), json!({ "prompt": "Hi", "completion": long })] {
        std::fs::write(place.0.path("answers.jsonl"), record.to_string()).unwrap();
        let peak = peak_of(place.command("check run.toml").spawn().unwrap());
        assert!((50 << 20..800 << 20).contains(&peak), "{peak} bytes");
    }
}

#[test]
fn the_texts_of_all_completions_that_are_judged_are_not_in_memory_together() {
    // 800 completions of some 36 tokens, each token 40,000 letters long: a gigabyte of text. Once they are judged, the limit
    // of activations ends the run, before a gradient over all of them takes as much.
    let place = Stranger::with_tokenizer(|all| {
        let vocabulary = all["model"]["vocab"].as_object().unwrap();
        let spelled = |(token, id): (&String, &Value)| {
            let token = if token.starts_with("<|") { token.clone() } else { format!("{}{id}", "a".repeat(40_000)) };
            (token, id.clone())
        };
        all["model"]["vocab"] = Value::Object(vocabulary.iter().map(spelled).collect());
        all["model"]["merges"] = json!([]);
    });
    let prompt =
        |number: usize| format!("{}\n", json!({ "prompt": "<|im_start|>".repeat(1 + number % 3), "answer": "x" }));
    std::fs::write(place.0.path("answers.jsonl"), (0..8).map(prompt).collect::<String>()).unwrap();
    let sets = "--set method.use=grpo --set method.completions=100 --set train.batch=8 --set data.max-length=64 \
        --set verifier.0.use=overlong --set verifier.0.length=40 --set verifier.0.buffer=40 \
        --set verifier.0.unit=characters --set train.steps=1 --set limits.activation-bytes=100000000";
    let words = format!("train run.toml --in-process {}", sets.split_whitespace().collect::<Vec<_>>().join(" "));
    let peak = peak_of(place.command(&words).spawn().unwrap());
    assert!((50 << 20..400 << 20).contains(&peak), "{peak} bytes");
}
