//! Compiled methods kept between runs (`compute::kept` says how), each under what identifies it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use sha2::{Digest, Sha256};
use tunebox_compute::code_cache::CodeCache;
use tunebox_foundation::hexadecimal::hexadecimal;

use crate::precompiled::Trusted;

/// Changes whenever the engine's settings change in a way that their own hash does not show.
const VERSION: u32 = 1;

/// The largest entry, in bytes.
const LARGEST: u64 = 256 << 20;

/// Bytes of all entries together.
const MOST: u64 = 256 << 20;

/// What identifies compiled code: the component, the engine's settings, this format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key(String);

impl Key {
    /// The key of a component under an engine.
    pub(crate) fn of(engine: &wasmtime::Engine, component: &[u8]) -> Self {
        // A new hasher of this kind has the same keys in every process.
        let mut settings = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut settings);
        VERSION.hash(&mut settings);
        Self(format!("{}-{:016x}", hexadecimal(&Sha256::digest(component)), settings.finish()))
    }
}

/// A folder of compiled code.
#[derive(Debug)]
pub(crate) struct Cache(CodeCache);

impl Cache {
    /// Opens the folder, and makes it if need be. The error says why it cannot be trusted or used.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        CodeCache::open(path, "tunebox compiled method", LARGEST, MOST).map(Self)
    }

    /// The code under a key; an entry that is not what this program wrote is removed.
    pub(crate) fn get(&self, key: &Key) -> Option<Trusted> {
        self.0.get(&key.0).map(Trusted::own)
    }

    /// Keeps code under a key. Whatever goes wrong, the next run compiles again.
    pub(crate) fn put(&self, key: &Key, code: &Trusted) {
        self.0.put(&key.0, code.bytes());
    }

    /// Removes the entry of a key.
    pub(crate) fn remove(&self, key: &Key) {
        self.0.remove(&key.0);
    }
}
