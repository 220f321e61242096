//! tunebox-package
