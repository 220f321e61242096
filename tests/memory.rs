//! What a run is estimated to need of memory is what it needs: eight kinds of run on models that the test makes, each in a
//! process of its own. The same on real models, by hand: `tunebox bench --only training --json` has both numbers.
#![cfg(target_os = "linux")]

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;

use serde_json::{Map, Value, json};
use tunebox_model::Configuration;
use tunebox_model::families::weight_shapes;

use crate::support::workspace::{Workspace, errors};

/// How far the peak may lie from what was estimated, as a share of it.
const TOLERANCE: f64 = 0.15;

/// A model of some 33 million weights, so that weights and activations outweigh the program.
fn config(family: &str) -> Value {
    json!({
        "model_type": family, "vocab_size": 4096, "hidden_size": 512, "intermediate_size": 2048,
        "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64,
        "rms_norm_eps": 1e-6, "max_position_embeddings": 2048, "rope_theta": 1e4, "tie_word_embeddings": true,
        "rope_local_base_freq": 1e4, "sliding_window": 512, "query_pre_attn_scalar": 64,
        "hidden_activation": if family == "llama" { "silu" } else { "gelu_pytorch_tanh" },
    })
}

/// Writes a model in bf16 with small weights, all alike in size.
fn write(folder: &Path, config: &Value) {
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let weights = weight_shapes(&Configuration::from_hugging_face(config, Path::new("config.json")).unwrap());
    let (mut head, mut end) = (Map::new(), 0);
    for (name, shape) in &weights {
        let start = end;
        end += 2 * shape.iter().product::<usize>();
        head.insert(name.clone(), json!({ "dtype": "BF16", "shape": shape, "data_offsets": [start, end] }));
    }
    let mut head = Value::Object(head).to_string();
    head.push_str(&" ".repeat(head.len().next_multiple_of(8) - head.len()));
    let mut file = BufWriter::new(File::create(folder.join("model.safetensors")).unwrap());
    file.write_all(&(head.len() as u64).to_le_bytes()).unwrap();
    file.write_all(head.as_bytes()).unwrap();
    // ±0.0156 in the order of a congruential generator.
    let mut state = 1_u32;
    for _ in 0..end / 2 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let number: u16 = if state >> 31 == 0 { 0x3c80 } else { 0xbc80 };
        file.write_all(&number.to_le_bytes()).unwrap();
    }
    file.flush().unwrap();
}

/// The peak of two steps and what was estimated, in bytes.
fn measured(model: &Path, arguments: &[&str]) -> (f64, f64) {
    let output = Command::new(env!("CARGO_BIN_EXE_tunebox"))
        .args(["bench", "--only", "training", "--steps", "1", "--json", "--model"])
        .arg(model)
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let last: Value = text.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_else(|| {
        panic!("{arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    });
    let number = |name: &str| last[name].as_f64().unwrap_or_else(|| panic!("no `{name}` in {last}"));
    (number("peak_bytes"), number("expected_peak_bytes"))
}

/// Whether a run fits whose step is about so many records, all counted as long as the one that is long: the exit code of
/// the check, and what it says.
fn fit(records: usize, arguments: &[&str]) -> (Option<i32>, String) {
    let place = Workspace::with_model();
    let mut config: Value = serde_json::from_str(&place.read("model/config.json")).unwrap();
    config["max_position_embeddings"] = 8192.into();
    place.write("model/config.json", &config.to_string());
    let record = |text: &str| format!("{}\n", json!({ "text": text }));
    let data = record(&"very long ".repeat(10_000)) + &record("short").repeat(records - 1);
    place.write("data.jsonl", &data);
    let run = "model.path = \"model\"\ndata.path = \"data.jsonl\"\ndata.max-length = 8192\nmethod.use = \"lora\"\n";
    place.write("run.toml", &format!("{run}train.batch = 65536\n"));
    let output = place.tunebox(&["check", "run.toml"]).args(arguments).output().unwrap();
    (output.status.code(), errors(&output))
}

#[test]
fn a_run_that_does_not_fit_ends_the_check_and_gets_hints_that_it_can_follow() {
    let (code, said) = fit(1, &["--fit"]);
    assert!(code == Some(0) && said.contains(" free: ok") && !said.contains("Hint"), "{said}");
    assert!(said.contains("Cost about ") && said.contains("estimated from "), "{said}");

    // Terabytes of activations.
    let (code, said) = fit(10_000, &["--fit"]);
    assert!(code == Some(1) && said.contains(" free: does not fit"), "{said}");
    assert!(said.contains("`--set train.batch=1` needs about") && said.contains("`--set model.precision=nf4` needs"));
    assert_eq!(fit(10_000, &[]).0, Some(0), "only `--fit` says no");

    let (code, said) = fit(10_000, &["--fit", "--set", "train.adapter.kind=full"]);
    assert!(code == Some(1) && said.contains("`--set train.batch=1` needs"), "{said}");
    assert!(!said.contains("nf4"), "a base that is trained cannot be quantized: {said}");
}

#[test]
fn the_memory_of_a_run_is_estimated() {
    let cases: [(&str, &[&str]); 8] = [
        ("llama", &["--batch", "4", "--sequence", "128"]),
        ("llama", &["--batch", "1", "--sequence", "1024"]),
        ("llama", &["--batch", "2", "--sequence", "128", "--method", "dpo"]),
        ("llama", &["--batch", "4", "--sequence", "256", "--set", "train.recompute=true"]),
        ("llama", &["--batch", "4", "--sequence", "128", "--precision", "nf4"]),
        ("gemma3_text", &["--batch", "4", "--sequence", "128"]),
        ("llama", &["--batch", "1", "--sequence", "1024", "--set", "train.compute=f32"]),
        ("gemma3_text", &["--batch", "4", "--sequence", "128", "--set", "train.compute=f32"]),
    ];
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for (family, arguments) in cases {
        let model = folder.path().join(family);
        if !model.exists() {
            std::fs::create_dir(&model).unwrap();
            write(&model, &config(family));
        }
        let (peak, estimated) = measured(&model, arguments);
        let off = estimated / peak - 1.0;
        if off.abs() > TOLERANCE {
            wrong.push(format!("{family} {arguments:?}: {estimated:.3e} estimated, {peak:.3e} measured"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
