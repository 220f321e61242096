//! What can go wrong before `componentize-py` has made a component, and when it cannot.

use tunebox_foundation::explain::Explain;

/// Why a method in Python does not become a component.
#[derive(Debug, Clone, thiserror::Error, Explain)]
#[explain(category = "build")]
pub enum PythonError {
    /// There is no `componentize-py`.
    #[error("no `componentize-py` on this machine")]
    #[explain(
        why = "it turns a method in Python into a component, and it is not on the path",
        hint = "`pip install componentize-py`, or `python3 -m venv .venv && .venv/bin/pip install componentize-py` in the method's folder"
    )]
    NoCompiler,
    /// There is no Python that the source can be asked with.
    #[error("no Python {least} or later on this machine")]
    #[explain(why = match found { Some(found) => format!("here is {found}, and the method is read by Python"), None => "the method is read by Python".to_owned() }, hint = "install Python {least} or later")]
    NoPython {
        /// The least version.
        least: &'static str,
        /// The version that was found.
        found: Option<String>,
    },
    /// It could not make the component.
    #[error("`componentize-py` makes no component of this method")]
    #[explain(why = problem.clone(), hint = "a module that a method imports must be pure Python: one with compiled parts does not load there")]
    NotMade {
        /// What it says.
        problem: String,
    },
}
