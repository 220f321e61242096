//! tunebox-sandbox
