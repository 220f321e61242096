//! How a direction of the stream is taken out of a model, and what becomes of it.

use super::ablated;
use crate::patch::Patch;
use crate::weights::{Form, Role, keep_as, project_out};
use crate::{Choice, Result, Settings, Tensor, hidden};

/// W ← W − λ r̂ r̂ᵀ W for every matrix that writes the stream, and what people may set about it.
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
    /// What becomes of it: other `weights`, an `adapter`, or the `direction` alone.
    #[setting(default = "weights")]
    pub apply: Apply,
}

/// What becomes of an edit.
#[derive(Choice, Clone, Copy, PartialEq, Debug)]
pub enum Apply {
    /// Other weights.
    Weights,
    /// A low-rank adapter of the old ones, which leaves the embedding alone.
    Adapter,
    /// Nothing: the direction is the artifact.
    Direction,
}

impl Edit {
    /// Takes a direction `[dimension]` out, with `apply = "direction"` only as long as the patches live.
    /// Needs the grant of `weights`. Errors: a direction that has no length or another width than the stream.
    #[track_caller]
    pub fn apply(&self, direction: &Tensor) -> Result<Vec<Patch>> {
        let edit = |role, layer| project_out(role, layer, direction, self.strength, self.keep_norms);
        match self.apply {
            Apply::Direction => return ablated(direction),
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
