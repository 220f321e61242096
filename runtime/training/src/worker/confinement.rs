//! What a worker may reach of the machine, for the rings of the operating system.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use tunebox_compute::{code_cache, memory};
use tunebox_foundation::environment::variable;
use tunebox_package::Reference;
use tunebox_sandbox::confinement::{confine_files, deny_calls, limit_memory};

use crate::configuration::RunSettings;
use crate::plan::{PlannedRun, find_source};

/// Memory beside what is estimated: stacks of threads, caches of the allocator.
const MARGIN: u64 = 768 << 20;

/// Denies this process what planning a run does not need. Comes before other threads start. Does nothing on a machine with a
/// CUDA device that the run may use: its driver decides what it opens.
///
/// # Errors
/// When the system refuses.
pub(super) fn confine_plan(settings: &RunSettings) -> io::Result<()> {
    if may_use_accelerator(settings) {
        return Ok(());
    }
    let reach = Reach::of(settings, true);
    confine_files(&reach.read, &reach.write).map(drop)
}

/// Denies this process what the steps of a planned run do not need: further files, sockets, programs and processes, and
/// memory beyond twice the estimate and the method's limits, or beyond what the machine has free. Does nothing where
/// [`confine_plan`] does nothing.
///
/// # Errors
/// When the system refuses.
pub(super) fn confine_steps(plan: &PlannedRun) -> io::Result<()> {
    if may_use_accelerator(&plan.settings) {
        return Ok(());
    }
    let reach = Reach::of(&plan.settings, false);
    confine_files(&reach.read, &reach.write)?;
    deny_calls()?;
    let limits = &plan.method.limits;
    let own = limits.device_bytes.saturating_add(limits.linear_memory).saturating_add(limits.activation_bytes);
    let wanted = (2 * plan.summary.memory.total()).saturating_add(own);
    limit_memory(wanted.min(memory::available_with_swap().unwrap_or(u64::MAX)).saturating_add(MARGIN))
}

/// Whether the run may compute on a CUDA device of this machine.
fn may_use_accelerator(settings: &RunSettings) -> bool {
    settings.file.train.device != "cpu" && Path::new("/dev/nvidiactl").exists()
}

/// The endings of a model's files.
const ENDINGS: [&str; 6] = ["safetensors", "gguf", "json", "jinja", "model", "txt"];

/// Files and folders that a run reads, and folders that it writes to.
struct Reach {
    read: Vec<PathBuf>,
    write: Vec<PathBuf>,
}

impl Reach {
    /// Lists what the run of these settings needs: its model, data, method, verifiers and the locks of their packages to
    /// read; the folder of its runs, and with `caches` that of compiled code, which this creates, to write.
    fn of(settings: &RunSettings, caches: bool) -> Self {
        let file = &settings.file;
        let mut read = vec![settings.path("model.path", &file.model.path), settings.path("data.path", &file.data.path)];
        // A model of the hub; if there is none, the plan says so.
        read.extend(find_source(settings).iter().flat_map(|source| with_links(source.path())));
        let adapter = file.model.adapter.iter().map(|path| settings.path("model.adapter", path));
        read.extend(adapter.flat_map(|path| with_links(&path)));
        read.extend(file.data.validation.iter().map(|path| settings.path("data.validation", path)));
        read.extend(
            settings
                .references()
                .into_iter()
                .flatten()
                .filter_map(|found| match found {
                    Reference::Folder(path) => Some(vec![path]),
                    Reference::File(path) => Some(vec![path.with_added_extension("minisig"), path]),
                    _ => None,
                })
                .flatten(),
        );
        read.push(settings.project().join("tunebox.lock"));
        read.extend(
            ["TUNEBOX_PUBLISHERS", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "CONDA_PREFIX"]
                .iter()
                .filter_map(|name| variable(name).map(PathBuf::from)),
        );
        read.extend(std::env::split_paths(&variable("LD_LIBRARY_PATH").unwrap_or_default()));
        read.extend(tunebox_package::home::existing().ok().flatten());
        let mut write = vec![PathBuf::from(&file.run.folder)];
        if let Some(compiled) = code_cache::folder("compiled").filter(|_| caches) {
            // Best effort: what cannot be created cannot be written to either, and the run says so.
            let _ = DirBuilder::new().recursive(true).mode(0o700).create(&compiled);
            write.push(compiled);
        }
        Self { read, write }
    }
}

/// A file or folder with the files that links in it lead to, as people link weights: files with the ending of a model's. In
/// the cache of a hub, the folder of its files without endings instead.
fn with_links(path: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let linked = entries.filter_map(|entry| entry.canonicalize().ok()).filter(|target| {
        target.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending.eq_ignore_ascii_case(known)))
    });
    let snapshots = path.parent().filter(|parent| parent.ends_with("snapshots"));
    let blobs = snapshots.and_then(|folder| Some(folder.parent()?.join("blobs")));
    linked.chain(blobs).chain([path.to_owned()]).collect()
}
