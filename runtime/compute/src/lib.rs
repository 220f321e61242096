//! tunebox-compute
