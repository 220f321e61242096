//! A run of the real policy on a model of two layers, 8 wide: batches, hooks, checkpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use arbitrary::{Result as Read, Unstructured};
use tempfile::TempDir;
use tunebox_compute::optimizer::{Optimizer, OptimizerSettings};
use tunebox_compute::random::Stream;
use tunebox_compute::{Device, Error as ComputeError, Tensor};
use tunebox_model::adapter::{AdapterKind, AdapterSettings};
use tunebox_model::error::Error;
use tunebox_model::generate::{Completion, Sampling, generate};
use tunebox_model::policy::{Policy, PolicySettings, View};
use tunebox_model::{Model, rows::Rows};
use tunebox_sandbox::{Batch, Completions, MethodParameters, Question, RunHooks};

use crate::scratch::{new_folder, with_file};

/// Tokens that a completion may have.
const NEW_TOKENS: u32 = 6;
/// Sides of a batch.
const SIDES: [&str; 3] = ["chosen", "rejected", "prompt"];

/// What an input chooses of a run: adapter and seed.
#[derive(Clone, Debug)]
pub(super) struct RunSettings {
    kind: AdapterKind,
    dropout: f64,
    pub(super) seed: u64,
}

impl RunSettings {
    /// Reads the settings from an input.
    pub(super) fn read(bytes: &mut Unstructured<'_>) -> Read<Self> {
        let kinds = [AdapterKind::Lora, AdapterKind::Dora, AdapterKind::RsLora, AdapterKind::Full];
        let dropout = if bytes.arbitrary()? { 0.25 } else { 0.0 };
        Ok(Self { kind: *bytes.choose(&kinds)?, dropout, seed: u64::from(bytes.arbitrary::<u8>()?) })
    }
}

/// Hooks of a run: AdamW, completions of the model, verdicts computed from token ids.
pub(super) struct MicroRun {
    optimizer: Optimizer,
    seed: u64,
    step: u32,
    calls: u32,
}

pub(super) type TrainState = tunebox_sandbox::TrainState<MicroRun>;

/// The name of the teacher and of a column for tokens: the one that valid programs ask for.
const NAME: &str = super::program::WORDS[1];

/// The model of every run.
pub(super) static MODEL: LazyLock<Arc<Model>> = LazyLock::new(|| random_model(2, 8));

/// The teacher of every run: deeper and wider than the model, with its vocabulary.
static TEACHER: LazyLock<Arc<Model>> = LazyLock::new(|| random_model(3, 16));

/// A model of this many blocks of this width with random weights, whose tokens are letters.
fn random_model(layers: usize, width: usize) -> Arc<Model> {
    let config = serde_json::json!({
        "model_type": "llama", "vocab_size": 32, "hidden_size": width, "intermediate_size": 8, "num_hidden_layers": layers,
        "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4, "hidden_act": "silu", "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "max_position_embeddings": 24, "tie_word_embeddings": true, "eos_token_id": 1,
    });
    let letters = ('a'..='z').zip(2_u32..).map(|(letter, id)| (letter.to_string(), serde_json::Value::from(id)));
    let tokenizer = serde_json::json!({
        "version": "1.0", "added_tokens": [], "decoder": {"type": "Fuse"},
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(?s)."}, "behavior": "Isolated", "invert": false},
        "model": {"type": "WordLevel", "vocab": serde_json::Map::from_iter(letters), "unk_token": "a"},
    });
    with_file("tokenizer.json", tokenizer.to_string().as_bytes(), |_, folder| {
        with_file("config.json", config.to_string().as_bytes(), |_, _| ());
        Arc::new(Model::random(folder, 1, &Device::Cpu).unwrap_or_else(|error| panic!("the model is not one: {error}")))
    })
}

/// Creates the train state before the first step.
pub(super) fn train_state(settings: &RunSettings) -> TrainState {
    let RunSettings { kind, dropout, seed } = *settings;
    let dropout = if matches!(kind, AdapterKind::Full | AdapterKind::Dora) { 0.0 } else { dropout };
    let adapter = AdapterSettings { kind, rank: 2, dropout, ..AdapterSettings::default() };
    let policy = Policy::new(MODEL.clone(), &adapter, PolicySettings::default());
    let mut policy = policy.unwrap_or_else(|error| panic!("{settings:?} is no adapter: {error}"));
    policy.add_teacher(NAME, TEACHER.clone()).unwrap_or_else(|error| panic!("{error}"));
    let optimizer = Optimizer::new(OptimizerSettings::default(), policy.parameters());
    let optimizer = optimizer.unwrap_or_else(|error| panic!("{error}"));
    TrainState::new(policy, MicroRun { optimizer, seed, step: 0, calls: 0 })
}

/// Begins step `step`, counted from 0: restarts the numbering of dropout masks and of completions, and clears the gradients of
/// extra parameters.
pub(super) fn begin_step(state: &mut TrainState, step: u32) {
    state.policy.resume_at(state.policy.generation());
    (state.hooks.step, state.hooks.calls) = (step, 0);
    // As a run does: a window without an update leaves gradients of extra parameters.
    state.method_parameters.clear_gradients();
}

/// Creates the batch of a step: answers of several lengths, some without targets, and sometimes none on the `rejected` side.
pub(super) fn batch(settings: &RunSettings, step: u32) -> Batch {
    let mut stream = Stream::new(settings.seed, &format!("batch/{step}"));
    let mut below = |count: u64| stream.below(count) as usize;
    let size = 1 + below(4);
    let mut side = |name: &str| {
        let count = if name == "rejected" && below(8) == 0 { 0 } else { size };
        let row = |_| {
            let length = 2 + below(9);
            let from = if name == "prompt" { length } else { below(8) };
            ((0..length).map(|_| 2 + below(30) as u32).collect(), (0..length).map(|at| at >= from).collect())
        };
        let (ids, targets) = (0..count).map(row).unzip();
        Arc::new(Rows::new(ids, targets).unwrap_or_else(|error| panic!("{error}")))
    };
    let sides: Vec<_> = SIDES.iter().map(|name| ((*name).to_owned(), side(name))).collect();
    let counts =
        |count: fn(&Rows) -> usize| sides.iter().map(|(name, rows)| (name.clone(), count(rows) as u32)).collect();
    Batch {
        size: size as u32,
        columns: BTreeMap::from([("label".to_owned(), (0..size).map(|at| at as f32).collect())]),
        token_columns: BTreeMap::from([
            (NAME.to_owned(), Ok(vec![vec![1.0; 3]; size])),
            ("label".to_owned(), Err("the lists have other lengths".to_owned())),
        ]),
        indices: (0..size as u32).collect(),
        window_targets: counts(Rows::targets),
        window_tokens: counts(Rows::tokens),
        window_size: size as u32,
        ends_window: true,
        questions: vec![Question { prompt: "abc".into(), ..Question::default() }; size],
        sides,
    }
}

impl RunHooks for MicroRun {
    fn learning_rate(&self) -> f64 {
        0.05
    }

    fn position(&self) -> u32 {
        self.step
    }

    fn planned_steps(&self) -> u32 {
        10
    }

    fn max_new_tokens(&self) -> u32 {
        NEW_TOKENS
    }

    fn verifiers(&self) -> Vec<(String, f32)> {
        vec![("even".into(), 1.0), ("odd".into(), 0.5)]
    }

    fn update(&mut self, policy: &mut Policy) -> Result<f32, Error> {
        let norm = self.optimizer.step(policy.parameters(), self.learning_rate(), 1.0)?;
        policy.parameters().clear_gradients()?;
        if !norm.is_finite() {
            return Err(ComputeError::NonFinite(format!("the norm of the gradient is {norm}")).into());
        }
        policy.note_update();
        Ok(norm as f32)
    }

    fn count_update(&mut self, policy: &mut Policy) -> Result<f32, Error> {
        let norm = policy.parameters().gradient_norm()?;
        policy.parameters().clear_gradients()?;
        policy.note_update();
        Ok(norm as f32)
    }

    fn generate(
        &mut self,
        policy: &Policy,
        view: &View,
        prompts: &Arc<Rows>,
        sampling: &Sampling,
        _: Option<&[Question]>,
    ) -> Result<Vec<Completion>, Error> {
        let stream = format!("sample/{}/{}", self.step, self.calls);
        self.calls += 1;
        let sampling = Sampling { seed: Stream::new(self.seed, &stream).next_u64(), ..sampling.clone() };
        generate(policy, view, &prompts.ids, &sampling, &mut |_, _| true)
    }

    fn judge(
        &mut self,
        _: &Policy,
        questions: &[Question],
        written: &Completions,
        _: Option<Instant>,
    ) -> Result<Vec<f32>, Error> {
        assert!(written.group.iter().all(|group| (*group as usize) < questions.len()), "a completion of no question");
        let sum = |row| written.completion(row).iter().sum::<u32>();
        let verdicts = |row: usize| [if sum(row) % 7 == 0 { f32::INFINITY } else { 1.0 }, (sum(row) % 2) as f32];
        Ok((0..written.rows.count()).flat_map(verdicts).collect())
    }
}

/// A checkpoint of a train state, saved and restored by the functions that a run uses.
pub(super) struct Checkpoint {
    folder: TempDir,
    optimizer: (Vec<(&'static str, Tensor)>, u64),
    snapshots: BTreeMap<String, Tensor>,
    published: Vec<tunebox_sandbox::Direction>,
    own: BTreeMap<String, Tensor>,
    generation: u64,
}

impl Checkpoint {
    /// Saves a train state. Errors: a tensor that cannot be read, or a file that cannot be written.
    pub(super) fn save(state: &TrainState) -> Result<Self, Error> {
        let folder = new_folder();
        state.policy.save(folder.path())?;
        state.policy.save_edits(folder.path())?;
        for (number, name) in state.snapshots.keys().enumerate() {
            state.policy.save_snapshot_edits(name, &edits_of(folder.path(), number))?;
        }
        let tensors = state.hooks.optimizer.state(state.policy.parameters())?.into_iter();
        let tensors = tensors.map(|(name, tensor)| Ok((name, tensor.copy()?))).collect::<Result<_, Error>>()?;
        let optimizer = (tensors, state.hooks.optimizer.steps());
        let (snapshots, generation) = (state.snapshots.clone(), state.policy.generation());
        let (published, own) = (state.published.values().cloned().collect(), state.method_parameters.saved());
        Ok(Self { folder, optimizer, snapshots, published, own, generation })
    }

    /// Restores the checkpoint over what `init` made, and clears the gradient.
    pub(super) fn restore(&self, state: &mut TrainState) -> Result<(), Error> {
        for (number, (name, values)) in self.snapshots.iter().enumerate() {
            state.restore_snapshot(name, values.copy()?, &edits_of(self.folder.path(), number))?;
        }
        state.policy.restore(self.folder.path())?;
        state.policy.restore_edits(self.folder.path())?;
        state.published.extend(self.published.iter().map(|direction| (direction.layer, direction.clone())));
        state.policy.resume_at(self.generation);
        let own = MethodParameters::restored(self.own.clone());
        state.method_parameters = own.unwrap_or_else(|| panic!("what was saved is not restored: {:?}", self.own));
        let (tensors, updates) = &self.optimizer;
        state.hooks.optimizer.restore(state.policy.parameters(), tensors, *updates)?;
        state.clear_gradient()
    }
}

/// The file with the edits of a snapshot, by the index of its name.
fn edits_of(folder: &Path, snapshot: usize) -> std::path::PathBuf {
    folder.join(format!("snapshot-{snapshot}"))
}

/// Everything that a checkpoint holds, for comparison: numbers as their bits, files as their bytes.
#[derive(Debug, PartialEq)]
pub(super) struct TrainedState {
    weights: Vec<u32>,
    snapshots: Vec<(String, Vec<u32>)>,
    published: Vec<String>,
    edits: BTreeSet<(String, Vec<u8>)>,
    own: Vec<(String, Vec<u32>)>,
    generation: u64,
}

impl TrainedState {
    /// Reads the state. Errors: as in [`Checkpoint::save`].
    pub(super) fn read(state: &TrainState) -> Result<Self, Error> {
        let saved = Checkpoint::save(state)?;
        let snapshots = saved.snapshots.iter().map(|(name, values)| Ok((name.clone(), bits(values)?)));
        let files = std::fs::read_dir(saved.folder.path()).into_iter().flatten().flatten();
        let files = files.map(|file| (file.file_name().to_string_lossy().into_owned(), std::fs::read(file.path())));
        Ok(Self {
            weights: bits(state.policy.parameters().values())?,
            snapshots: snapshots.collect::<Result<_, Error>>()?,
            published: saved.published.iter().map(|direction| format!("{direction:?}")).collect(),
            edits: files.map(|(name, bytes)| (name, bytes.unwrap_or_default())).collect(),
            own: saved
                .own
                .iter()
                .map(|(name, value)| Ok((name.clone(), bits(value)?)))
                .collect::<Result<_, Error>>()?,
            generation: saved.generation,
        })
    }
}

/// Returns the bits of `f32` numbers, flat.
fn bits(values: &Tensor) -> Result<Vec<u32>, Error> {
    Ok(values.flatten_all()?.to_vec1::<f32>()?.into_iter().map(f32::to_bits).collect())
}
