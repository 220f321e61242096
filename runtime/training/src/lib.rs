//! tunebox-training
