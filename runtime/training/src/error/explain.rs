//! What a person is told about what ended a run.

use std::path::Path;

use tunebox_compute::explain::{Exit, Explain, Explanation, Snippet};
use tunebox_compute::paths;

use super::Error;

impl Explain for Error {
    fn area(&self) -> &'static str {
        match self {
            Self::RunName(_) => "config",
            Self::ModelLacks { .. } => "model",
            other => other.below().map_or("training", Explain::area),
        }
    }

    fn place(&self) -> Option<String> {
        match self {
            Self::NonFinite { step, last: Some((value, at)), .. } => {
                Some(format!("step {step}; last good loss {value:.4} at step {at}"))
            }
            Self::NonFinite { step, last: None, .. } => Some(format!("step {step}; no step before it was good")),
            Self::RunExists { folder, .. } | Self::NothingToResume { folder, .. } | Self::Finished { folder, .. } => {
                Some(folder.display().to_string())
            }
            Self::NoRun { folder } | Self::Unfinished { folder, .. } | Self::Revised { folder, .. } => {
                Some(folder.display().to_string())
            }
            Self::Different { checkpoint, .. } => Some(checkpoint.display().to_string()),
            Self::SampleGone { path, .. } => Some(path.display().to_string()),
            other => other.below()?.place(),
        }
    }

    fn snippet(&self) -> Option<Snippet> {
        self.below()?.snippet()
    }

    fn why(&self) -> Option<String> {
        match self {
            Self::Verifier { reason, .. } => Some(reason.clone()),
            Self::Different { .. } => {
                Some("a resumed run ends in the same bits as one never stopped, or not at all".into())
            }
            Self::NoRun { .. } => Some("a run's folder holds `run.lock`, and there is none".into()),
            Self::NoSuchRun { .. } => Some("there is no such folder, and a hub is never asked for a run".into()),
            Self::NothingToResume { why, .. } | Self::Unfinished { why, .. } => Some((*why).into()),
            Self::Finished { .. } => Some("all its steps are done".into()),
            Self::RunExists { .. } => Some("a run never writes over another".into()),
            Self::Elsewhere { why, .. } => why.clone(),
            Self::Unlike { what } => Some(what.clone()),
            Self::Revised { after, .. } => {
                let steps: Vec<String> = after.iter().map(ToString::to_string).collect();
                Some(format!("by `tunebox dev`, after step {}; the versions before are not kept", steps.join(", ")))
            }
            Self::RunName(_) => {
                Some("it becomes a folder: letters, digits, `-`, `_` and `.`, not starting with `.`".into())
            }
            Self::SampleGone { .. } => Some("they are unpacked by `--sample` and kept out of what is shared".into()),
            other => other.below()?.why(),
        }
    }

    fn kept(&self) -> Option<String> {
        match self {
            Self::Step { kept: Some((step, path)), .. } => Some(format!("step {step}, {}", path.display())),
            Self::Step { kept: None, .. } => Some("nothing had been saved yet".into()),
            other => other.below()?.kept(),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::NonFinite { rate, .. } => Some(format!(
                "a lower rate often helps: a new run with `--set train.rate={:e}`; `--set train.skip-non-finite=true \
                 --resume` leaves such updates out",
                rate / 10.0
            )),
            Self::Step { source, kept: Some(_) } if matches!(&**source, Self::File(error) if error.disk_full()) => {
                Some("free some space, then the same command with `--resume`".into())
            }
            Self::Verifier { .. } => Some(
                "mend the verifier, or give it more with `--set limits.verifier-seconds=…`; then `--resume`".into(),
            ),
            Self::RunExists { resumable: true, .. } => {
                Some("`--resume` goes on with it; another `--name` starts anew".into())
            }
            Self::RunExists { .. } => {
                Some("another `--name` starts anew; without one, runs get the name of their method and a number".into())
            }
            Self::NoRun { folder } => Some(run_meant(folder)),
            Self::NoSuchRun { meant: Some(meant), .. } => Some(format!("did you mean `{}`?", meant.display())),
            Self::NoSuchRun { meant: None, .. } => Some("`tunebox list` shows the runs that are here".into()),
            Self::Elsewhere { .. } => Some(
                "replay it on a machine with that device; without `--replay` all that went in and came out is compared \
                 anywhere"
                    .into(),
            ),
            Self::Unlike { .. } => Some("begin a new run with it".into()),
            Self::Revised { .. } => Some("train anew with the method as it is; that run can be done again".into()),
            Self::NothingToResume { meant: Some(name), .. } => Some(format!("did you mean `--name {name}`?")),
            Self::NothingToResume { .. } => Some("leave `--resume` out to start a run".into()),
            Self::Different { checkpoint, .. } => Some(set_back(checkpoint)),
            Self::Damaged { path, .. } if path.ends_with(crate::lock::FILE) => {
                Some("put back the `run.lock` that the run wrote; what it recorded is known from nowhere else".into())
            }
            Self::Damaged { .. } => Some("remove that checkpoint; the one before it can be resumed".into()),
            Self::ModelLacks { hint, .. } | Self::Finished { hint, .. } | Self::Unfinished { hint, .. } => {
                Some(hint.clone())
            }
            Self::SampleGone { project, .. } => Some(unpacking(project)),
            Self::NoSample => Some("name a model, data and a method: `--model PATH --data FILE --method lora`".into()),
            other => other.below()?.hint(),
        }
    }

    fn exit(&self) -> Exit {
        match self {
            Self::NonFinite { .. } => Exit::No,
            Self::Verifier { .. } => Exit::Sandbox,
            other => other.below().map_or(Exit::Usage, Explain::exit),
        }
    }

    fn explanation(&self) -> Explanation {
        let own = Explanation {
            area: self.area().into(),
            what: self.to_string(),
            place: self.place(),
            snippet: self.snippet(),
            output: self.output(),
            why: self.why(),
            kept: self.kept(),
            hint: self.hint(),
            trace: None,
        };
        // A room below may say more than the parts; what was kept is known here alone.
        match self.below() {
            Some(below) => Explanation { kept: own.kept, hint: own.hint, ..below.explanation() },
            None => own,
        }
    }
}

/// What to do about a run that is told other things than the one of a checkpoint.
fn set_back(checkpoint: &Path) -> String {
    let run = checkpoint.parent().and_then(Path::parent).unwrap_or(checkpoint);
    let settings = run.join("run.toml");
    format!(
        "set these back, as `{}` has them; or start a new run that continues the adapter: `--set model.adapter={}`",
        settings.display(),
        checkpoint.display()
    )
}

/// The run that was probably meant by a folder that holds none.
fn run_meant(folder: &Path) -> String {
    let meant = if folder.exists() { None } else { paths::did_you_mean(folder) };
    meant.unwrap_or_else(|| "give the folder that `tunebox train` named at its end".into())
}

/// The command that unpacks the sample among the runs of a folder; empty for the present one.
fn unpacking(project: &Path) -> String {
    let elsewhere = if project.as_os_str().is_empty() { String::new() } else { format!("-C {} ", project.display()) };
    format!("`tunebox {elsewhere}train --sample --dry-run` puts them back")
}
