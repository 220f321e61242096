//! The model under training with its optimiser and schedule: what a session works on.
//!
//! Clipping, the rate of an update and the guard against numbers that are not finite are
//! here; when an update is due is the loop's business, and a method's if it asks.

mod editing;
pub(crate) mod published;
pub(crate) mod reference;
mod sampling;

use std::collections::BTreeMap;
use std::sync::Arc;

use tunebox_compute::fused::TapSet;
use tunebox_compute::optimizer::AdamW;
use tunebox_compute::schedule::Schedule;
use tunebox_compute::{Device, Error as ComputeError, Tensor};
use tunebox_model::error::Error;
use tunebox_model::policy::{Policy, Scored, Seeds, View};
use tunebox_model::rows::Rows;
use tunebox_sandbox::{Direction, Learner};

pub(crate) use sampling::Desk;

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

    /// Forgets what a step that failed has accumulated.
    pub(crate) fn forget(&mut self) -> Result<(), Error> {
        self.accumulated = false;
        Ok(self.policy.parameters().clear_gradients()?)
    }

    /// Puts a snapshot of a checkpoint back in place. The trained numbers are those of the
    /// snapshot afterwards, so the checkpoint's own must follow.
    pub(crate) fn restore_snapshot(&mut self, name: &str, values: Tensor) -> Result<(), Error> {
        let parameters = self.policy.parameters();
        for (index, slot) in parameters.slots().iter().enumerate() {
            let count = slot.shape.iter().product();
            parameters.set(index, &values.narrow(0, slot.offset, count)?.reshape(slot.shape.as_slice())?)?;
        }
        self.policy.snapshot(name)?;
        self.snapshots.insert(name.to_owned(), values);
        Ok(())
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
        if !scored.taps.logprob.sum_all()?.to_scalar::<f32>()?.is_finite() {
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
mod tests {
    use tunebox_compute::optimizer::AdamWSettings;
    use tunebox_model::adapter::AdapterSettings;
    use tunebox_model::{Model, PolicySettings};

    use super::*;

    fn student(skip_non_finite: bool) -> Student {
        let folder = tempfile::tempdir().unwrap();
        let config = serde_json::json!({
            "model_type": "llama", "vocab_size": 32, "hidden_size": 16, "intermediate_size": 24,
            "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-5,
            "max_position_embeddings": 64, "tie_word_embeddings": true,
        });
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        let model = Arc::new(Model::random(folder.path(), 1, &Device::Cpu).unwrap());
        let policy = Policy::new(model, &AdapterSettings::default(), PolicySettings::default()).unwrap();
        let optimizer = AdamW::new(AdamWSettings::default(), policy.parameters()).unwrap();
        let schedule = "linear".parse().unwrap();
        let pace = Pace { rate: 0.5, schedule, warmup: 0, steps: 4, clip: 1.0, skip_non_finite };
        Student::new(policy, optimizer, pace)
    }

    fn values(student: &Student) -> Vec<f32> {
        student.policy.parameters().values().to_vec1().unwrap()
    }

    /// Adds a gradient of one value everywhere in the first slot.
    fn push(student: &Student, value: f32) {
        let parameters = student.policy.parameters();
        let shape = parameters.slots()[0].shape.clone();
        parameters.accumulate(0, &Tensor::full(value, shape, &Device::Cpu).unwrap()).unwrap();
    }

    #[test]
    fn a_gradient_that_is_not_finite_changes_nothing_and_is_an_error() {
        let mut student = student(false);
        let before = values(&student);
        push(&student, f32::NAN);
        student.begin(0);

        assert!(student.update().unwrap_err().to_string().contains("gradient"));
        assert_eq!(student.fault(), Some("gradient"));
        assert_eq!((values(&student), student.generation()), (before, 0));
    }

    #[test]
    fn a_run_that_skips_such_updates_goes_on_with_the_next() {
        let mut student = student(true);
        let before = values(&student);
        push(&student, f32::INFINITY);
        student.begin(0);
        student.update().unwrap();
        assert_eq!((values(&student), student.progress().skipped), (before.clone(), 1));

        push(&student, 1.0);
        student.begin(1);
        student.update().unwrap();
        assert!(values(&student).iter().all(|value| value.is_finite()));
        assert_ne!(values(&student), before);
    }

    #[test]
    fn the_rate_falls_with_the_step_and_not_with_the_updates_within_it() {
        let mut student = student(false);
        student.begin(1);
        let rates: Vec<f64> = (0..2)
            .map(|_| {
                push(&student, 1.0);
                student.update().unwrap();
                student.rate()
            })
            .collect();

        assert_eq!(rates, [0.375, 0.375]);
        assert_eq!((student.position(), student.generation()), (1, 2));
    }

    #[test]
    fn directions_read_at_different_places_are_not_published_together() {
        use tunebox_model::stream::{Site, Token};
        use tunebox_sandbox::Editing;

        let direction = |layer, site| {
            let (token, vector) = (Token::FromEnd(0), vec![1.0; 16]);
            Direction { layer, site, token, vector, coefficient: 1.0 }
        };
        let mut student = student(false);
        student.publish(direction(0, Site::ResidualAfter)).unwrap();
        student.publish(direction(0, Site::MlpOutput)).unwrap();
        assert!(student.publish(direction(1, Site::ResidualAfter)).unwrap_err().to_string().contains("one site"));
        student.publish(direction(1, Site::MlpOutput)).unwrap();
        assert_eq!(student.published.len(), 2);
    }

    #[test]
    fn a_snapshot_put_back_holds_the_numbers_that_it_was_taken_with() {
        let mut student = student(false);
        push(&student, 1.0);
        student.update().unwrap();
        student.snapshot("old").unwrap();
        let old = values(&student);
        push(&student, 1.0);
        student.update().unwrap();

        let taken = student.snapshots["old"].copy().unwrap();
        student.restore_snapshot("old", taken).unwrap();
        assert_eq!(values(&student), old);
    }
}
