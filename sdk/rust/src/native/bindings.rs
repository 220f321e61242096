//! The contract for a method that is no component: the same paths and signatures, and behind each function a request to
//! the host over the connection of the thread (`crate::native`). A verifier asks for nothing, so there is none of it.

tunebox_mirror::mirror!();
