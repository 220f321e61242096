//! What can go wrong before `componentize-py` has made a component, and when it cannot.

use tunebox_foundation::explain::Explain;

/// Why a method in Python does not become a component.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PythonError {
    /// There is no `componentize-py`.
    #[error("no `componentize-py` on this machine")]
    NoCompiler,
    /// There is no Python that the source can be asked with.
    #[error("no Python {least} or later on this machine")]
    NoPython {
        /// The least version.
        least: &'static str,
        /// The version that was found.
        found: Option<String>,
    },
    /// It could not make the component.
    #[error("`componentize-py` makes no component of this method")]
    NotMade {
        /// What it says.
        problem: String,
    },
}

impl Explain for PythonError {
    fn category(&self) -> &'static str {
        "build"
    }

    fn why(&self) -> Option<String> {
        Some(match self {
            Self::NoCompiler => "a method in Python becomes a component by it, and it is not on the path".into(),
            Self::NoPython { found: Some(found), .. } => format!("here is {found}, and the method is read by Python"),
            Self::NoPython { found: None, .. } => "the method is read by Python".into(),
            Self::NotMade { problem } => problem.clone(),
        })
    }

    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NoCompiler => {
                "`pip install componentize-py`, or `python3 -m venv .venv && .venv/bin/pip install componentize-py` in \
                 the method's folder"
                    .into()
            }
            Self::NoPython { least, .. } => format!("install Python {least} or later"),
            Self::NotMade { .. } => {
                "a module that a method imports must be pure Python: one with compiled parts does not load there".into()
            }
        })
    }
}
