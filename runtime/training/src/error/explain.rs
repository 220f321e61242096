//! What a person is told about what ended a run.

use std::path::Path;

use tunebox_foundation::explain::{Exit, Explain, Explanation, Snippet};
use tunebox_foundation::paths;

use super::Error;
use crate::runs::beginning_with;

impl Explain for Error {
    fn category(&self) -> &'static str {
        match self {
            Self::RunName(_) => "config",
            Self::ModelLacks { .. } => "model",
            other => other.below().map_or("training", Explain::category),
        }
    }

    fn location(&self) -> Option<String> {
        match self {
            Self::NonFinite { step, last: Some((value, at)), .. } => {
                Some(format!("step {step}; last good loss {value:.4} at step {at}"))
            }
            Self::NonFinite { step, last: None, .. } => Some(format!("step {step}; no step before it was good")),
            Self::RunExists { folder, .. } | Self::NothingToResume { folder, .. } | Self::Finished { folder, .. } => {
                Some(folder.display().to_string())
            }
            Self::NoRun { folder }
            | Self::Running { folder, .. }
            | Self::Unfinished { folder, .. }
            | Self::Revised { folder, .. } => Some(folder.display().to_string()),
            Self::Different { checkpoint, .. } => Some(checkpoint.display().to_string()),
            Self::SampleGone { path, .. } => Some(path.display().to_string()),
            Self::Named { source, spot } => Some(source.location().unwrap_or_else(|| spot.place.clone())),
            other => other.below()?.location(),
        }
    }

    fn snippet(&self) -> Option<Snippet> {
        match self {
            Self::Named { source, spot } if source.location().is_none() => spot.snippet(None),
            other => other.below()?.snippet(),
        }
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
            Self::Running { process: Some(process), .. } => Some(format!("process {process} trains it")),
            Self::Running { process: None, .. } => Some("another process trains it".into()),
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
            Self::Step { source, kept } => of_step(source, kept.is_some()),
            Self::NonFinite { .. } | Self::Verifier { .. } => of_step(self, false),
            Self::Elsewhere { .. } => Some(
                "replay it on a machine with that device; without `--replay` all that went in and came out is compared \
                 anywhere"
                    .into(),
            ),
            Self::Unlike { .. } => Some("change it back, or begin a new run with it".into()),
            Self::Revised { .. } => Some("train anew with the method as it is; that run can be done again".into()),
            Self::Different { checkpoint, .. } => Some(set_back(checkpoint)),
            Self::Damaged { path, .. } if path.ends_with(crate::lock::FILE) => {
                Some("put back the `run.lock` that the run wrote; what it recorded is known from nowhere else".into())
            }
            Self::Damaged { .. } => Some("remove that checkpoint; the one before it can be resumed".into()),
            Self::ModelLacks { hint, .. } => Some(hint.clone()),
            Self::SampleGone { project, .. } => Some(unpacking(project)),
            Self::NoSample => Some("name a model, data and a method: `--model PATH --data FILE --method lora`".into()),
            other => of_run_meant(other).or_else(|| other.below()?.hint()),
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
            category: self.category().into(),
            what: self.to_string(),
            location: self.location(),
            snippet: self.snippet(),
            output: self.output(),
            why: self.why(),
            kept: self.kept(),
            hint: self.hint(),
            trace: None,
        };
        // A room below may say more than the parts; what was kept, and where a run file says so, is known here alone.
        match (self, self.below()) {
            (Self::Named { .. }, Some(below)) => {
                Explanation { location: own.location, snippet: own.snippet, ..below.explanation() }
            }
            (_, Some(below)) => Explanation { kept: own.kept, hint: own.hint, ..below.explanation() },
            (_, None) => own,
        }
    }
}

/// What to do about what ended a step; whether the run was saved before decides whether it can go on.
fn of_step(source: &Error, saved: bool) -> Option<String> {
    let (again, resuming) =
        if saved { ("the same command with `--resume`", "--resume ") } else { ("the same command", "") };
    match source {
        Error::NonFinite { quantity, untrained, rate, .. } => {
            Some(of_numbers(*untrained, (*quantity == "gradient").then_some(resuming), *rate))
        }
        Error::Verifier { .. } => {
            Some(format!("mend the verifier, or give it more with `--set limits.verifier-seconds=…`; then {again}"))
        }
        Error::File(error) if saved && error.disk_full() => Some(format!("free some space, then {again}")),
        Error::Sandbox(error) => match error.enough() {
            Some(setting) => Some(format!("the same command with `{resuming}--set {setting}` allows it more")),
            None => error.hint(),
        },
        other => other.hint(),
    }
}

/// What to do about numbers that are not finite. Of a gradient the update can be left out, in a run that goes on perhaps.
fn of_numbers(untrained: bool, gradient: Option<&str>, rate: f64) -> String {
    let cause = if untrained {
        "no update was made before, so no rate helps: look at the method's formula, and `log` its parts".to_owned()
    } else {
        format!("a lower rate often helps: a new run with `--set train.rate={:e}`", rate / 10.0)
    };
    let left_out = gradient.map_or_else(String::new, |resuming| {
        format!("; the same command with `{resuming}--set train.skip-non-finite=true` leaves such updates out")
    });
    cause + &left_out
}

/// What to do where the run that was meant is not there, or is no longer, or is in the way.
fn of_run_meant(error: &Error) -> Option<String> {
    Some(match error {
        Error::RunExists { resumable: true, .. } => "`--resume` goes on with it; another `--name` starts anew".into(),
        Error::RunExists { .. } => {
            "another `--name` starts anew; without one, runs get the name of their method and a number".into()
        }
        Error::NoRun { folder } => run_meant(folder),
        Error::NoSuchRun { meant: Some(meant), .. } => format!("did you mean `{}`?", meant.display()),
        Error::NoSuchRun { meant: None, .. } => "`tunebox list` shows the runs that are here".into(),
        Error::NothingToResume { meant: Some(name), .. } => format!("did you mean `--name {name}`?"),
        Error::NothingToResume { .. } => "leave `--resume` out to start a run".into(),
        Error::Running { .. } => {
            "wait for its end, or stop it where it runs, by Ctrl-C; without `--resume`, another `--name` begins a run beside it"
                .into()
        }
        Error::Finished { hint, .. } | Error::Unfinished { hint, .. } => hint.clone(),
        _ => return None,
    })
}

/// What to do about a run that is told other things than the one of a checkpoint.
fn set_back(checkpoint: &Path) -> String {
    let run = checkpoint.parent().and_then(Path::parent).unwrap_or(checkpoint);
    let from = beginning_with(checkpoint).map_or_else(String::new, |from| format!(" that begins there: {from}"));
    format!("set these back, as `{}` has them; or start a new run{from}", run.join("run.toml").display())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_failed_is_done_again_by_what_can_be_done_where_it_was_saved_and_where_not() {
        let hint = |quantity, untrained, saved: bool| {
            let source = Error::NonFinite { quantity, step: 1, last: None, untrained, rate: 1e-3 };
            let kept = saved.then(|| (5, "runs/a/steps/000005".into()));
            Error::Step { source: Box::new(source), kept }.hint().unwrap()
        };
        assert!(hint("gradient", false, true).contains("train.rate=1e-4"));
        assert!(hint("gradient", false, true).contains("`--resume --set train.skip-non-finite=true`"));
        assert!(hint("gradient", false, false).contains("with `--set train.skip-non-finite=true`"));
        assert!(!hint("loss", false, true).contains("skip-non-finite"), "there is no update to leave out");
        assert!(hint("loss", true, false).contains("`log` its parts"));
        assert!(!hint("loss", true, false).contains("train.rate"), "no rate had a part in it");
    }

    #[test]
    fn a_new_run_is_told_to_begin_with_a_checkpoint_where_that_holds_what_it_can_begin_with() {
        let run = tempfile::tempdir().unwrap();
        let checkpoint = run.path().join("steps/000010");
        std::fs::create_dir_all(&checkpoint).unwrap();
        let settings = run.path().join("run.toml");
        let back = format!("set these back, as `{}` has them; or start a new run", settings.display());
        assert_eq!(set_back(&checkpoint), back, "one of all weights");
        std::fs::write(checkpoint.join("adapter_config.json"), "{}").unwrap();
        let from = format!(" that begins there: `--set model.adapter={}`", checkpoint.display());
        assert_eq!(set_back(&checkpoint), back + &from);
    }
}
