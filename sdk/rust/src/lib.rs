//! The library for authors of tunebox methods.
//!
//! ```
//! use tunebox::prelude::*;
//!
//! /// Supervised fine-tuning with a weight.
//! #[derive(Settings)]
//! pub struct Weighted {
//!     /// The factor of the loss.
//!     #[setting(default = 1.0, above = 0.0)]
//!     weight: f32,
//! }
//!
//! impl Method for Weighted {
//!     type Settings = Self;
//!
//!     fn init(settings: Self) -> Result<Self> {
//!         Ok(settings)
//!     }
//!
//!     fn step(&mut self, batch: &Batch) -> Result<()> {
//!         let rows = batch.rows("example")?;
//!         let scores = score_for_learning(&rows, Taps::empty(), 1.0)?;
//!         let loss = loss::token_mean(&-scores.logprob(), batch.window_targets("example")?);
//!         backward(&(loss * self.weight))
//!     }
//! }
//!
//! method! { Weighted, shape: "supervised", metrics: [] }
//! # fn main() {}
//! ```
//!
//! A method is a type that implements [`Method`] and is handed to [`method!`]. Its settings are a
//! struct with `#[derive(Settings)]`. Everything else here is the contract `tunebox:method` in
//! Rust, one module per interface; the numbers themselves stay on the host. The [`cookbook`] maps idioms of PyTorch and TRL
//! to it.
//!
//! Arithmetic on tensors and other calls that fail only by a mistake in the method panic, and the
//! host shows the line. Calls that cost a pass through the model, or that a run may refuse, return
//! a [`Result`].

// The macros name this crate as `tunebox`; so must its own modules.
extern crate self as tunebox;

#[cfg(not(target_arch = "wasm32"))]
pub mod bench;
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub mod bindings;
#[cfg(not(target_arch = "wasm32"))]
#[doc(hidden)]
#[path = "native/bindings.rs"]
pub mod bindings;
pub mod contrast;
#[cfg(doc)]
#[doc = include_str!("../COOKBOOK.md")]
pub mod cookbook {}
pub mod data;
pub mod environment;
pub mod error;
pub mod hidden;
pub mod learn;
pub mod loss;
#[doc(hidden)]
pub mod manifest;
pub mod method;
pub mod model;
#[cfg(not(target_arch = "wasm32"))]
#[doc(hidden)]
pub mod native;
pub mod optim;
pub mod optimizer;
pub mod pair;
pub mod patch;
pub mod policy_gradient;
pub mod prelude;
pub mod reward;
pub mod run;
pub mod sample;
pub mod settings;
pub mod teacher;
pub mod tensor;
pub mod text;
pub mod verifier;
pub mod weights;

pub use data::{Batch, Rows};
pub use environment::Environment;
pub use error::{Error, Result};
pub use method::Method;
pub use model::{Scores, Taps, View};
pub use pair::Pair;
pub use settings::{Choice, Settings};
pub use tensor::Tensor;
/// Declares the environment of a component, at the end of its `src/lib.rs`.
///
/// ```
/// # use tunebox::prelude::*;
/// # struct Silent;
/// # impl Environment for Silent {
/// #     type Settings = ();
/// #     fn init((): ()) -> Result<Self> { Ok(Self) }
/// #     fn respond(&self, _: &str, _: &str, _: &[Turn]) -> Reply { Reply::End(None) }
/// # }
/// environment! { Silent }
/// ```
pub use tunebox_derive::environment;
/// Declares the method of a component, at the end of its `src/lib.rs`.
///
/// ```
/// # use tunebox::prelude::*;
/// # struct Preference;
/// # impl Method for Preference {
/// #     type Settings = ();
/// #     fn init((): ()) -> Result<Self> { Ok(Self) }
/// #     fn step(&mut self, _: &Batch) -> Result<()> { Ok(()) }
/// # }
/// method! {
///     Preference,
///     shape: "preference",
///     batch: "window",
///     update: "method",
///     metrics: ["loss", "rewards-margins"],
///     paper: "arXiv:2305.18290",
/// }
/// ```
pub use tunebox_derive::method;
/// Declares the verifier of a component, at the end of its `src/lib.rs`.
///
/// ```
/// # use tunebox::prelude::*;
/// # struct Exact;
/// # impl Verifier for Exact {
/// #     type Settings = ();
/// #     fn init((): ()) -> Result<Self> { Ok(Self) }
/// #     fn verify(&self, _: &str, _: &str, _: &str) -> Option<f32> { None }
/// # }
/// verifier! { Exact }
/// ```
pub use tunebox_derive::verifier;
pub use tunebox_derive::{Choice, Settings};
pub use verifier::Verifier;
