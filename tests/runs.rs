//! What a run promises: the same bits after any stop, nothing half-written, nothing overwritten.

mod best;
mod data;
mod extending;
mod folder;
mod numbers;
mod replay;
mod reports;
mod resuming;
mod revising;
mod said;
mod strangers;

use crate::support::tiny_run::Workspace;

const ADAPTER: &str = "adapter_model.safetensors";

/// Everything that could lead a resumed run astray: epochs, packing, accumulation, dropout, warm-up.
const HARD: [&str; 8] = [
    "train.steps=20",
    "train.save-every=5",
    "train.batch=2",
    "train.accumulation=2",
    "train.warmup=3",
    "train.adapter.dropout=0.1",
    "data.packing=true",
    "data.max-length=96",
];

fn whole(place: &Workspace) -> Vec<u8> {
    place.train("whole", &HARD).unwrap();
    place.bytes("whole", ADAPTER)
}

fn losses(place: &Workspace, run: &str) -> Vec<f64> {
    place.metrics(run).iter().filter_map(|row| row.get("loss")?.as_f64()).collect()
}
