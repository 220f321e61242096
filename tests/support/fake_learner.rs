//! A learner of a few numbers: it scores every target token with −1, every other tap of it with 1, and writes down what it is asked.

use std::sync::{Arc, Mutex};

use tunebox_compute::fused::TapSet;
use tunebox_compute::{Device, Tensor};
use tunebox_model::error::Error;
use tunebox_model::policy::{Scored, Seeds, Taps, View};
use tunebox_model::rows::Rows;
use tunebox_sandbox::Learner;

/// What was asked of a fake learner, seen from outside.
#[derive(Debug, Default)]
pub(crate) struct Diary {
    /// The seeds of the log-probabilities of every backward pass, row by row.
    pub seeds: Vec<Vec<Vec<f32>>>,
    /// Names of the snapshots taken.
    pub snapshots: Vec<String>,
    /// Updates made.
    pub updates: u32,
    /// Whether scoring panics, as a fault of the host would.
    pub panics: bool,
}

/// A learner without a model.
#[derive(Debug, Default)]
pub(crate) struct FakeLearner {
    diary: Arc<Mutex<Diary>>,
    accumulated: bool,
}

impl FakeLearner {
    /// A learner and its diary.
    pub(crate) fn with_diary() -> (Box<dyn Learner>, Arc<Mutex<Diary>>) {
        let learner = Self::default();
        let diary = learner.diary.clone();
        (Box::new(learner), diary)
    }

    fn updates(&self) -> u32 {
        self.diary.lock().unwrap().updates
    }
}

/// Two rows, of three and two tokens, with two targets and one.
pub(crate) fn rows() -> Arc<Rows> {
    let ids = vec![vec![5, 6, 7], vec![8, 9]];
    let targets = vec![vec![false, true, true], vec![false, true]];
    Arc::new(Rows::new(ids, targets).unwrap())
}

impl Learner for FakeLearner {
    fn device(&self) -> &Device {
        &Device::Cpu
    }

    fn score(&mut self, view: &View, rows: &Arc<Rows>, taps: TapSet, _: f32, _: bool) -> Result<Scored, Error> {
        assert!(!self.diary.lock().unwrap().panics, "the model fell over");
        let logprob = rows.mask_tensor(&Device::Cpu)?.neg()?;
        let one = |asked: bool| asked.then(|| logprob.neg()).transpose();
        let taps = Taps {
            entropy: one(taps.entropy)?,
            log_sum_square: one(taps.log_sum_square)?,
            mean_logit: one(taps.mean_logit)?,
            mean_logprob: one(taps.mean_logprob)?,
            top_one: one(taps.top_one)?,
            logprob,
        };
        Ok(Scored::of_taps(view.clone(), rows.clone(), taps, u64::from(self.updates())))
    }

    fn backward(&mut self, _: &mut Scored, seeds: &Seeds) -> Result<(), Error> {
        let rows = |tensor: &Tensor| tensor.to_vec2::<f32>();
        let seeds = seeds.logprob.as_ref().map(rows).transpose()?.unwrap_or_default();
        self.diary.lock().unwrap().seeds.push(seeds);
        self.accumulated = true;
        Ok(())
    }

    fn snapshot(&mut self, name: &str) -> Result<(), Error> {
        self.diary.lock().unwrap().snapshots.push(name.to_owned());
        Ok(())
    }

    fn has_reference(&self) -> bool {
        true
    }

    fn update(&mut self) -> Result<f32, Error> {
        self.diary.lock().unwrap().updates += 1;
        self.accumulated = false;
        Ok(1.0)
    }

    fn rate(&self) -> f64 {
        0.001
    }

    fn position(&self) -> u32 {
        self.updates()
    }

    fn planned(&self) -> u32 {
        10
    }

    fn generation(&self) -> u64 {
        u64::from(self.updates())
    }

    fn has_accumulated(&self) -> bool {
        self.accumulated
    }
}
