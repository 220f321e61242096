//! The parts of a decoder as fused operations, each with its gradient written by hand.
//!
//! Activations are contiguous `[tokens, features]`, f32 or bf16, sequences packed one after another ([`Segments`]);
//! weights are `[out, in]` in any stored format, converted block by block inside a product or read without conversion.
//! An operation is one function that checks its operands and has a branch for the CPU and one for accelerators; those
//! of `experts` run on the CPU alone. Work is cut into fixed tasks, so that results do not depend on the number of
//! threads. On an accelerator an operation queues kernels and returns before they run, unless its doc says that it
//! waits; it also fails with [`Error::Full`](crate::Error::Full) if there is no memory, or if a kernel does not compile
//! or start.

mod attention;
mod backend;
mod cache;
mod chunks;
mod columns;
mod device;
mod dot_tile;
mod dropout;
mod embedding;
mod experts;
mod few_tokens;
mod gated;
mod head;
mod host;
mod indices;
mod integer;
mod linear;
mod low_rank;
mod norm;
mod patch;
mod prefetch;
mod processor;
mod product;
#[cfg(test)]
#[path = "tests/reference.rs"]
pub(crate) mod reference;
mod residual;
mod rope;
mod row_norms;
mod rows;
mod sampling;
mod scratch;
mod segments;
mod simd;
mod stored;
mod taps;
mod unpack;

pub use attention::{AttentionShape, attention, attention_backward};
pub use cache::{KvCache, KvCachePass};
pub use columns::{concat_columns, scale_columns, scale_columns_gradient, split_columns};
pub use dropout::Dropout;
pub use embedding::{embed, embed_gradient};
pub use experts::{ExpertTokens, Routes, route, row_dots, scale_rows};
pub use few_tokens::{LinearInput, linear_few_tokens};
pub use gated::{Activation, gated, gated_backward, gated_backward_with_result};
pub use head::{
    DIVERGENCE_ROWS, Divergences, GROUPS as HEAD_GROUPS, HeadInput, HeadOptions, HeadTaps, ROWS as HEAD_ROWS,
    TILE as HEAD_TILE, TapGradients, head_divergence, head_taps, head_taps_backward, head_taps_with_gradient, logits,
    scale_head_gradient,
};
pub use indices::Indices;
pub use linear::{add_linear_input_gradient, bias_gradient, linear, linear_input_gradient, linear_weight_gradient};
pub use low_rank::{LowRank, adapted_input_gradient, adapted_linear, reduced_gradient};
pub use norm::{rms_norm, rms_norm_backward, rms_norm_weight_gradient};
pub use patch::{add_vector, remove_component, set_component};
pub use processor::{instruction_sets, vector_lanes};
pub use product::{bf16_instruction, bf16_is_faster};
pub use residual::add;
pub use rope::{RopeTable, rope};
pub use row_norms::{adapted_row_norms, divide};
pub use rows::{concat_rows, gather_rows, scatter_rows, to_host_f32};
pub use sampling::{SampledToken, SamplingOptions, TokenWeights, map_rows, sample_tokens, token_weights};
pub use segments::Segments;
pub use taps::{Tap, TapSet, Taps};

pub(crate) use host::Floats;
pub(crate) use stored::unpack_rows;
pub(crate) use unpack::rows_on_device;
