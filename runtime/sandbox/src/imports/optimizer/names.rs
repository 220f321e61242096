//! What the name of a parameter in the files of PEFT or of the model says of it.

/// What a slot is, by the end of its name in PEFT's or the model's files.
pub(super) fn role_of(name: &str) -> &'static str {
    match name {
        _ if name.ends_with(".lora_A.weight") => "lora-a",
        _ if name.ends_with(".lora_B.weight") => "lora-b",
        _ if name.ends_with("_magnitude_vector") => "magnitude",
        _ if name.ends_with(".bias") => "bias",
        _ => "weight",
    }
}

/// The block of a slot, by the number after `layers` in its name.
pub(super) fn layer_of(name: &str) -> Option<u32> {
    let mut parts = name.split('.').skip_while(|part| *part != "layers");
    parts.nth(1)?.parse().ok()
}
