//! What goes wrong between this program and the process of a method, beside what the method does.

use tunebox_foundation::explain::Explain;

/// A process that cannot be spoken to, or a test that asks for what there is not.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TwinError {
    /// The connection broke outside of a call.
    #[error("the process of the method cannot be reached")]
    Broken {
        /// What the system says.
        problem: String,
    },
    /// What a test wants cannot be read, or is nothing that a bench does.
    #[error("the bench cannot do what the test wants")]
    Wanted {
        /// What is wrong with it.
        problem: String,
        /// What to do about it.
        hint: String,
    },
}

impl TwinError {
    /// A connection that broke.
    pub(super) fn broken(error: std::io::Error) -> Self {
        Self::Broken { problem: error.to_string() }
    }

    /// A wish that cannot be met.
    pub(super) fn wanted(problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Wanted { problem: problem.into(), hint: hint.into() }
    }
}

impl Explain for TwinError {
    fn category(&self) -> &'static str {
        "test"
    }

    fn why(&self) -> Option<String> {
        match self {
            Self::Broken { problem } | Self::Wanted { problem, .. } => Some(problem.clone()),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Broken { .. } => None,
            Self::Wanted { hint, .. } => Some(hint.clone()),
        }
    }
}
