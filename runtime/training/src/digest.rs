//! SHA-256 in hexadecimal: how a run names bytes.

pub(crate) use tunebox_foundation::hexadecimal::{from_hexadecimal, hexadecimal};
pub(crate) use tunebox_package::digest::sha256 as digest;
