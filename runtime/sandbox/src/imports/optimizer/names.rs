//! What the name of a parameter in the files of PEFT or of the model says of it.

/// Returns the role of a slot by the end of its name in PEFT's or the model's files: `lora-a`, `lora-b`, `magnitude`,
/// `bias`, or `weight` for any other name.
pub(super) fn role_of(name: &str) -> &'static str {
    match name {
        _ if name.ends_with(".lora_A.weight") => "lora-a",
        _ if name.ends_with(".lora_B.weight") => "lora-b",
        _ if name.ends_with("_magnitude_vector") => "magnitude",
        _ if name.ends_with(".bias") => "bias",
        _ => "weight",
    }
}

/// Returns the block of a slot: the number after the part `layers` in its name. `None` for a name without such a part,
/// or with something else than a number after it.
pub(super) fn layer_of(name: &str) -> Option<u32> {
    let mut parts = name.split('.').skip_while(|part| *part != "layers");
    parts.nth(1)?.parse().ok()
}
