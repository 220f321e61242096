//! Changes to activations, active until they are dropped (`wit/patch.wit`).
//!
//! ```
//! # use tunebox::prelude::*;
//! # fn measure(rows: &Rows, direction: &Tensor) -> Result<()> {
//! use tunebox::hidden::Site;
//! use tunebox::patch;
//!
//! let before = score(&policy(), rows, Taps::empty(), 1.0)?.logprob();
//! let steered = patch::add(&[12], Site::ResidualAfter, direction, 4.0, false)?;
//! let after = score(&policy(), rows, Taps::empty(), 1.0)?.logprob(); // with the direction added
//! drop(steered); // the policy is as it was
//! metric("effect", (after - before).mean(All));
//! # Ok(())
//! # }
//! ```

use crate::bindings::tunebox::method::patch;
use crate::error::checked;
use crate::hidden::Site;
use crate::{Result, Tensor};

/// An active change of the policy's activations. Dropping it takes the change back.
#[must_use = "a patch that is dropped at once changes nothing"]
pub struct Patch {
    _handle: patch::Patch,
}

/// Adds `coefficient` · `vector` (`[dimension]`) at the site of these layers; `answers_only` leaves prompts unchanged.
#[track_caller]
pub fn add(layers: &[u32], site: Site, vector: &Tensor, coefficient: f32, answers_only: bool) -> Result<Patch> {
    let made = patch::add(layers, site, vector.handle(), coefficient, answers_only);
    checked(made).map(|handle| Patch { _handle: handle })
}

/// Removes the component along `direction` (`[dimension]`, of any length but 0) at the site of these layers.
#[track_caller]
pub fn ablate(layers: &[u32], site: Site, direction: &Tensor) -> Result<Patch> {
    checked(patch::ablate(layers, site, direction.handle())).map(|handle| Patch { _handle: handle })
}

/// Sets the component along `direction` (`[dimension]`) to `value` at the site of these layers.
#[track_caller]
pub fn project(layers: &[u32], site: Site, direction: &Tensor, value: f32) -> Result<Patch> {
    checked(patch::project(layers, site, direction.handle(), value)).map(|handle| Patch { _handle: handle })
}
