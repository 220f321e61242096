//! lora
