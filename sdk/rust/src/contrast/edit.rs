//! Removing a direction of the residual stream from a model.

use super::ablate_direction;
use crate::patch::Patch;
use crate::weights::{Form, Role, keep_as, project_out};
use crate::{Choice, Result, Settings, Tensor, hidden};

/// Settings of the edit W ← W − λ r̂ r̂ᵀ W of every matrix that writes the residual stream.
#[derive(Settings, Clone)]
pub struct Edit {
    /// How much of the direction is taken out: 1 all of it, 2 turns it round.
    #[setting(default = 1.0, above = 0.0, high = 2.0)]
    pub strength: f32,
    /// Give each row of an edited matrix its old length back.
    #[setting(default = false)]
    pub keep_norms: bool,
    /// Edit the embedding too, besides what attention and feed-forward parts write.
    #[setting(default = true)]
    pub embedding: bool,
    /// Output: edited `weights`, a LoRA `adapter`, or only the `direction` file.
    #[setting(default = "weights")]
    pub apply: Apply,
}

/// The output of an edit.
#[derive(Choice, Clone, Copy, PartialEq, Debug)]
pub enum Apply {
    /// Edited weights.
    Weights,
    /// A LoRA adapter, which leaves the embedding alone.
    Adapter,
    /// Only the direction, as a file.
    Direction,
}

impl Edit {
    /// Removes a direction `[dimension]` from the weights, or for `apply = "direction"` from the activations until the
    /// patches are dropped. Needs the grant of `weights`. Errors: a direction of length 0 or of another width.
    #[track_caller]
    pub fn apply(&self, direction: &Tensor) -> Result<Vec<Patch>> {
        let edit = |role, layer| project_out(role, layer, direction, self.strength, self.keep_norms);
        match self.apply {
            Apply::Direction => return ablate_direction(direction),
            Apply::Adapter => keep_as(Form::Adapter)?,
            Apply::Weights if self.embedding => edit(Role::Embedding, 0)?,
            Apply::Weights => {}
        }
        for layer in 0..hidden::layers() {
            edit(Role::AttentionOutput, layer)?;
            edit(Role::Down, layer)?;
        }
        Ok(Vec::new())
    }
}
