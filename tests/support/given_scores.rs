//! A run whose scores are given numbers, for rows whose first token says which numbers are meant.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tunebox_compute::fused::{Tap, Taps};
use tunebox_compute::{Device, Tensor};
use tunebox_model::Policy;
use tunebox_model::error::Error;
use tunebox_model::policy::{Scored, Seeds, View};
use tunebox_model::rows::Rows;
use tunebox_sandbox::{RunHooks, ScoreRequest, TrainState};

use super::tiny_policy::tiny_policy;

/// What one row scores: each number is shared out evenly among its targets, or stands at each of them.
#[derive(Clone, Debug)]
pub(crate) struct RowScore {
    /// log p of the row through the policy.
    pub(crate) policy: f64,
    /// log p of the row through the reference.
    pub(crate) reference: f64,
    /// log Σ p² at each target.
    pub(crate) log_sum_square: f64,
}

/// Gradients that arrived, by the first token of the row: one number a target.
pub(crate) type Arrived = Arc<Mutex<BTreeMap<u32, Vec<f32>>>>;

/// How often rows were scored.
pub(crate) type Passes = Arc<AtomicUsize>;

/// Hooks over a table of scores.
pub(crate) struct GivenScores {
    table: BTreeMap<u32, RowScore>,
    arrived: Arrived,
    passes: Passes,
}

impl GivenScores {
    /// A train state over scores by the first token of a row, the gradients that will arrive, and the passes made. With
    /// `joins`, rows that are scored for learning one after another share a pass.
    pub(crate) fn over(table: BTreeMap<u32, RowScore>, joins: bool) -> (TrainState<Self>, Arrived, Passes) {
        let (arrived, passes) = (Arrived::default(), Passes::default());
        let hooks = Self { table, arrived: arrived.clone(), passes: passes.clone() };
        (TrainState::new(tiny_policy(1, 16, if joins { 0.0 } else { 0.5 }), hooks), arrived, passes)
    }

    /// A tensor `[rows, width]` of one number a row at its targets.
    fn at_targets(&self, rows: &Rows, number: impl Fn(&RowScore, f64) -> f64) -> Result<Tensor, Error> {
        let (count, width) = (rows.count(), rows.width());
        let mut values = vec![0f32; count * width];
        for (row, (ids, marks)) in rows.ids.iter().zip(&rows.targets).enumerate() {
            let targets = marks.iter().filter(|mark| **mark).count() as f64;
            for at in (0..ids.len()).filter(|at| marks[*at]) {
                values[row * width + at] = number(&self.table[&ids[0]], targets) as f32;
            }
        }
        Ok(Tensor::from_vec(values, (count, width), &Device::Cpu)?)
    }
}

impl RunHooks for GivenScores {
    fn score(&mut self, policy: &Policy, rows: &Arc<Rows>, request: &ScoreRequest) -> Result<Scored, Error> {
        let (view, asked) = (&request.view, request.taps.set());
        self.passes.fetch_add(1, Ordering::Relaxed);
        let logprob = match view {
            View::Reference => self.at_targets(rows, |row, targets| row.reference / targets)?,
            _ => self.at_targets(rows, |row, targets| row.policy / targets)?,
        };
        let mut taps = Taps::default();
        for tap in asked.iter() {
            let values = match tap {
                Tap::Logprob => logprob.clone(),
                Tap::LogSumSquare => self.at_targets(rows, |row, _| row.log_sum_square)?,
                _ => self.at_targets(rows, |_, _| 1.0)?,
            };
            taps.insert(tap, values);
        }
        Ok(Scored::of_taps(view.clone(), rows.clone(), taps, policy.generation()))
    }

    fn backward(&mut self, _: &Policy, scored: &mut Scored, seeds: &Seeds) -> Result<(), Error> {
        let Some(seeds) = seeds.get(Tap::Logprob) else { return Ok(()) };
        let mut arrived = self.arrived.lock().unwrap();
        for ((ids, marks), seeds) in scored.rows.ids.iter().zip(&scored.rows.targets).zip(seeds.to_vec2::<f32>()?) {
            let own = marks.iter().zip(seeds).filter(|(mark, _)| **mark).map(|(_, seed)| seed).collect();
            arrived.insert(ids[0], own);
        }
        Ok(())
    }
}
