//! tunebox-derive
