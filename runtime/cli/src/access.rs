//! What a command does before it reads untrusted files, and what it may reach from then on.

use std::path::PathBuf;

use tempfile::TempDir;
use tunebox_compute::device;
use tunebox_sandbox::confinement::has_nvidia_driver;
use tunebox_training::plan::{self, CompiledCode, fetch};
use tunebox_training::{RunSettings, list_read_files};

use crate::arguments::Global;
use crate::supervisor::block_signals;
use crate::terminal::{Failure, Terminal};

/// The files that a command needs while it reads untrusted files, and where its compiled components are.
#[derive(Default)]
pub(crate) struct Access {
    /// Files and folders to read; only in the child.
    pub(crate) read: Vec<PathBuf>,
    /// Folders to write to. The parent creates those that are missing, and removes them again if they stay empty.
    pub(crate) write: Vec<PathBuf>,
    /// Whether the command edits lines of a terminal.
    pub(crate) edits_lines: bool,
    /// The compiled code of the components that the command uses; only in the parent.
    pub(crate) code: Option<CompiledCode>,
    /// The folder of the child's temporary files; only in the parent.
    pub(crate) scratch: Option<TempDir>,
}

impl Access {
    /// Creates the access of a command that reads these files and folders and writes nothing.
    pub(crate) fn read_only(read: Vec<PathBuf>) -> Self {
        Self { read, ..Self::default() }
    }

    /// Prepares the run of these settings. In the child, lists the files that the run reads. In the parent, lists none,
    /// but compiles method and verifiers and fetches the model. Returns `None` after that if the run computes on an
    /// accelerator. Errors: wrong settings, a component that is refused, or a model that cannot be fetched.
    pub(crate) fn prepare_run(
        terminal: Terminal,
        settings: &RunSettings,
        global: &Global,
    ) -> Result<Option<Self>, Failure> {
        let mut access = Self::default();
        if global.supervised {
            access.read = list_read_files(settings);
        } else {
            access.code = Some(compile_run(terminal, settings, true)?);
            fetch(settings)?;
        }
        Ok(Some(access).filter(|_| computes_on_cpu(&settings.file.train.device)))
    }
}

/// Whether a command with `--device` set to `device` computes on the CPU: always for `cpu`; for another name, such as
/// `auto`, only if it is parsed to the CPU and the machine has no NVIDIA driver, which this function does not start.
/// False for a name of no device.
pub(crate) fn computes_on_cpu(device: &str) -> bool {
    device == "cpu" || (!has_nvidia_driver() && device::parse(device).is_ok_and(|device| device.is_cpu()))
}

/// Compiles the verifiers of a run, and its method if `has_method` is true. Shows a warning if the usual cache cannot
/// be used. First blocks the signals that the parent waits for, in this thread and those that it starts. Errors:
/// signals that cannot be blocked, or a component that cannot be found or compiled.
pub(crate) fn compile_run(
    terminal: Terminal,
    settings: &RunSettings,
    has_method: bool,
) -> Result<CompiledCode, Failure> {
    // Compiling starts threads, which must not take the signals that the parent waits for.
    block_signals().map_err(|error| Failure::usage(format!("signals cannot be awaited: {error}"), "try again"))?;
    let code = plan::compile(settings.clone(), has_method)?;
    if let Some(text) = &code.warning {
        terminal.warn(text);
    }
    Ok(code)
}
