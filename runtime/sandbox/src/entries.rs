//! What the handles of a method stand for: one Rust type for each kind of handle, so that none is taken for another.
//!
//! Nothing here acts; `state` creates, charges and frees the entries.
#![expect(unreachable_pub, reason = "the generated bindings re-export the types of their resources")]

use std::collections::BTreeMap;
use std::sync::Arc;

use tunebox_compute::budget::Reservation;
use tunebox_compute::fused::TapSet;
use tunebox_model::generate::Sampling;
use tunebox_model::policy::{DivergenceTo, View};
use tunebox_model::rows::Rows;

use crate::batch::Batch;
use crate::completions::Completions;
use tunebox_compute::ops::Node;

/// What a `tensor` handle stands for. `node` is `None` after a scope freed the tensor; later tensors have larger serial
/// numbers.
#[derive(Debug)]
pub struct TensorEntry {
    pub(crate) node: Option<Arc<Node>>,
    pub(crate) serial: u64,
}

/// What a `scope` handle stands for: the serial number of the first tensor after it was opened, and those of the
/// tensors that outlive it.
#[derive(Debug)]
pub struct ScopeEntry {
    pub(crate) opened: u64,
    /// The reservation for each tensor that outlives the scope, by the tensor's serial number.
    pub(crate) kept: BTreeMap<u64, Reservation>,
}

/// What a `rows` handle stands for: the rows, and the reservation of their bytes, which lasts as long as the handle.
#[derive(Debug)]
pub struct RowsEntry(
    pub(crate) Arc<Rows>,
    #[expect(dead_code, reason = "the bytes are given back when the handle is gone")] pub(crate) Reservation,
);

/// What a `batch` handle stands for.
#[derive(Debug)]
pub struct BatchEntry(pub(crate) Arc<Batch>);

/// What a `view` handle stands for.
#[derive(Debug)]
pub struct ViewEntry(pub(crate) View);

/// What a `taps` handle stands for: the requested taps, the log-probabilities always among them, and the view that a
/// divergence is computed to, if one is requested.
#[derive(Debug, Default)]
pub struct TapsEntry {
    pub(crate) set: TapSet,
    pub(crate) divergence: Option<DivergenceTo>,
}

/// What a `parameter` handle stands for.
#[derive(Clone, Debug)]
pub enum ParameterEntry {
    /// All parameters that the run trains, as one vector.
    All,
    /// The slot of this number among the parameters that the run trains.
    Slot(usize),
    /// The extra parameter of this name.
    Extra(String),
}

/// What a `perturbation` handle stands for: the number of the perturbation, counted from the start of the session.
#[derive(Debug)]
pub struct PerturbationEntry(pub(crate) u64);

/// What a `scores` handle stands for: the number of a record in `State::scores`.
#[derive(Debug)]
pub struct ScoresEntry(pub(crate) u64);

/// What a `patch` handle stands for: the policy's number of the patch, and the reservation of its vector's bytes.
#[derive(Debug)]
pub struct PatchEntry {
    pub(crate) number: u64,
    pub(crate) _bytes: Reservation,
}

/// What a `sampler` handle stands for.
#[derive(Debug)]
pub struct SamplerEntry {
    pub(crate) sampling: Sampling,
    /// The reservations of the list of allowed tokens, and of the stop texts.
    pub(crate) bytes: [Option<Reservation>; 2],
}

/// What a `completions` handle stands for.
#[derive(Debug)]
pub struct CompletionsEntry(pub(crate) Arc<Completions>);
