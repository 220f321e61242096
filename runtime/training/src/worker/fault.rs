//! What can go wrong with a worker, and what it reports itself, for a person.

use std::path::PathBuf;

use tunebox_foundation::explain::{Exit, Explain, Explanation};

/// What happened to a worker.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkerFault {
    /// It said itself what went wrong with the run.
    Reported(Box<Explanation>, Exit),
    /// It ended without a word: how, and the last line of its standard error.
    Died {
        /// In words that follow its name: "was killed by signal 9".
        how: String,
        /// What it wrote last, safe to show.
        words: Option<String>,
    },
    /// It could not be started.
    NotStarted(String),
    /// What came over the pipe is not what a worker says.
    Garbled(String),
}

/// A fault of a worker, and how far the run was.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}", self.what())]
pub struct WorkerError {
    /// What happened.
    pub fault: WorkerFault,
    /// The method, once it is known.
    pub method: Option<String>,
    /// How far it was, as in "in step 3".
    pub moment: String,
    /// The run's folder, once it is known.
    pub folder: Option<PathBuf>,
    /// The last whole checkpoint.
    pub kept: Option<(u64, PathBuf)>,
}

impl WorkerError {
    pub(super) fn new(fault: WorkerFault) -> Self {
        Self { fault, method: None, moment: "before the first step".into(), folder: None, kept: None }
    }

    fn what(&self) -> String {
        let whose = self.method.as_ref().map_or("the worker".to_owned(), |name| format!("the worker of `{name}`"));
        let when = &self.moment;
        match &self.fault {
            WorkerFault::Reported(explanation, _) => explanation.what.clone(),
            WorkerFault::Died { how, .. } => format!("{whose} {how} {when}"),
            WorkerFault::NotStarted(_) => "the worker cannot be started".into(),
            WorkerFault::Garbled(_) => format!("{whose} cannot be understood {when}"),
        }
    }
}

impl Explain for WorkerError {
    fn category(&self) -> &'static str {
        "worker"
    }

    fn why(&self) -> Option<String> {
        Some(match &self.fault {
            WorkerFault::Reported(explanation, _) => return explanation.why.clone(),
            WorkerFault::Died { words: Some(words), .. } => format!("its last words: {words}"),
            WorkerFault::Died { how, .. } if how.contains("SIGKILL") => {
                "somebody ended it, or the system did because memory ran out; this program and the run's files are whole"
                    .into()
            }
            WorkerFault::Died { .. } => {
                "a method that is not built in runs in a process of its own, so nothing else was harmed".into()
            }
            WorkerFault::NotStarted(why) | WorkerFault::Garbled(why) => why.clone(),
        })
    }

    fn kept(&self) -> Option<String> {
        match (&self.fault, &self.kept) {
            (WorkerFault::Reported(explanation, _), _) => explanation.kept.clone(),
            (_, Some((step, path))) => Some(format!("step {step}, {}", path.display())),
            (WorkerFault::NotStarted(_), None) => None,
            (_, None) => Some("nothing had been saved yet".into()),
        }
    }

    fn hint(&self) -> Option<String> {
        match (&self.fault, &self.folder, &self.kept) {
            (WorkerFault::Reported(explanation, _), ..) => explanation.hint.clone(),
            (WorkerFault::NotStarted(_), ..) => {
                Some("`--in-process` does without it, for methods that you trust".into())
            }
            (_, Some(folder), Some(_)) => {
                Some(format!("`tunebox train {}/run.toml --resume` goes on from there", folder.display()))
            }
            _ => Some("the same command again; if it happens again, a smaller `train.batch` needs less memory".into()),
        }
    }

    fn exit(&self) -> Exit {
        match &self.fault {
            WorkerFault::Reported(_, exit) => *exit,
            _ => Exit::Sandbox,
        }
    }

    fn explanation(&self) -> Explanation {
        match &self.fault {
            WorkerFault::Reported(explanation, _) => (**explanation).clone(),
            _ => Explanation {
                category: self.category().into(),
                what: self.what(),
                location: self.location(),
                snippet: None,
                output: None,
                why: self.why(),
                kept: self.kept(),
                hint: self.hint(),
                trace: None,
            },
        }
    }
}
