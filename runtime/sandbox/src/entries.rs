//! What the handles of a method stand for: one Rust type a kind of handle, so that none passes for another.
//!
//! Nothing here acts; `state` makes, charges and frees the entries.
#![expect(unreachable_pub, reason = "the generated bindings re-export the types of their resources")]

use std::collections::BTreeSet;
use std::sync::Arc;

use tunebox_compute::Tensor;
use tunebox_compute::budget::Reservation;
use tunebox_model::policy::View;
use tunebox_model::rows::Rows;

use crate::batch::Batch;
use crate::completions::Completions;
use crate::requests::Sampler;

/// A tensor of the method with the bytes reserved for it; clones share both.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// The numbers.
    pub(crate) tensor: Tensor,
    /// The bytes that stay taken while this lives.
    pub(crate) charge: Arc<Charge>,
    /// The longest chain of operations below this tensor that a gradient would walk.
    pub(crate) depth: u32,
}

/// Reserved tensor bytes, released when the last tensor that needs them is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    _own: Reservation,
    _parents: Vec<Arc<Charge>>,
}

impl Charge {
    /// Joins the bytes of a tensor (`own`) with the charges of the tensors that its gradient needs (`parents`); all
    /// stay reserved until this is dropped.
    pub(crate) fn new(own: Reservation, parents: Vec<Arc<Charge>>) -> Self {
        Self { _own: own, _parents: parents }
    }
}

/// What a `tensor` handle stands for; empty after its scope freed it.
#[derive(Debug)]
pub struct TensorEntry {
    pub(crate) held: Option<Held>,
    pub(crate) serial: u64,
}

/// What a `scope` handle stands for: the serial number of the first tensor after it was opened, and those of the
/// tensors that outlive it.
#[derive(Debug)]
pub struct ScopeEntry {
    pub(crate) opened: u64,
    pub(crate) kept: BTreeSet<u64>,
}

/// What a `rows` handle stands for, and the bytes of rows that the method had made.
#[derive(Debug)]
pub struct RowsEntry(
    pub(crate) Arc<Rows>,
    #[expect(dead_code, reason = "the bytes are given back when the handle is gone")] pub(crate) Option<Reservation>,
);

/// What a `batch` handle stands for.
#[derive(Debug)]
pub struct BatchEntry(pub(crate) Arc<Batch>);

/// What a `view` handle stands for.
#[derive(Debug)]
pub struct ViewEntry(pub(crate) View);

/// What a `scores` handle stands for: the number of a record of `scores`.
#[derive(Debug)]
pub struct ScoresEntry(pub(crate) u64);

/// What a `patch` handle stands for: the policy's number of the patch.
#[derive(Debug)]
pub struct PatchEntry(pub(crate) u64);

/// What a `sampler` handle stands for.
#[derive(Debug)]
pub struct SamplerEntry(pub(crate) Sampler);

/// What a `completions` handle stands for.
#[derive(Debug)]
pub struct CompletionsEntry(pub(crate) Arc<Completions>);
