//! The model under training with its optimiser and schedule: what a session works on.
//!
//! Clipping, the rate of an update and the guard against numbers that are not finite are
//! here; when an update is due is the loop's business, and a method's if it asks.

mod editing;
pub(crate) mod published;
pub(crate) mod reference;
mod sampling;
mod standing;

use std::collections::BTreeMap;
use std::sync::Arc;

use tunebox_compute::fused::{Tap, TapSet};
use tunebox_compute::optimizer::AdamW;
use tunebox_compute::schedule::Schedule;
use tunebox_compute::{Device, Error as ComputeError, Tensor};
use tunebox_model::error::Error;
use tunebox_model::policy::{Policy, Scored, Seeds, View};
use tunebox_model::rows::Rows;
use tunebox_sandbox::{Direction, Learner};

pub(crate) use sampling::Desk;
pub(crate) use standing::Standing;

use reference::References;

/// How fast a run learns.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    /// The peak rate.
    pub rate: f64,
    /// How the rate moves.
    pub schedule: Schedule,
    /// Steps over which it rises from 0.
    pub warmup: u64,
    /// Steps of the run.
    pub steps: u64,
    /// The largest gradient norm; 0 for none.
    pub clip: f64,
    /// Leave an update out when its gradient is not finite.
    pub skip_non_finite: bool,
}

impl Pace {
    /// The rate of a step, counted from 0.
    pub(crate) fn at(&self, step: u64) -> f64 {
        self.rate * self.schedule.factor(step, self.warmup, self.steps)
    }
}

/// What the updates of one step did.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Progress {
    /// The norm of the last gradient, before clipping.
    pub(crate) norm: f64,
    /// Updates made.
    pub(crate) updates: u32,
    /// Updates left out because their gradient was not finite.
    pub(crate) skipped: u32,
}

/// The policy, its optimiser, and its place in the run.
pub(crate) struct Student {
    pub(crate) policy: Policy,
    pub(crate) optimizer: AdamW,
    /// Flat copies of the trained numbers on the CPU, as they were when a method took a snapshot.
    pub(crate) snapshots: BTreeMap<String, Tensor>,
    /// Directions that the method handed to the artifact, by layer.
    pub(crate) published: BTreeMap<usize, Direction>,
    /// What it writes with, and who judges it.
    pub(crate) desk: Desk,
    /// What is known of the reference; none scores everything anew.
    pub(crate) references: Option<References>,
    pace: Pace,
    step: u64,
    accumulated: bool,
    progress: Progress,
    fault: Option<&'static str>,
}

impl Student {
    /// A student before its first step.
    pub(crate) fn new(policy: Policy, optimizer: AdamW, pace: Pace) -> Self {
        Self {
            policy,
            optimizer,
            snapshots: BTreeMap::new(),
            desk: Desk::default(),
            published: BTreeMap::new(),
            references: None,
            pace,
            step: 0,
            accumulated: false,
            progress: Progress::default(),
            fault: None,
        }
    }

    /// The same student at a desk: it may write, and is judged.
    pub(crate) fn at(mut self, desk: Desk) -> Self {
        self.desk = desk;
        self
    }

    /// Begins a step, counted from 0; the account of the one before is forgotten.
    pub(crate) fn begin(&mut self, step: u64) {
        self.step = step;
        // Dropout masks are counted anew: a run that is resumed after a step without an update draws the same ones.
        self.policy.resume_at(self.policy.generation());
        self.progress = Progress::default();
        self.fault = None;
        self.desk.begin();
    }

    /// What the updates of the present step did.
    pub(crate) fn progress(&self) -> Progress {
        self.progress
    }

    /// What was not finite in the present step: `loss` or `gradient`.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        self.fault
    }

    fn not_finite(&mut self, norm: f64) -> Result<f32, Error> {
        if self.pace.skip_non_finite {
            self.progress.skipped += 1;
            return Ok(norm as f32);
        }
        self.fault = Some("gradient");
        Err(ComputeError::NonFinite(format!("the norm of the gradient is {norm}")).into())
    }
}

impl Learner for Student {
    // What a method sees and computes is on the CPU, wherever the model computes: the same component works everywhere.
    fn device(&self) -> &Device {
        &Device::Cpu
    }

    fn score(
        &mut self,
        view: &View,
        rows: &Arc<Rows>,
        taps: TapSet,
        temperature: f32,
        keep: bool,
    ) -> Result<Scored, Error> {
        let alone = *view == View::Reference && taps == TapSet::default() && temperature == 1.0;
        let scored = match &mut self.references {
            Some(references) if alone => references.score(&self.policy, rows)?,
            _ => self.policy.score(view, rows, taps, temperature, keep)?,
        };
        // Weights that went astray show here first; the method only sees a loss that it cannot hand in.
        if !scored.tap(Tap::Logprob)?.sum_all()?.to_scalar::<f32>()?.is_finite() {
            self.fault = Some("loss");
        }
        Ok(scored)
    }

    fn joins(&self, view: &View, keep: bool) -> bool {
        self.policy.shares_beginnings(view, keep)
    }

    fn backward(&mut self, scored: &mut Scored, seeds: &Seeds) -> Result<(), Error> {
        self.accumulated = true;
        self.policy.backward(scored, seeds)
    }

    fn snapshot(&mut self, name: &str) -> Result<(), Error> {
        self.policy.snapshot(name)?;
        self.snapshots.insert(name.to_owned(), self.policy.parameters().snapshot()?);
        Ok(())
    }

    fn has_reference(&self) -> bool {
        self.policy.has_reference()
    }

    fn update(&mut self) -> Result<f32, Error> {
        let rate = self.rate();
        let parameters = self.policy.parameters();
        let norm = self.optimizer.step(parameters, rate, self.pace.clip)?;
        self.progress.norm = norm;
        self.accumulated = false;
        parameters.clear_gradients()?;
        if !norm.is_finite() {
            return self.not_finite(norm);
        }
        self.policy.note_update();
        self.progress.updates += 1;
        Ok(norm as f32)
    }

    fn rate(&self) -> f64 {
        self.pace.at(self.step)
    }

    fn position(&self) -> u32 {
        u32::try_from(self.step).unwrap_or(u32::MAX)
    }

    fn planned(&self) -> u32 {
        u32::try_from(self.pace.steps).unwrap_or(u32::MAX)
    }

    fn generation(&self) -> u64 {
        self.policy.generation()
    }

    fn has_accumulated(&self) -> bool {
        self.accumulated
    }
}

#[cfg(test)]
mod tests;
