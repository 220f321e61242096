//! Every format gives back the model that was exported, and what it cannot hold is refused.

use std::path::Path;
use std::sync::Arc;

use tunebox_compute::{DType, Device};
use tunebox_foundation::explain::Explain;

use super::{Format, Quantization, check, export};
use crate::adapter::{AdapterKind, AdapterSettings, Targets};
use crate::configuration::{Configuration, Experts, RopeScaling, RopeSetting};
use crate::merge::merge;
use crate::policy::{Policy, PolicySettings};
use crate::tiny::{self, adapter};
use crate::weights::gguf::{Metadata, write};
use crate::{Model, Source};

/// The folder of a model with a byte-level tokenizer of 768 tokens and a chat template.
const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../training/sample/model");

const KINDS: [AdapterKind; 4] = [AdapterKind::Lora, AdapterKind::RsLora, AdapterKind::Dora, AdapterKind::Full];

/// A configuration with the vocabulary of the sample and sides that are whole blocks of 32.
fn wide(like: Configuration) -> Configuration {
    let rotated = 16 * like.rotated / like.head_dim;
    Configuration { hidden: 64, head_dim: 16, rotated, intermediate: 96, vocabulary: 770, eos: vec![2, 0], ..like }
}

/// Llama 3's rotation, with an output head of its own and biases.
fn llama3() -> Configuration {
    let scaling = RopeScaling::Llama3 { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original: 64 };
    Configuration {
        ropes: vec![RopeSetting { theta: 10_000.0, scaling }],
        attention_bias: true,
        output_bias: true,
        ..tiny::llama()
    }
}

/// A model whose experts are as wide as the feed-forward part of [`wide`], whose width its files give.
fn with_wide_experts(like: Configuration) -> Configuration {
    Configuration { experts: like.experts.map(|experts| Experts { intermediate: 96, ..experts }), ..like }
}

/// Opens the folder or GGUF file of a model.
fn open(path: &Path) -> Arc<Model> {
    let source = Source::open(path.to_str().unwrap(), true).unwrap();
    Arc::new(Model::open(&source, &Device::Cpu).unwrap())
}

/// A model with random weights, opened from a folder that it is written to, with the tokenizer of the sample.
fn model(configuration: Configuration, folder: &Path) -> Arc<Model> {
    merge(&tiny::plain(configuration), folder, DType::F32).unwrap();
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(Path::new(SAMPLE).join(name), folder.join(name)).unwrap();
    }
    open(folder)
}

/// A policy with an adapter, as if it had been trained.
fn trained(model: &Arc<Model>, settings: &AdapterSettings) -> Policy {
    tiny::trained(Arc::clone(model), settings, PolicySettings::default())
}

#[test]
fn a_merged_gguf_file_from_a_folder_is_the_same_model_in_every_family_that_is_written() {
    let dense = [
        tiny::llama(),
        llama3(),
        tiny::qwen2(),
        tiny::qwen3(),
        tiny::olmo2(),
        tiny::olmo3(),
        tiny::granite(),
        tiny::glm4(),
    ];
    let experts = [with_wide_experts(tiny::mixtral()), tiny::qwen3_moe(), with_wide_experts(tiny::olmoe())];
    for configuration in dense.into_iter().chain(experts) {
        let (folder, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let model = model(wide(configuration), folder.path());
        for kind in KINDS {
            let policy = trained(&model, &adapter(kind));
            let difference = export(&policy, Format::Gguf(Quantization::F32), out.path(), "model.gguf").unwrap();
            let family = &model.configuration.family;
            assert!(difference.largest < 1e-3 && difference.tokens > 100, "{family}, {kind:?}: {difference:?}");
            let written = open(&out.path().join("model.gguf"));
            assert_eq!(written.configuration.eos, model.configuration.eos);
            assert_eq!(written.template.as_ref().unwrap().source(), model.template.as_ref().unwrap().source());
        }
    }
}

#[test]
fn every_choice_of_number_formats_is_within_its_limit() {
    use Quantization::{Bf16, F16, Q4KM, Q5KM, Q6K, Q8_0};
    let (folder, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let model = model(wide(tiny::qwen2()), folder.path());
    let policy = trained(&model, &adapter(AdapterKind::Lora));
    for quantization in [F16, Bf16, Q8_0, Q6K, Q5KM, Q4KM] {
        let difference = export(&policy, Format::Gguf(quantization), out.path(), "model.gguf").unwrap();
        assert!(difference.largest > 0.0, "{quantization:?} rounds");
        let metadata = Metadata::open(&out.path().join("model.gguf")).unwrap();
        assert_eq!(metadata.u32("general.file_type"), Some(quantization.file_type()));
    }
}

#[test]
fn a_model_from_a_gguf_file_keeps_its_metadata_and_the_bytes_of_what_did_not_change() {
    use candle_core::quantized::gguf_file::Value;
    let (folder, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let model = model(wide(tiny::qwen2()), folder.path());
    let plain = Policy::open(model, None, PolicySettings::default()).unwrap();
    let first = out.path().join("first.gguf");
    export(&plain, Format::Gguf(Quantization::Q8_0), out.path(), "first.gguf").unwrap();
    // As another program would have written it.
    let mut metadata = super::metadata::of_file(&first, Quantization::Q8_0).unwrap();
    metadata.push(("general.author".into(), Value::String("someone".into())));
    metadata.push(("tokenizer.ggml.scores".into(), Value::Array(vec![Value::F32(0.5); 770])));
    let other = out.path().join("other.gguf");
    let header = crate::weights::gguf::Header::read(&first).unwrap();
    let list: Vec<write::TensorSpec> = header
        .tensors
        .values()
        .map(|at| write::TensorSpec { name: at.name.clone(), shape: at.shape.clone(), dtype: at.dtype().unwrap() })
        .collect();
    let stored = |number: usize| {
        let dtype = list[number].dtype;
        Ok(header.tensors[&list[number].name].read_stored(dtype).unwrap().unwrap())
    };
    write::write(&other, &metadata, &list, stored).unwrap();

    let queries = AdapterSettings { targets: Targets::Modules(vec!["q_proj".into()]), ..adapter(AdapterKind::Lora) };
    let policy = trained(&open(&other), &queries);
    let difference = export(&policy, Format::Gguf(Quantization::Q8_0), out.path(), "last.gguf").unwrap();
    assert!(difference.largest > 0.0, "the queries are rounded again");
    let last = crate::weights::gguf::Header::read(&out.path().join("last.gguf")).unwrap();
    assert_eq!(last.metadata.string("general.author"), Some("someone"));
    assert!(last.metadata.value("tokenizer.ggml.scores").is_some());
    for (name, before) in &header.tensors {
        let dtype = before.dtype().unwrap();
        let same = last.tensors[name].read_stored(dtype).unwrap() == before.read_stored(dtype).unwrap();
        assert_eq!(same, !name.ends_with("attn_q.weight"), "{name}");
    }
}

#[test]
fn an_adapter_alone_is_the_same_for_llama_cpp_mlx_and_peft() {
    for (name, configuration) in tiny::families() {
        let model = tiny::model(configuration, 1);
        for kind in [AdapterKind::Lora, AdapterKind::RsLora, AdapterKind::Dora] {
            for format in [Format::GgufLora, Format::Mlx, Format::Peft] {
                let out = tempfile::tempdir().unwrap();
                let policy = trained(&model, &AdapterSettings { layers: Some(vec![1]), ..adapter(kind) });
                let outcome = export(&policy, format, out.path(), "lora.gguf");
                if (kind, format) == (AdapterKind::Dora, Format::GgufLora) {
                    assert_eq!(outcome.unwrap_err().to_string(), "llama.cpp has no DoRA adapters");
                    continue;
                }
                let difference = outcome.unwrap();
                assert!(difference.largest < 1e-3, "{name}, {kind:?}, {format:?}: {difference:?}");
            }
        }
    }
}

#[test]
fn modules_that_were_trained_whole_are_in_a_merged_model_and_in_the_adapter_for_peft_alone() {
    for (configuration, modules, ensure_weight_tying, tied) in [
        (tiny::llama(), &["embed_tokens", "lm_head"][..], false, false),
        (tiny::qwen2(), &["embed_tokens"], false, false),
        (tiny::qwen2(), &["embed_tokens", "lm_head"], false, false),
        (tiny::qwen2(), &["lm_head"], true, true),
        (tiny::qwen3(), &["norm", "down_proj"], false, false),
    ] {
        let (folder, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let model = model(wide(configuration), folder.path());
        let modules_to_save = modules.iter().map(|name| (*name).to_owned()).collect();
        let settings = AdapterSettings { modules_to_save, ensure_weight_tying, ..adapter(AdapterKind::Lora) };
        let policy = trained(&model, &settings);
        let formats = [Format::Gguf(Quantization::F32), Format::HuggingFace(DType::F32), Format::Peft];
        for format in formats {
            let difference = export(&policy, format, out.path(), "model.gguf").unwrap();
            assert!(difference.largest < 1e-3, "{modules:?}, {format:?}: {difference:?}");
        }
        for written in [out.path().join("model.gguf"), out.path().to_path_buf()] {
            assert_eq!(open(&written).configuration.tied, tied, "{modules:?}");
        }
        for format in [Format::GgufLora, Format::Mlx] {
            let error = export(&policy, format, out.path(), "lora.gguf").unwrap_err().explanation();
            assert!(
                error.what.ends_with(&format!("the run trained `{}` whole", modules.join("`, `"))),
                "{}",
                error.what
            );
            assert!(error.hint.unwrap().contains("`--to peft`"));
        }
    }
}

#[test]
fn modules_of_different_scales_are_the_same_in_formats_with_one_scale() {
    let model = tiny::model(tiny::llama(), 1);
    let out = tempfile::tempdir().unwrap();
    trained(&model, &adapter(AdapterKind::Lora)).save(out.path()).unwrap();
    let path = out.path().join("adapter_config.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let mixed =
        text.replace("\"alpha_pattern\": {}", "\"alpha_pattern\": {\"q_proj\": 1, \"layers.1.mlp.down_proj\": 40}");
    assert_ne!(mixed, text);
    std::fs::write(&path, mixed).unwrap();
    let policy = Policy::open(model, Some(out.path()), PolicySettings::default()).unwrap();
    for format in [Format::GgufLora, Format::Mlx] {
        let out = tempfile::tempdir().unwrap();
        let difference = export(&policy, format, out.path(), "lora.gguf").unwrap();
        assert!(difference.largest < 1e-3, "{format:?}: {difference:?}");
    }
}

#[test]
fn a_folder_for_transformers_and_one_for_ollama_are_the_same_model() {
    let (folder, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let model = model(wide(tiny::qwen3()), folder.path());
    let policy = trained(&model, &adapter(AdapterKind::Lora));
    let difference = export(&policy, Format::HuggingFace(DType::F32), out.path(), "").unwrap();
    assert!(difference.largest < 1e-3, "{difference:?}");
    assert!(out.path().join("tokenizer.json").is_file() && out.path().join("config.json").is_file());

    let out = tempfile::tempdir().unwrap();
    export(&policy, Format::Ollama(Quantization::F16), out.path(), "").unwrap();
    let text = std::fs::read_to_string(out.path().join("Modelfile")).unwrap();
    let template = "TEMPLATE \"\"\"{{ if .System }}<|im_start|>system\n{{ .System }}<|im_end|>\n{{ else }}{{ end }}\
        {{ range .Messages }}{{ if eq .Role \"user\" }}<|im_start|>user\n{{ .Content }}<|im_end|>\n\
        <|im_start|>assistant\n{{ else if eq .Role \"assistant\" }}{{ .Content }}<|im_end|>\n{{ end }}{{ end }}\"\"\"";
    assert_eq!(
        text,
        format!("FROM ./model.gguf\n{template}\nPARAMETER stop \"<|im_end|>\"\nPARAMETER stop \"<|end|>\"\n")
    );
}

#[test]
fn what_a_format_does_not_hold_is_refused_with_the_format_that_does() {
    let (folder, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let gemma = Configuration { vocabulary: 770, ..tiny::gemma3() };
    let gemma = Policy::open(model(gemma, folder.path()), None, PolicySettings::default()).unwrap();
    let error = export(&gemma, Format::Gguf(Quantization::F16), out.path(), "a.gguf").unwrap_err().explanation();
    assert!(error.what.contains("gemma3_text") && error.hint.unwrap().contains("convert_hf_to_gguf.py"));
    assert!(!out.path().join("a.gguf").exists());
    for format in [Format::GgufLora, Format::Mlx, Format::Peft] {
        let error = export(&gemma, format, out.path(), "a.gguf").unwrap_err();
        assert_eq!(error.to_string(), "this is a model without an adapter");
    }
    let full = trained(&tiny::model(tiny::llama(), 1), &adapter(AdapterKind::Full));
    let error = export(&full, Format::Mlx, out.path(), "").unwrap_err().explanation();
    assert!(error.what.contains("all weights") && error.hint.unwrap().contains("`--to gguf`"));
}

#[test]
fn another_model_is_refused_and_so_is_one_that_gives_no_numbers() {
    let model = tiny::model(tiny::llama(), 1);
    let base = Policy::open(Arc::clone(&model), None, PolicySettings::default()).unwrap();
    let policy = trained(&model, &adapter(AdapterKind::Lora));
    let difference = check::compare(&policy, &base).unwrap();
    let error = difference.within(Format::Mlx.limit()).unwrap_err();
    assert!(error.to_string().starts_with("the exported model is not the one of the run"), "{error}");
    assert!(check::Difference { largest: f32::NAN, ..difference }.within(4.0).is_err());
    assert!(difference.within(difference.largest).is_ok());
    assert_eq!(check::compare(&policy, &policy).unwrap().largest, 0.0);
}
