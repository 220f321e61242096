//! Architectures that no family reads, though one of a similar name is read.

/// What tunebox does not run of these architectures, by their names in `config.json` and in GGUF files.
const PARTS: [(&[&str], &str); 7] = [
    (&["granitemoe", "granitemoeshared"], "experts that are one tensor, or one that every token runs through"),
    (&["granitemoehybrid", "granitehybrid", "bamba"], "Mamba layers, or experts that are one tensor"),
    (&["glm4_moe", "glm4moe"], "a router of sigmoids and an expert that every token runs through"),
    (&["qwen2_moe", "qwen2moe"], "an expert that every token runs through"),
    (&["qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen35", "qwen35moe", "qwen3_next", "qwen3next"], "linear attention"),
    (&["gemma4", "gemma4_text"], "embeddings for each layer, and layers that share keys and values"),
    (&["gpt_oss", "gpt-oss"], "attention sinks, and experts with biases"),
];

/// Says why the architecture `found` is not read; `known` are the names of those that are.
pub(super) fn explain(found: &str, known: &[&str]) -> String {
    let expected = format!("expected one of {}", known.join(", "));
    match PARTS.iter().find(|(names, _)| names.contains(&found)) {
        Some((_, part)) => format!("such models have {part}, which tunebox does not run; {expected}"),
        None => expected,
    }
}
