//! Plans a run on every rank, and checks that all ranks plan and compute the same.

use std::fs;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use tunebox_compute::fused::instruction_sets;
use tunebox_foundation::explain::{Explanation, ensure};
use tunebox_foundation::files;
use tunebox_model::RankGroup;

use crate::checkpoint::{self, Identity};
use crate::configuration::RunSettings;
use crate::error::Error;
use crate::lock::write::system_name;
use crate::observer::StepEvent;
use crate::plan::{Plan, plan};

/// Plans a run on this rank, and compares the plan with the plans of the other ranks. Rank 0 plans a resumed run first,
/// and sends the files of its folder to the other ranks. In a run of one process only plans.
///
/// # Errors
/// The errors of [`plan`], and a rank that failed or plans another run.
pub(crate) fn plan_on_ranks(mut settings: RunSettings) -> Result<Plan, Error> {
    let ranks = settings.ranks.clone();
    if !ranks.are_several() {
        return plan(settings);
    }
    let planned = match (settings.resume, ranks.position().0) {
        (false, _) => plan(settings),
        (true, 0) => {
            let planned = plan(settings)?;
            send_folder(&ranks, Some((&planned.run.folder, &checkpoints_to_send(&planned))), Path::new(""))?;
            Ok(planned)
        }
        (true, _) => {
            let runs = PathBuf::from(&settings.file.run.folder);
            settings.file.run.name = Some(send_folder(&ranks, None, &runs)?);
            plan(settings)
        }
    }?;
    compare_plans(&ranks, &planned)?;
    Ok(planned)
}

/// Fails unless all ranks have the identity and the number of steps of this rank's plan, and a processor with the same
/// instruction sets.
fn compare_plans(ranks: &RankGroup, planned: &Plan) -> Result<(), Error> {
    let kind = format!("{} with {}", system_name(), instruction_sets());
    let own = (&planned.run.identity, planned.run.summary.steps, &kind);
    let message = serde_json::to_vec(&own).map_err(|error| error.to_string());
    let (rank, _) = ranks.position();
    for (other, message) in ranks.gather("plan", message)?.iter().enumerate() {
        let read = serde_json::from_slice::<(Identity, u64, String)>(message);
        let different = match read {
            Err(error) => format!("its plan cannot be read: {error}"),
            Ok((identity, steps, other_kind)) => {
                let mut differences = planned.run.identity.differences(&identity);
                if steps != planned.run.summary.steps {
                    differences.push(format!("{steps} steps instead of {}", planned.run.summary.steps));
                }
                if other_kind != kind {
                    differences.push(format!("its processor computes with {other_kind}, this one with {kind}"));
                }
                differences.join("; ")
            }
        };
        if !different.is_empty() {
            let what = format!("rank {other} has another run than rank {rank}: {different}");
            let hint = "start all ranks with the same program, files and settings, on one kind of processor";
            return Err(Explanation::new("ranks", what).with_hint(hint).into());
        }
    }
    Ok(())
}

/// Sends the files of a run's folder from rank 0 to the other ranks, which write them into the folder of the same name
/// in `runs`. Rank 0 gives its folder and the checkpoints to send in `folder`; the other ranks give `None`. Returns the
/// name of the folder. Fails for a file whose path leads out of the folder.
fn send_folder(ranks: &RankGroup, folder: Option<(&Path, &[PathBuf])>, runs: &Path) -> Result<String, Error> {
    let own = folder.map_or(Ok((String::new(), Vec::new())), |(folder, checkpoints)| {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok::<_, files::FileError>((name, list_files(folder, checkpoints)?))
    });
    let folder = folder.map(|(folder, _)| folder);
    let message = own.map_err(|error| error.to_string());
    let message = message.and_then(|own| serde_json::to_vec(&own).map_err(|error| error.to_string()));
    let first = ranks.gather("folder", message)?.swap_remove(0);
    let (name, listed): (String, Vec<(String, u64)>) = serde_json::from_slice(&first).map_err(unreadable)?;
    for (path, length) in listed {
        let source = folder.map_or(Ok(Vec::new()), |folder| files::read(&folder.join(&path), length));
        let content = ranks.gather("file", source.map_err(|error| error.to_string()))?.swap_remove(0);
        if folder.is_none() {
            let target = runs.join(&name).join(&path);
            let is_inside = |path: &str| Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
            ensure(is_inside(&name) && is_inside(&path), || {
                let what = format!("rank 0 sent a file `{path}` of the run `{name}`, which is outside of its folder");
                Error::from(Explanation::new("ranks", what))
            })?;
            let parent = target.parent().unwrap_or(runs);
            fs::create_dir_all(parent).map_err(files::FileError::at("created", parent))?;
            files::write(&target, &content)?;
        }
    }
    Ok(name)
}

/// The folders of the checkpoints that a resumed run reads: the one that it resumes, and that of its best validation.
/// Empty without a checkpoint.
fn checkpoints_to_send(planned: &Plan) -> Vec<PathBuf> {
    let Some((path, state)) = &planned.run.checkpoint else { return Vec::new() };
    let best = state.validations.best.map(|best| checkpoint::folder(&planned.run.folder, best.step));
    std::iter::once(path.clone()).chain(best).collect()
}

/// Lists the files of a run's folder that a resumed run reads: the path of each in the folder, and its length in bytes.
/// Leaves out HTML pages, event files, links, and all checkpoints but `checkpoints`.
fn list_files(folder: &Path, checkpoints: &[PathBuf]) -> Result<Vec<(String, u64)>, files::FileError> {
    let mut found = Vec::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(below) = waiting.pop() {
        for name in files::names(&folder.join(&below))? {
            let path = below.join(&name);
            let about =
                folder.join(&path).symlink_metadata().map_err(files::FileError::at("read", &folder.join(&path)))?;
            let is_output = name.ends_with(".html") || name.contains("tfevents");
            let is_other = path.parent() == Some(Path::new("steps")) && !checkpoints.contains(&folder.join(&path));
            if about.is_dir() && !is_other {
                waiting.push(path);
            } else if about.is_file() && !is_output {
                found.push((path.to_string_lossy().into_owned(), about.len()));
            }
        }
    }
    Ok(found)
}

/// The error for a message of rank 0 that cannot be read.
fn unreadable(error: serde_json::Error) -> Error {
    Explanation::new("ranks", format!("a message of rank 0 cannot be read: {error}")).into()
}

/// What a rank says about a step that it has executed.
#[derive(Serialize, Deserialize, PartialEq, Clone)]
struct StepReport {
    step: u64,
    /// The bits of the gradient's norm and of the metrics.
    numbers: Vec<u64>,
}

/// Checks that all ranks have computed the same numbers in a step. Returns whether any rank is to stop after it (`stop`
/// on that rank). Without other ranks, returns `stop`.
///
/// # Errors
/// A rank that failed, or computed other numbers.
pub(crate) fn agree_on_step(ranks: &RankGroup, event: &StepEvent, stop: bool) -> Result<bool, Error> {
    if !ranks.are_several() {
        return Ok(stop);
    }
    let metrics = event.metrics.iter().map(|(_, value)| *value);
    let numbers = std::iter::once(event.gradient_norm).chain(metrics).map(f64::to_bits).collect();
    let own = StepReport { step: event.step, numbers };
    let message = postcard::to_stdvec(&(stop, &own)).map_err(|error| error.to_string());
    let mut stops = false;
    for (rank, message) in ranks.gather("step", message)?.iter().enumerate() {
        let read = postcard::from_bytes::<(bool, StepReport)>(message).ok();
        let Some((other_stops, _)) = read.filter(|(_, other)| *other == own) else {
            let what =
                format!("rank {rank} computed other numbers than rank {} in step {}", ranks.position().0, own.step);
            let hint = "the ranks need one kind of processor, and the same program and files";
            return Err(Explanation::new("ranks", what).with_hint(hint).into());
        };
        stops |= other_stops;
    }
    Ok(stops)
}
