//! The metadata of a GGUF file: that of the file which the model came from, or a new one for a model from a folder.

use std::io::BufReader;
use std::path::Path;

use candle_core::quantized::gguf_file::{Content, Value};
use tunebox_foundation::bounded;
use tunebox_foundation::explain::Explanation;

use super::quantization::Quantization;
use crate::Model;
use crate::configuration::{Configuration, RopeScaling, RopeSetting};
use crate::error::{Error, Result};
use crate::families::{gguf_architecture, gguf_keys};
use crate::weights::gguf::write::TypedMetadata;

/// The key of the architecture, which other keys begin with.
const ARCHITECTURE: &str = "general.architecture";

/// Keys about the number formats and the layout of a file, which are written anew or do not hold for the new file.
const REPLACED: [&str; 3] = ["general.alignment", "general.file_type", "general.quantization_version"];
/// Beginnings of such keys.
const DROPPED: [&str; 2] = ["quantize.", "split."];

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
/// When no metadata is written for the family or the tokenizer, or the model has a part that the family has no key for.
pub(super) fn of_model(model: &Model, quantization: Quantization) -> Result<TypedMetadata> {
    let configuration = &model.configuration;
    let of_family = gguf_keys(configuration).map_err(|why| refusal(model, why))?;
    let text = |key: &str, text: &str| (key.to_owned(), Value::String(text.to_owned()));
    let architecture = gguf_architecture(configuration);
    let name = Path::new(&model.name).file_name().unwrap_or_default().to_string_lossy();
    let mut metadata =
        vec![text(ARCHITECTURE, architecture), text("general.type", "model"), text("general.name", &name)];
    metadata.extend(number_format(quantization));
    let own = sizes(configuration)?.into_iter().chain(of_family).chain(rotation(configuration)?);
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

/// The error for a model from a folder that is not written as GGUF.
fn refusal(model: &Model, why: impl Into<String>) -> Error {
    let what = format!("`{}` ({}) cannot be exported as GGUF", model.name, model.configuration.family);
    let hint = "export it with `--to hf` and convert that folder by llama.cpp's `convert_hf_to_gguf.py`";
    Explanation::new("export", what).with_why(why).with_hint(hint).into()
}

/// The keys of the sizes of a model, without the architecture before them. Errors: a size above 32 bits.
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
    let mut keys = Vec::new();
    for (key, size) in whole.into_iter().chain(experts) {
        let large = || Error::Unsupported(format!("`{key}` is {size}, above what GGUF files hold"));
        keys.push((key, Value::U32(u32::try_from(size).map_err(|_| large())?)));
    }
    keys.push(("attention.layer_norm_rms_epsilon", Value::F32(configuration.norm_epsilon as f32)));
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
