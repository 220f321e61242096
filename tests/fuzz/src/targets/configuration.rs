//! `config.json`, and the one that is written of what was read.

use std::path::Path;

use serde_json::Value;
use tunebox_model::configuration::Configuration;

use crate::Target;

pub(super) const TARGET: Target = Target {
    name: "configuration",
    run,
    words: &[
        "\"model_type\":",
        "\"gemma3_text\"",
        "\"phi3\"",
        "\"smollm3\"",
        "\"head_dim\":",
        "\"num_key_value_heads\":",
        "\"partial_rotary_factor\":",
        "\"original_max_position_embeddings\":",
        "\"rope_scaling\":{",
        "\"rope_parameters\":{",
        "\"rope_type\":\"yarn\"",
        "\"type\":\"longrope\"",
        "\"factor\":",
        "\"layer_types\":[",
        "\"sliding_window\":",
        "\"query_pre_attn_scalar\":",
        "null",
        "1e-300",
        "1e300",
        "-1",
    ],
    longest: 8 << 10,
    quick: 3_000,
};

/// Sizes that weights can be counted of, as many frequencies as pairs of features turn, a `config.json` that names the
/// same family; or an error.
fn run(bytes: &[u8]) {
    let Ok(config) = serde_json::from_slice::<Value>(bytes) else { return };
    let Ok(found) = Configuration::from_hugging_face(&config, Path::new("config.json")) else { return };
    assert!(found.parameter_count() > 0, "a model without weights");
    for rope in &found.ropes {
        for frequencies in [Some(rope.frequencies(found.rotated)), rope.long_frequencies(found.rotated)] {
            let sound = |frequency: &f64| frequency.is_finite() && *frequency > 0.0;
            assert!(frequencies.is_none_or(|all| all.len() == found.rotated / 2 && all.iter().all(sound)), "{rope:?}");
        }
    }
    assert_eq!(found.to_hugging_face()["model_type"], found.family.as_str());
}
