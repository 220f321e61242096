//! The metadata of a GGUF file: that of the file which the model came from, or a new one for a model from a folder.

use std::io::BufReader;
use std::path::Path;

use candle_core::quantized::gguf_file::{Content, Value};
use tunebox_foundation::bounded;
use tunebox_foundation::explain::Explanation;

use super::quantization::Quantization;
use crate::Model;
use crate::configuration::{Configuration, LayerKind, RopeScaling, RopeSetting};
use crate::error::{Error, Result};
use crate::families::{OLMO3_PERIOD, gguf_architecture};
use crate::weights::gguf::write::TypedMetadata;

/// The key of the architecture, which other keys begin with.
const ARCHITECTURE: &str = "general.architecture";

/// Keys about the number formats and the layout of a file, which are written anew or do not hold for the new file.
const REPLACED: [&str; 3] = ["general.alignment", "general.file_type", "general.quantization_version"];
/// Beginnings of such keys.
const DROPPED: [&str; 2] = ["quantize.", "split."];

/// The families for which metadata is written. llama.cpp needs more keys, or another kind of tokenizer, for the others.
const FAMILIES: [&str; 10] =
    ["llama", "mixtral", "qwen2", "qwen3", "qwen3_moe", "olmoe", "olmo2", "olmo3", "granite", "glm4"];

/// The metadata of the GGUF file `path`, with the number format of the new file. Sorted by key, so that equal models
/// are equal bytes.
///
/// # Errors
/// When the file cannot be read.
pub(super) fn of_file(path: &Path, quantization: Quantization) -> Result<TypedMetadata> {
    let file = bounded::open(path).map_err(|source| Error::file(path, source))?;
    let content = Content::read(&mut BufReader::new(file))?;
    let is_kept = |key: &str| !REPLACED.contains(&key) && !DROPPED.iter().any(|start| key.starts_with(start));
    let mut metadata: TypedMetadata = content.metadata.into_iter().filter(|(key, _)| is_kept(key)).collect();
    metadata.extend(number_format(quantization));
    metadata.sort_by(|(one, _), (other, _)| (one != ARCHITECTURE, one).cmp(&(other != ARCHITECTURE, other)));
    Ok(metadata)
}

/// The metadata of a model from a folder: architecture, sizes, rotation, tokenizer and chat template.
///
/// # Errors
/// When the family is none of [`FAMILIES`], the model has a part that the family has no key for, or its tokenizer is
/// none that GGUF metadata is written for.
pub(super) fn of_model(model: &Model, quantization: Quantization) -> Result<TypedMetadata> {
    let configuration = &model.configuration;
    check(model)?;
    let text = |key: &str, text: &str| (key.to_owned(), Value::String(text.to_owned()));
    let architecture = gguf_architecture(configuration);
    let name = Path::new(&model.name).file_name().unwrap_or_default().to_string_lossy();
    let mut metadata =
        vec![text(ARCHITECTURE, architecture), text("general.type", "model"), text("general.name", &name)];
    metadata.extend(number_format(quantization));
    let own = sizes(configuration)?.into_iter().chain(rotation(configuration)?);
    metadata.extend(own.map(|(key, value)| (format!("{architecture}.{key}"), value)));
    metadata.extend(model.tokenizer()?.to_gguf(configuration)?);
    metadata.extend(model.template.iter().map(|template| text("tokenizer.chat_template", template.source())));
    Ok(metadata)
}

/// Computes the tensors, by name, that hold no weights of a model from a folder: `rope_freqs.weight` with the divisors
/// of the rotation's frequencies, if the rotation is scaled as in Llama 3; else none.
pub(super) fn tensors(model: &Model) -> Vec<(String, Vec<f32>)> {
    let configuration = &model.configuration;
    let scaled = configuration.ropes.iter().filter(|rope| matches!(rope.scaling, RopeScaling::Llama3 { .. }));
    let divisors = |rope: &RopeSetting| {
        let plain = RopeSetting::plain(rope.theta).frequencies(configuration.rotated);
        let scaled = rope.frequencies(configuration.rotated);
        plain.iter().zip(&scaled).map(|(plain, scaled)| (plain / scaled) as f32).collect()
    };
    scaled.map(|rope| ("rope_freqs.weight".to_owned(), divisors(rope))).collect()
}

/// The keys that state the file's choice of number formats, and version 2 of GGML's quantized formats.
fn number_format(quantization: Quantization) -> [(String, Value); 2] {
    [
        ("general.file_type".into(), Value::U32(quantization.file_type())),
        ("general.quantization_version".into(), Value::U32(2)),
    ]
}

/// Fails if the keys of the family cannot say everything about the model: the family is none of [`FAMILIES`], or
/// llama.cpp has other windows or rotations for it ([`refuse_layers`]), normalizes the weights of its experts
/// otherwise, or needs an output head that the model does not have.
fn check(model: &Model) -> Result<()> {
    let configuration = &model.configuration;
    let family = configuration.family.as_str();
    let why = if !FAMILIES.contains(&family) {
        format!("the metadata of a GGUF file is written for {} only", FAMILIES.join(", "))
    } else if let Some(why) = refuse_layers(configuration) {
        why.into()
    } else if configuration.experts.is_some_and(|experts| experts.normalized != (family != "olmoe")) {
        "llama.cpp normalizes the weights of this family's experts otherwise than `norm_topk_prob` says".into()
    } else if matches!(family, "olmo2" | "olmo3") && configuration.tied {
        "llama.cpp needs an output head apart from the embedding in this family".into()
    } else {
        return Ok(());
    };
    Err(refusal(model, why))
}

/// Says why llama.cpp cannot run the windows and rotations of the model's layers: one has an attention window shorter
/// than the context, they have several rotations, or one has none; or they are not those of OLMo 3. `None` if it can.
fn refuse_layers(configuration: &Configuration) -> Option<&'static str> {
    let kinds = &configuration.layer_kinds;
    let is_windowed = |window: Option<usize>| window.is_some_and(|window| window < configuration.max_positions);
    if configuration.family == "olmo3" {
        let why = "llama.cpp has three local layers before each global one in this family, and one base of rotations";
        return (!are_of_olmo3(configuration)).then_some(why);
    }
    if kinds.iter().any(|kind| is_windowed(kind.window)) {
        return Some("llama.cpp has no attention window for this family");
    }
    let is_one = configuration.ropes.len() == 1 && kinds.iter().all(|kind| kind.rope == Some(0));
    (!is_one).then_some("its layers have several rotations or none")
}

/// Whether windows and rotations are those that llama.cpp gives a model of OLMo 3: one window and a rotation without
/// scaling on local layers, three of them before each global one, and the same base for both rotations.
fn are_of_olmo3(configuration: &Configuration) -> bool {
    let window = configuration.layer_kinds.first().and_then(|kind| kind.window);
    let is_right = |(layer, kind): (usize, &LayerKind)| match (layer + 1).is_multiple_of(OLMO3_PERIOD) {
        true => *kind == LayerKind::FULL,
        false => *kind == LayerKind { window, rope: Some(1) },
    };
    let [global, local] = configuration.ropes.as_slice() else { return false };
    window.is_some()
        && *local == RopeSetting::plain(global.theta)
        && configuration.layer_kinds.iter().enumerate().all(is_right)
}

/// The error for a model from a folder that is not written as GGUF.
fn refusal(model: &Model, why: impl Into<String>) -> Error {
    let what = format!("`{}` ({}) cannot be exported as GGUF", model.name, model.configuration.family);
    let hint = "export it with `--to hf` and convert that folder by llama.cpp's `convert_hf_to_gguf.py`";
    Explanation::new("export", what).with_why(why).with_hint(hint).into()
}

/// The keys of the sizes and multipliers of a model, without the architecture before them. Errors: a size above 32
/// bits.
fn sizes(configuration: &Configuration) -> Result<Vec<(&'static str, Value)>> {
    let whole = [
        ("context_length", configuration.max_positions),
        ("embedding_length", configuration.hidden),
        ("block_count", configuration.layers),
        ("feed_forward_length", configuration.intermediate),
        ("attention.head_count", configuration.heads),
        ("attention.head_count_kv", configuration.kv_heads),
        ("attention.key_length", configuration.head_dim),
        ("attention.value_length", configuration.head_dim),
        ("rope.dimension_count", configuration.rotated),
        ("vocab_size", configuration.vocabulary),
    ];
    let experts = configuration.experts.map_or_else(Vec::new, |experts| {
        vec![
            ("expert_count", experts.count),
            ("expert_used_count", experts.active),
            ("expert_feed_forward_length", experts.intermediate),
        ]
    });
    // In the other families a window as long as the context says nothing.
    let window = configuration.layer_kinds.iter().find_map(|kind| kind.window);
    let window = window.filter(|_| configuration.family == "olmo3").map(|window| ("attention.sliding_window", window));
    let mut keys = Vec::new();
    for (key, size) in whole.into_iter().chain(experts).chain(window) {
        let large = || Error::Unsupported(format!("`{key}` is {size}, above what GGUF files hold"));
        keys.push((key, Value::U32(u32::try_from(size).map_err(|_| large())?)));
    }
    keys.push(("attention.layer_norm_rms_epsilon", Value::F32(configuration.norm_epsilon as f32)));
    if configuration.family == "granite" {
        keys.extend([
            ("embedding_scale", Value::F32(configuration.embedding_scale)),
            ("attention.scale", Value::F32(configuration.attention_scale)),
            ("residual_scale", Value::F32(configuration.residual_scale)),
            ("logit_scale", Value::F32(configuration.logit_divisor)),
        ]);
    }
    Ok(keys)
}

/// The keys of the model's first rotation, its base and its scaling, without the architecture before them; none if the
/// model has no rotation. Llama 3's scaling has no keys, since its divisors are a tensor. Errors: a scaling that
/// llama.cpp has no keys for.
fn rotation(configuration: &Configuration) -> Result<Vec<(&'static str, Value)>> {
    let Some(rope) = configuration.ropes.first() else { return Ok(Vec::new()) };
    let number = |value: f64| Value::F32(value as f32);
    let kind = |kind: &str| ("rope.scaling.type", Value::String(kind.into()));
    let mut keys = vec![("rope.freq_base", number(rope.theta))];
    match &rope.scaling {
        RopeScaling::None | RopeScaling::Llama3 { .. } => {}
        RopeScaling::Linear { factor } => keys.extend([kind("linear"), ("rope.scaling.factor", number(*factor))]),
        RopeScaling::Yarn { factor, original, beta_fast, beta_slow, truncate: true, .. } => keys.extend([
            kind("yarn"),
            ("rope.scaling.factor", number(*factor)),
            ("rope.scaling.original_context_length", Value::U32(u32::try_from(*original).unwrap_or(u32::MAX))),
            ("rope.scaling.yarn_beta_fast", number(*beta_fast)),
            ("rope.scaling.yarn_beta_slow", number(*beta_slow)),
        ]),
        other => {
            let what = format!("GGUF files have no keys for this scaling of rotations: {other:?}");
            return Err(Error::Unsupported(what));
        }
    }
    Ok(keys)
}
