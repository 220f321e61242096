//! Confines a worker by the rings of the operating system, and lists the files that it may read.

use std::io;
use std::path::{Path, PathBuf};

use tunebox_compute::memory;
use tunebox_foundation::environment::variable;
use tunebox_model::hub::cached_folder;
use tunebox_package::Reference;
use tunebox_sandbox::confinement::{
    MARGIN, MemoryLimit, Ring, confine_files, deny_calls, has_nvidia_driver, limit_memory, reading_memory,
};

use crate::configuration::RunSettings;
use crate::cost::counter_files;
use crate::data::InputFile;
use crate::plan::{
    PlannedRun, data_paths, find_source, find_teacher, reward_folders, reward_sources, template_file, training_files,
    validation_files,
};

/// Denies this process what a run does not need: files other than those of [`list_read_files`] and the folder for runs,
/// sockets, programs and processes ([`confine_files`], [`deny_calls`]). Until the result is dropped, also limits the
/// memory that it may take in addition to its present memory to [`memory_of_plan`]. Must be called before other threads
/// start. Does nothing and returns `None` if the run may use a CUDA device ([`can_use_accelerator`]), whose driver
/// opens files and devices of its own.
///
/// # Errors
/// When the operating system refuses a restriction.
pub(super) fn confine(settings: &RunSettings) -> io::Result<Option<MemoryLimit>> {
    if can_use_accelerator(settings) {
        return Ok(None);
    }
    confine_files(&list_read_files(settings), &[PathBuf::from(&settings.file.run.folder)])?;
    deny_calls()?;
    MemoryLimit::set(memory_of_plan(settings)).map(Some)
}

/// Returns the bytes of memory that planning a run may take: an estimate from the sizes of its models and training data
/// (0 for a missing file), at most the machine's free memory and swap space and a margin. For a model that is
/// initialized randomly, which has no weight files to estimate from, returns that maximum.
#[must_use]
pub fn memory_of_plan(settings: &RunSettings) -> u64 {
    let files = training_files(settings).unwrap_or_default();
    let data = files.iter().map(InputFile::estimated_bytes).fold(0, u64::saturating_add);
    let teachers = (0..settings.file.teacher.len()).map(|number| find_teacher(settings, number));
    let models = [find_source(settings)].into_iter().chain(teachers).flatten().chain(reward_sources(settings));
    let needed = reading_memory(models.map(|source| source.bytes()).fold(0, u64::saturating_add), data);
    let free = memory::available_with_swap().unwrap_or(u64::MAX).saturating_add(MARGIN);
    if settings.file.model.initialize.is_some() { free } else { needed.min(free) }
}

/// Limits the memory that this process may take in addition to its present memory, for good: to twice the estimated
/// memory of a planned run plus the limits `device-bytes`, `linear-memory` and `activation-bytes` of its method, or to
/// the machine's free memory and swap space if that is less, in both cases plus [`MARGIN`]. Does nothing if the run may
/// use a CUDA device.
///
/// # Errors
/// When the operating system refuses the limit.
pub fn confine_memory(plan: &PlannedRun) -> io::Result<()> {
    if can_use_accelerator(&plan.settings) {
        return Ok(());
    }
    let limits = &plan.method.limits;
    let own = limits.device_bytes.saturating_add(limits.linear_memory).saturating_add(limits.activation_bytes);
    let wanted = (2 * plan.summary.memory.total()).saturating_add(own);
    limit_memory(wanted.min(memory::available_with_swap().unwrap_or(u64::MAX)).saturating_add(MARGIN))
}

/// Returns the names of the rings of this operating system that confine the worker of a run with these settings; none
/// if the run may use a CUDA device.
#[must_use]
pub fn active_rings(settings: &RunSettings) -> Vec<&'static str> {
    if can_use_accelerator(settings) {
        return Vec::new();
    }
    Ring::list().into_iter().filter(|ring| ring.is_active).map(|ring| ring.name).collect()
}

/// Whether the run may compute on a CUDA device of this machine: `train.device` is not `cpu`, and NVIDIA's driver is
/// here.
fn can_use_accelerator(settings: &RunSettings) -> bool {
    settings.file.train.device != "cpu" && has_nvidia_driver()
}

/// The file name extensions of a model's files.
const MODEL_EXTENSIONS: [&str; 6] = ["safetensors", "gguf", "json", "jinja", "model", "txt"];

/// Lists the files and folders that a run with these settings reads, whether they exist or not: its model, teachers,
/// adapter, training and validation data, method, verifiers and environment, the cache of compiled code, the project's
/// `tunebox.lock`, and the counters of energy. A model or data of the hub that is not present is fetched, unless the
/// run is offline.
#[must_use]
pub fn list_read_files(settings: &RunSettings) -> Vec<PathBuf> {
    let file = &settings.file;
    let mut read = vec![settings.path("model.path", &file.model.path)];
    read.extend(data_paths(settings).into_iter().map(|(_, path)| path));
    read.extend(template_file(settings));
    let files =
        [training_files(settings).unwrap_or_default(), validation_files(settings).ok().flatten().unwrap_or_default()];
    read.extend(files.concat().iter().flat_map(|file| data_files(&file.path)));
    // A model of the hub; if there is none, the plan says so.
    let teachers = || (0..file.teacher.len()).map(|number| find_teacher(settings, number));
    for found in [find_source(settings)].into_iter().chain(teachers()).flatten() {
        read.extend(model_files(found.path()));
    }
    let adapter = file.model.adapter.iter().map(|path| settings.path("model.adapter", path));
    read.extend(adapter.flat_map(|path| model_files(&path)));
    read.extend(component_files(settings));
    read.extend(counter_files());
    read
}

/// Lists the files and folders that loading the components of these settings reads: their packages, the reward models,
/// the cache of compiled code, and the project's `tunebox.lock`. Leaves out a component that cannot be found.
#[must_use]
pub fn component_files(settings: &RunSettings) -> Vec<PathBuf> {
    let packages = settings.references().into_iter().flatten().flat_map(|found| package_files(&found));
    let lock = settings.project().join("tunebox.lock");
    let reward_models = reward_folders(settings).into_iter().flat_map(|folder| model_files(&folder));
    packages.chain(reward_models).chain([lock]).chain(settings.compiling.cache.clone()).collect()
}

/// Lists the files and folders that opening a package reads: its own folder, or its file and the signature file beside
/// it, if it is given by a path; the list of signers that `TUNEBOX_PUBLISHERS` names; and the home folder of tunebox,
/// if it exists, which holds the store and the known signers.
#[must_use]
pub fn package_files(package: &Reference) -> Vec<PathBuf> {
    let mut read = match package {
        Reference::Folder(path) => vec![path.clone()],
        Reference::File(path) => vec![path.with_added_extension("minisig"), path.clone()],
        _ => Vec::new(),
    };
    read.extend(variable("TUNEBOX_PUBLISHERS").map(PathBuf::from));
    read.extend(tunebox_package::home::existing().ok().flatten());
    read
}

/// Lists what finding and reading the data file at `path` reads: where its links end, since files in a cache are links
/// out of their folder; and of a file in the cache of a hub, the folder of its data set.
#[must_use]
pub fn data_files(path: &Path) -> Vec<PathBuf> {
    path.canonicalize().into_iter().chain(cached_folder(path).map(Path::to_owned)).collect()
}

/// Lists the files and folders that loading the model, adapter or checkpoint at `path` reads: `path`; the resolved
/// paths of the entries of that folder that have the extension of a model's file, in any case; and the `run.lock` and
/// `run.toml` in `path` and in the three folders above, existing or not. In the cache of a hub also the folders
/// `blobs`, whose files have no extensions, and `refs`.
#[must_use]
pub fn model_files(path: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let linked = entries.filter_map(|entry| entry.canonicalize().ok()).filter(|target| {
        target.extension().is_some_and(|ending| MODEL_EXTENSIONS.iter().any(|known| ending.eq_ignore_ascii_case(known)))
    });
    // Of a folder `snapshots/COMMIT`, or a file in it.
    let snapshots = path.ancestors().take(3).find(|above| above.ends_with("snapshots")).and_then(Path::parent);
    let cached = snapshots.into_iter().flat_map(|model| ["blobs", "refs"].map(|name| model.join(name)));
    // Vectors of a checkpoint lie in `RUN/steps/NUMBER`.
    let locks = path.ancestors().take(4).flat_map(|above| ["run.lock", "run.toml"].map(|name| above.join(name)));
    linked.chain(cached).chain(locks).chain([path.to_owned()]).collect()
}
