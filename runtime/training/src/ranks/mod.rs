//! A run on several ranks: processes that a launcher started, each with the whole model, of which each computes a share
//! of the rows ([`tunebox_model::ranks`]).
//!
//! The process that a launcher starts holds the [`Connection`] to the others; its worker, which may open no socket,
//! asks it to gather messages. Rank 0 shows the run and writes its folder; the other ranks write into a temporary
//! folder. `plan` plans the run on every rank and compares the plans; `worker/on_ranks.rs` carries it out.

mod connection;
mod group;
mod plan;

pub use connection::{Connection, Traffic};
pub(crate) use connection::{HEADER_BYTES, lock};
pub(crate) use group::{Gathered, GatheringRanks, connected_ranks};
pub(crate) use plan::{agree_on_step, plan_on_ranks};
