//! Names, versions and limits that several parts of this crate share.

/// The largest component that is read, in bytes.
pub(crate) const MAX_COMPONENT_BYTES: u64 = 64 << 20;

/// The longest signature file that is read, in bytes.
pub(crate) const MAX_SIGNATURE_FILE_BYTES: u64 = 4 << 10;

/// The version of the SDK, which is the program's.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The Rust target of every method: WebAssembly that imports nothing by itself.
pub(crate) const TARGET: &str = "wasm32-unknown-unknown";

/// The file that makes a folder one of a method in Python.
pub const PYPROJECT: &str = "pyproject.toml";

/// The folder of the store in the home folder of this program.
pub(crate) const STORE_FOLDER: &str = "store";
