//! A learner of a few numbers: it scores every target token with −1, every other tap of it with 1, and writes down what it is asked.

use std::sync::{Arc, Mutex};

use tunebox_compute::fused::{Tap, TapSet};
use tunebox_compute::{DType, Device, Tensor};
use tunebox_model::edit::Role;
use tunebox_model::error::Error;
use tunebox_model::generate::Completion;
use tunebox_model::policy::{Scored, Seeds, View};
use tunebox_model::rows::Rows;
use tunebox_model::stream::{Patch, Site, Token};
use tunebox_sandbox::{Direction, Editing, Learner, Question, Sampler, Sampling, Sizes, Written};

/// What was asked of a fake learner, seen from outside.
#[derive(Debug, Default)]
pub(crate) struct Diary {
    /// The seeds of the log-probabilities of every backward pass, row by row.
    pub seeds: Vec<Vec<Vec<f32>>>,
    /// Names of the snapshots taken.
    pub snapshots: Vec<String>,
    /// Patches made.
    pub patches: u64,
    /// The patches that were taken back, by number.
    pub unpatched: Vec<u64>,
    /// Times that all patches were taken back.
    pub cleared: u32,
    /// Directions for the artifact.
    pub published: Vec<Direction>,
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

/// It writes two tokens and ends, and one verifier likes everything.
impl Sampling for FakeLearner {
    fn new_tokens(&self) -> u32 {
        8
    }

    fn positions(&self) -> u32 {
        16
    }

    fn multiply_adds(&self, tokens: u64) -> u64 {
        100 * tokens
    }

    fn cache_bytes(&self, sequences: u64, tokens: u64) -> u64 {
        sequences * tokens * 64
    }

    fn generate(&mut self, _: &View, prompts: &Arc<Rows>, sampler: &Sampler) -> Result<Vec<Completion>, Error> {
        let one = Completion { ids: vec![3, 4], logprobs: vec![-0.5, -0.25], finished: true };
        Ok(vec![one; prompts.count() * sampler.completions as usize])
    }

    fn verifiers(&self) -> Vec<(String, f32)> {
        vec![("pleased".into(), 1.0)]
    }

    fn judge(&mut self, _: &[Question], written: &Written) -> Result<Vec<f32>, Error> {
        Ok(vec![1.0; written.rows.count()])
    }
}

/// Four layers of width 3 and sixteen tokens: every activation is 1, every next token as likely as any other.
impl Editing for FakeLearner {
    fn sizes(&self) -> Sizes {
        Sizes { layers: 4, dimension: 3, vocabulary: 16 }
    }

    fn capture(&mut self, _: &View, rows: &Rows, layers: &[usize], _: Site, _: Token) -> Result<Tensor, Error> {
        Ok(Tensor::ones((layers.len(), rows.count(), 3), DType::F32, &Device::Cpu)?)
    }

    fn next_token(&mut self, _: &View, rows: &Rows, ids: &[u32]) -> Result<Tensor, Error> {
        Ok(Tensor::full(-(16_f32.ln()), (rows.count(), ids.len()), &Device::Cpu)?)
    }

    fn divergence(&mut self, _: &View, _: &View, rows: &Rows) -> Result<Tensor, Error> {
        Ok(Tensor::zeros(rows.count(), DType::F32, &Device::Cpu)?)
    }

    fn patch(&mut self, _: Patch) -> Result<u64, Error> {
        let mut diary = self.diary.lock().unwrap();
        diary.patches += 1;
        Ok(diary.patches)
    }

    fn unpatch(&mut self, number: u64) {
        self.diary.lock().unwrap().unpatched.push(number);
    }

    fn unpatch_all(&mut self) {
        self.diary.lock().unwrap().cleared += 1;
    }

    fn matrix(&self, _: Role, _: usize) -> Result<(usize, usize), Error> {
        Ok((3, 3))
    }

    fn read_rows(&mut self, _: Role, _: usize, _: usize, count: usize) -> Result<Tensor, Error> {
        Ok(Tensor::ones((count, 3), DType::F32, &Device::Cpu)?)
    }

    fn add_outer(&mut self, _: Role, _: usize, _: &[f32], _: &[f32], _: f32) -> Result<(), Error> {
        Ok(())
    }

    fn project_out(&mut self, _: Role, _: usize, _: &[f32], _: f32, _: bool) -> Result<(), Error> {
        Ok(())
    }

    fn publish(&mut self, direction: Direction) -> Result<(), Error> {
        self.diary.lock().unwrap().published.push(direction);
        Ok(())
    }

    fn decode(&mut self, ids: &[u32]) -> Result<String, Error> {
        Ok("a".repeat(ids.len()))
    }

    fn encode(&mut self, text: &str) -> Result<Vec<u32>, Error> {
        Ok(vec![1; text.len()])
    }
}

impl Learner for FakeLearner {
    fn device(&self) -> &Device {
        &Device::Cpu
    }

    fn score(&mut self, view: &View, rows: &Arc<Rows>, taps: TapSet, _: f32, _: bool) -> Result<Scored, Error> {
        assert!(!self.diary.lock().unwrap().panics, "the model fell over");
        let logprob = rows.mask_tensor(&Device::Cpu)?.neg()?;
        let ones = logprob.neg()?;
        let values = |tap| if tap == Tap::Logprob { logprob.clone() } else { ones.clone() };
        let taps = taps.iter().map(|tap| (tap, values(tap))).collect();
        Ok(Scored::of_taps(view.clone(), rows.clone(), taps, u64::from(self.updates())))
    }

    fn backward(&mut self, _: &mut Scored, seeds: &Seeds) -> Result<(), Error> {
        let rows = |tensor: &Tensor| tensor.to_vec2::<f32>();
        let seeds = seeds.get(Tap::Logprob).map(rows).transpose()?.unwrap_or_default();
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
