//! The target that `TUNEBOX_FUZZ_TARGET` names, driven by libFuzzer.
#![no_main]

use std::sync::LazyLock;

use tunebox_fuzz::{Target, find};

static TARGET: LazyLock<&'static Target> = LazyLock::new(|| {
    let name = std::env::var("TUNEBOX_FUZZ_TARGET").unwrap_or_default();
    find(&name).unwrap_or_else(|| panic!("`TUNEBOX_FUZZ_TARGET` is `{name}`, which is no target"))
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| (TARGET.run)(data));
