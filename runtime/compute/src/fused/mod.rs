//! The parts of a decoder as fused operations, each with its gradient written by hand.
//!
//! Activations are contiguous f32 `[tokens, features]`, sequences packed one after another ([`Segments`]); weights
//! are `[out, in]` in any stored format, widened block by block inside a product or met as they are. Work is cut into fixed
//! tasks, so that results do not depend on the number of threads. Which parts make a model is the model's business.

mod attention;
mod choice;
mod embedding;
mod fetch;
mod fixed;
mod gated;
mod head;
mod host;
mod lanes;
mod linear;
mod low_rank;
mod norm;
mod product;
mod residual;
mod rope;
mod scratch;
mod segments;
mod skinny;
mod square;
mod stored;
#[cfg(test)]
mod twin;
mod unpack;

pub use attention::{AttentionShape, attention, attention_backward, attention_cached};
pub use choice::{Likelihoods, each_row, likelihoods};
pub use embedding::{embed, embed_gradient};
pub use gated::{Activation, gated, gated_backward};
pub use head::{
    GROUPS as HEAD_GROUPS, HeadOptions, HeadSeeds, HeadTaps, ROWS as HEAD_ROWS, TapSet, head_slopes_backward,
    head_taps, head_taps_and_slopes, head_taps_backward, logits,
};
pub use linear::{bias_gradient, linear, linear_input_gradient, linear_weight_gradient};
pub use low_rank::{AdaptedGradient, LowRank, adapted_linear, adapted_linear_backward};
pub use norm::{rms_norm, rms_norm_backward, rms_norm_weight_gradient};
pub use residual::add;
pub use rope::{RopeTable, rope};
pub use segments::Segments;
pub use skinny::{skinny_adapted_linear, skinny_linear};

pub(crate) use stored::unpacked;
