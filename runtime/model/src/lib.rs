//! tunebox-model
