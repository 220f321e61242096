//! A model under training: the base model, its adapter, edits and patches, snapshots, and the flat gradient.
//!
//! `score` computes taps, such as log-probabilities, of every target token; `backward` takes the gradients of a loss
//! with respect to these taps (seeds) back to the adapter. `capture_for_learning` and `backward_captured` do so for
//! activations. Losses, optimizers and the order of steps belong to the callers.

mod capture;
mod captured;
mod division;
mod edit_files;
mod edits;
mod learning_pass;
mod memory;
mod next_token;
mod score;
mod slices;
mod state;
mod taps;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use tunebox_compute::budget::Budget;
use tunebox_compute::parameters::Parameters;
use tunebox_compute::precision::Precision;

pub use captured::Captured;
pub use memory::{BATCH, PassMemory};
pub use score::Scored;
pub use slices::Slice;
pub use state::PolicyState;
pub use taps::{DivergenceTo, Seeds, TapRequest, select_rows};

use crate::Model;
use crate::adapter::{Adapter, AdapterSettings};
use crate::decoder::network::Network;
use crate::decoder::{EmbeddingNoise, Recompute, RopeTables};
use crate::edit::Edits;
use crate::error::{Error, Result};
use crate::ranks::RankGroup;
use crate::stream::Patches;

/// The state of the weights that a pass runs with.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum View {
    /// The model with the adapter, edits and patches as they are now.
    Policy,
    /// The state before training: the base model, with the initial adapter if training continues one, unless
    /// [`Policy::set_base_reference`] leaves that out.
    Reference,
    /// The snapshot of this name: a frozen copy of adapter and edits.
    Snapshot(String),
    /// The teacher of this name: another, frozen model.
    Teacher(String),
}

/// Settings that trade memory of passes for time; results change only by rounding.
#[derive(Debug, Clone, Copy, Default)]
pub struct PolicySettings {
    /// Which activations a forward pass saves for its backward pass.
    pub recompute: Recompute,
    /// How large the slices are into which a batch is cut, one for each pass.
    pub slice: Slice,
    /// The bytes of activations to which a slice may always grow, whatever `slice` says. Smaller slices would save
    /// little memory, and a prefix that rows share would run once for every slice.
    pub min_slice_bytes: u64,
    /// The limit in bytes of all activations that are saved for backward passes. When it is reached, further slices of
    /// a batch save none, and their backward pass runs the forward pass again, with bit-identical results. A batch
    /// that `slice` allows in one pass is saved regardless of this limit.
    pub max_saved_bytes: u64,
}

/// A model under training.
pub struct Policy {
    model: Arc<Model>,
    adapter: Adapter,
    /// The initial state of an adapter that training continues; `None` if the reference is the base model.
    reference: Option<Adapter>,
    /// Whether the base model alone is the reference, also if training continues an adapter.
    has_base_reference: bool,
    /// Other models with their rotation tables, by name.
    teachers: BTreeMap<String, (Arc<Model>, RopeTables)>,
    /// Frozen copies of the adapter and the edits, by name.
    snapshots: BTreeMap<String, Arc<(Adapter, Edits)>>,
    edits: Edits,
    patches: Patches,
    /// An empty list of patches, for all views but the policy.
    untouched: Patches,
    settings: PolicySettings,
    tables: RopeTables,
    /// The update count: how often the weights have changed, by optimizer steps or edits.
    generation: u64,
    /// The number of slices scored or captured for learning since the last update; with the update count, it names
    /// their dropout masks and noise.
    learning_slices: AtomicU64,
    /// Noise on the embeddings of rows that are scored or captured for learning.
    noise: Option<EmbeddingNoise>,
    /// Counts the bytes that scored and captured rows save for their backward passes.
    saved: Budget,
    /// The processes among which passes are divided.
    ranks: RankGroup,
    deadline: Option<Instant>,
}

impl Policy {
    /// A policy with a newly created adapter, whose values are initialized from the settings' seed. Its reference is
    /// the base model.
    ///
    /// # Errors
    /// When [`Adapter::create`] fails: the adapter's settings are out of range or name what the model does not have, or
    /// there is too little memory for the trained values.
    pub fn new(model: Arc<Model>, adapter: &AdapterSettings, settings: PolicySettings) -> Result<Self> {
        let adapter = Adapter::create(&model, adapter)?;
        Ok(Self::assemble(model, adapter, None, settings))
    }

    /// A policy that continues the adapter in the folder `adapter`; its reference is a frozen copy of that adapter.
    /// Without a folder it trains nothing, and policy and reference are the base model.
    ///
    /// # Errors
    /// When [`Adapter::load`] fails, or there is too little memory for the copy.
    pub fn open(model: Arc<Model>, adapter: Option<&Path>, settings: PolicySettings) -> Result<Self> {
        let Some(folder) = adapter else {
            let untrained = Adapter::without_modules(model.weights.device())?;
            return Ok(Self::assemble(model, untrained, None, settings));
        };
        let adapter = Adapter::load(&model, folder)?;
        let reference = adapter.frozen_copy()?;
        Ok(Self::assemble(model, adapter, Some(reference), settings))
    }

    /// A policy from its parts, with update count 0 and without teachers, snapshots, edits, patches, noise, ranks and
    /// deadline. `reference` is the initial state of the adapter; `None` makes the base model the reference.
    fn assemble(model: Arc<Model>, adapter: Adapter, reference: Option<Adapter>, settings: PolicySettings) -> Self {
        Self {
            model,
            adapter,
            reference,
            has_base_reference: false,
            teachers: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            edits: Edits::default(),
            patches: Patches::default(),
            untouched: Patches::default(),
            settings,
            tables: RopeTables::default(),
            generation: 0,
            learning_slices: AtomicU64::new(0),
            noise: None,
            saved: Budget::new(u64::MAX),
            ranks: RankGroup::default(),
            deadline: None,
        }
    }

    /// Creates a policy with another adapter on the same base model, which is its reference. Keeps only the model and
    /// the settings: the new policy has no edits, patches, snapshots, teachers, embedding noise or deadline, divides
    /// nothing among ranks, and counts updates from 0.
    pub(crate) fn with_adapter(&self, adapter: Adapter) -> Self {
        Self::assemble(Arc::clone(&self.model), adapter, None, self.settings)
    }

    /// Sets the time after which passes through the model fail: before the next block with [`Error::OutOfTime`], or, in
    /// the output head on the CPU, with [`Error::Compute`]. `None` lets passes run to their end.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    /// Returns the time after which passes through the model fail; `None` if they run to their end.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Makes the base model alone the reference of a policy that continues an adapter. For a policy with a new adapter
    /// or none, the base model is the reference anyway.
    pub fn set_base_reference(&mut self) {
        self.has_base_reference = true;
    }

    /// Sets the noise on the embeddings of rows that are scored ([`score`](Self::score)) or captured
    /// ([`capture_for_learning`](Self::capture_for_learning)) for learning; `None` for none, as in a new policy. Other
    /// passes have no noise.
    pub fn set_embedding_noise(&mut self, noise: Option<EmbeddingNoise>) {
        self.noise = noise;
    }

    /// Divides the rows of all passes of this policy among ranks, each of which has a policy with the same state and
    /// makes the same calls; they return the same bits as without ranks. Generation is not divided, and passes for
    /// learning are not if weights of the model are trained themselves.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for several ranks if the model is on another device than the CPU.
    pub fn set_ranks(&mut self, ranks: RankGroup) -> Result<()> {
        if ranks.are_several() && !self.model.weights.device().is_cpu() {
            return Err(Error::Unsupported("several ranks compute on the CPU only".into()));
        }
        self.ranks = ranks;
        Ok(())
    }

    /// The processes among which passes are divided.
    #[must_use]
    pub fn ranks(&self) -> &RankGroup {
        &self.ranks
    }

    /// The base model that the policy was made from.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Adds a frozen model under a name, for [`View::Teacher`]; replaces one of that name.
    ///
    /// # Errors
    /// When the model is on another device than the policy's.
    pub fn add_teacher(&mut self, name: &str, model: Arc<Model>) -> Result<()> {
        if !model.weights.device().same_device(self.model.weights.device()) {
            return Err(Error::Argument(format!("the teacher `{name}` is on another device than the model")));
        }
        self.teachers.insert(name.to_owned(), (model, RopeTables::default()));
        Ok(())
    }

    /// The names of the teachers, with their models.
    pub fn teachers(&self) -> impl Iterator<Item = (&str, &Model)> {
        self.teachers.iter().map(|(name, (model, _))| (name.as_str(), model.as_ref()))
    }

    /// Returns the model that a view computes with: for [`View::Teacher`] that teacher, for every other view the
    /// policy's base model. A teacher that does not exist also gives the base model.
    #[must_use]
    pub fn model_of(&self, view: &View) -> &Model {
        let teacher = match view {
            View::Teacher(name) => self.teachers.get(name),
            View::Policy | View::Reference | View::Snapshot(_) => None,
        };
        teacher.map_or(&self.model, |(model, _)| model)
    }

    /// The teacher of this name, with its rotation tables. Errors: no teacher has this name; the message lists the
    /// known names.
    fn teacher(&self, name: &str) -> Result<&(Arc<Model>, RopeTables)> {
        let missing =
            || Error::Argument(format!("there is no teacher `{name}` (known: {})", names(self.teachers.keys())));
        self.teachers.get(name).ok_or_else(missing)
    }

    /// The adapter that is trained.
    #[must_use]
    pub fn adapter(&self) -> &Adapter {
        &self.adapter
    }

    /// The number formats in which the model's weights and activations are kept.
    #[must_use]
    pub fn precision(&self) -> Precision {
        self.model.weights.precision()
    }

    /// The flat buffer of trained values, with its gradient.
    #[must_use]
    pub fn parameters(&self) -> &Parameters {
        self.adapter.parameters()
    }

    /// The update count: how often the weights have changed, by optimizer steps or edits.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Adds 1 to the update count and restarts the numbering of dropout passes at 0. Rows scored or captured before
    /// this call can no longer be learned from: [`backward`](Self::backward) and
    /// [`backward_captured`](Self::backward_captured) reject them. Changes no weight.
    pub fn note_update(&mut self) {
        self.resume_at(self.generation + 1);
    }

    /// Sets the update count to `generation`, that of a checkpoint, and restarts the numbering of dropout passes at 0,
    /// so that dropout masks are those of an uninterrupted run.
    pub fn resume_at(&mut self, generation: u64) {
        self.generation = generation;
        *self.learning_slices.get_mut() = 0;
    }

    /// Stores a frozen copy of the adapter and the edits under a name, replacing an earlier one of that name.
    ///
    /// # Errors
    /// Under full fine-tuning, where a snapshot would copy the whole model; or when there is too little memory for the
    /// copy.
    pub fn snapshot(&mut self, name: &str) -> Result<()> {
        if self.adapter.is_full() {
            return Err(Error::Unsupported(format!(
                "snapshot `{name}` with full fine-tuning would copy the whole model; use an adapter"
            )));
        }
        self.keep_snapshot(name, self.edits.clone())
    }

    /// Stores a frozen copy of the adapter with these edits under a name, replacing an earlier one of that name.
    fn keep_snapshot(&mut self, name: &str, edits: Edits) -> Result<()> {
        let copy = self.adapter.frozen_copy()?;
        self.snapshots.insert(name.to_owned(), Arc::new((copy, edits)));
        Ok(())
    }

    /// Writes the adapter (or all weights, in `f32`, under full fine-tuning) into a folder, which is created if needed,
    /// and replaces files of these names. Writes no edits, patches or snapshots.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn save(&self, folder: &Path) -> Result<()> {
        self.adapter.save(&self.model, folder)
    }

    /// Reads the trained values that [`save`](Self::save) wrote into a folder into the adapter. Does not read the
    /// settings file. Leaves the gradient as it is. Changes neither the reference, the edits, the snapshots nor the
    /// update count.
    ///
    /// # Errors
    /// When the file cannot be read, or its tensors have not exactly the names and shapes of the trained values. If a
    /// tensor cannot be read, those before it are already overwritten.
    pub fn restore(&mut self, folder: &Path) -> Result<()> {
        self.adapter.read_values(&self.model, folder)
    }

    /// Builds the network of a view, with the policy's deadline, and without a learning pass, so without dropout and
    /// embedding noise, and without readers and decoding. [`View::Policy`] has the adapter, edits and patches as they
    /// are now; a snapshot the adapter and edits stored in it; the reference the initial adapter, if training continues
    /// one and the base alone is not the reference, and no edits; a teacher its model alone. Only [`View::Policy`] has
    /// patches. Errors: no snapshot or teacher of this name.
    pub(crate) fn network(&self, view: &View) -> Result<Network<'_>> {
        let (mut model, mut tables) = (&self.model, &self.tables);
        let (adapter, edits, patches) = match view {
            View::Policy => (Some(&self.adapter), Some(&self.edits), &self.patches),
            View::Reference => {
                let adapter = self.reference.as_ref().filter(|_| !self.has_base_reference);
                (adapter, None, &self.untouched)
            }
            View::Snapshot(name) => {
                let (adapter, edits) = &**self.snapshots.get(name).ok_or_else(|| self.no_snapshot(name))?;
                (Some(adapter), Some(edits), &self.untouched)
            }
            View::Teacher(name) => {
                let teacher = self.teacher(name)?;
                (model, tables) = (&teacher.0, &teacher.1);
                (None, None, &self.untouched)
            }
        };
        Ok(Network {
            model,
            adapter,
            tables,
            learning_pass: None,
            first_token: 0,
            noise: self.noise,
            edits,
            patches,
            readers: None,
            read_gradients: None,
            decoding: false,
            deadline: self.deadline,
        })
    }

    /// The error for a name without a snapshot; lists the names of all snapshots, or `none`.
    fn no_snapshot(&self, name: &str) -> Error {
        Error::Argument(format!("there is no snapshot `{name}` (taken: {})", names(self.snapshots.keys())))
    }
}

/// Lists names for an error, or `none`.
fn names<'a>(known: impl Iterator<Item = &'a String>) -> String {
    let known: Vec<String> = known.map(|name| format!("`{name}`")).collect();
    if known.is_empty() { "none".to_owned() } else { known.join(", ") }
}
