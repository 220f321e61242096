//! The contract for a method that is no component: the same paths and signatures, and behind each function a request
//! to the host over the connection of the thread (`crate::native`).

tunebox_mirror::mirror!("../../wit", "method");

/// The second world.
pub mod judging {
    tunebox_mirror::mirror!("../../wit", "verifier");
}
