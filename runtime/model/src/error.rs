//! The errors of models and their files, with hints on what to do about them.
//! Leaves errors of tensors to `tunebox_compute::error`, and how errors are shown to the command line.

use std::fmt::Display;
use std::path::Path;

use tunebox_foundation::explain::{Explain, Explanation};
use tunebox_foundation::files::FileError;
use tunebox_foundation::nearest::nearest;

/// A result with an [`Error`] of a model.
pub type Result<T> = std::result::Result<T, Error>;

/// The forms in which a model can be given, for hints.
pub(crate) const MODEL_FORMS: &str =
    "a model is a folder with `config.json` and safetensors weights, a GGUF file, or a hub name";

/// What to do when the files of a model do not belong together.
const REFETCH: &str = "fetch the model again, all files of one revision together";

/// What can go wrong with a model.
#[derive(Debug, thiserror::Error, Explain)]
#[explain(category = "model")]
pub enum Error {
    /// An argument is outside what the model allows.
    #[error("{0}")]
    Argument(String),
    /// The policy's deadline passed before the work was finished.
    #[error("the time for this call is over")]
    OutOfTime,
    /// A file cannot be read or written.
    #[error(transparent)]
    #[explain(source)]
    File(#[from] FileError),
    /// An error that callers show and do not handle otherwise.
    #[error("{0}")]
    #[explain(source)]
    Explained(Box<Explanation>),
    /// A setting of the model, or of an adapter, has a value that this program cannot run.
    #[error("`{key}` is `{found}`")]
    #[explain(location = place.clone(), why = why.clone(), hint = hint_of_key(key).to_owned())]
    Key {
        /// The setting.
        key: String,
        /// Its value.
        found: String,
        /// The file.
        place: String,
        /// What is wrong with the value, or what was expected.
        why: String,
    },
    /// A file has another format than its name says, or ends too early.
    #[error("{what}")]
    #[explain(location = place.clone(), hint = "the download may have stopped early; fetch the file again")]
    Broken {
        /// What is wrong.
        what: String,
        /// The file.
        place: String,
    },
    /// The settings of a new adapter name a linear map that the model does not have.
    #[error("the adapter targets `{name}`, no linear map of this model is called that")]
    #[explain(hint = suggest_module(name, known))]
    NoModule {
        /// The name, as written in the settings.
        name: String,
        /// The names of the linear maps of a block.
        known: Vec<&'static str>,
    },
    /// The settings of a new adapter name a layer that the model does not have.
    #[error("the adapter names layer `{layer}`, the model has layers 0 to {}", layers.saturating_sub(1))]
    NoLayer {
        /// The index of the layer, as written in the settings.
        layer: usize,
        /// The number of layers of the model.
        layers: usize,
    },
    /// A setting of a new adapter does not fit the model: a regular expression is invalid or matches other modules than
    /// it can, or a rank is above that of a weight.
    #[error("{what}")]
    #[explain(hint = suggest_setting(key).to_owned())]
    AdapterSetting {
        /// The setting, as run files call it below `train.adapter`.
        key: &'static str,
        /// What is wrong.
        what: String,
    },
    /// A request that this program does not support, on purpose.
    #[error("{0}")]
    Unsupported(String),
    /// Another process of the run failed or does not answer.
    #[error("{0}")]
    #[explain(source)]
    Ranks(Box<Explanation>),
    /// A tensor operation failed.
    #[error(transparent)]
    #[explain(source)]
    Compute(#[from] tunebox_compute::Error),
    /// The tensor library failed.
    #[error("the tensor library stopped: {0}")]
    #[explain(category = "tensor")]
    Candle(#[from] candle_core::Error),
}

impl Error {
    /// An error for a path or name that is not a model, or lacks a part of one: the message is "`name` is not a model",
    /// with the reason `why` and a hint on what to do.
    pub(crate) fn not_a_model(name: impl Display, why: impl Into<String>, hint: impl Into<String>) -> Self {
        Explanation::new("model", format!("`{name}` is not a model")).with_why(why).with_hint(hint).into()
    }

    /// The error for a setting or a weight of the model, `what`, that is missing in the file or folder `place`. Its
    /// hint is to fetch the model again.
    pub(crate) fn missing(what: impl Display, place: &Path) -> Self {
        Self::explained(format!("{what} is missing"), place).with_why("the model needs it").with_hint(REFETCH).into()
    }

    /// An [`Error::Key`]: the key, its value, the file, and what is wrong with the value.
    pub(crate) fn key(key: &str, found: impl Into<String>, file: &Path, why: String) -> Self {
        Self::Key { key: key.into(), found: found.into(), place: file.display().to_string(), why }
    }

    /// An [`Error::File`] for a file that cannot be read or written.
    pub(crate) fn file(path: &Path, source: std::io::Error) -> Self {
        FileError::at("used", path)(source).into()
    }

    /// The error for a weight whose shape in the file `place` is not the one that the configuration asks for.
    pub(crate) fn tensor_shape(name: &str, wanted: &[usize], found: &[usize], place: &Path) -> Self {
        let what = format!("tensor `{name}` is {found:?}, the configuration asks for {wanted:?}");
        let why = "configuration and weights are of different models";
        Self::explained(what, place).with_why(why).with_hint(REFETCH).into()
    }

    /// An [`Error::Broken`] for a file whose contents are wrong: `what` is the whole message.
    pub(crate) fn broken(path: &Path, what: impl Into<String>) -> Self {
        Self::Broken { what: what.into(), place: path.display().to_string() }
    }

    /// The error, with the message `what`, for a file of an adapter or of edits at `path` that has not what the model
    /// needs.
    pub(crate) fn adapter(path: &Path, what: impl Into<String>) -> Self {
        Self::explained(what, path).into()
    }

    /// An explanation in the category `model`, with the message `what` and the file or folder `place`, without reason
    /// and hint.
    fn explained(what: impl Into<String>, place: &Path) -> Explanation {
        Explanation::new("model", what).with_location(place.display().to_string())
    }
}

impl From<Explanation> for Error {
    /// Wraps the explanation as an [`Error::Explained`].
    fn from(explanation: Explanation) -> Self {
        Self::Explained(Box::new(explanation))
    }
}

/// The hint for a setting of a new adapter that does not fit the model.
fn suggest_setting(key: &str) -> &'static str {
    match key {
        "initialize" => "take a smaller rank, give these modules one by `rank-pattern`, or leave `initialize` out",
        "targets" => "name maps of the attention, such as `q_proj`, or use `all-linear`, which selects all of them",
        "modules-to-save" => "name ends of paths, such as `embed_tokens`, `lm_head`, `norm` or `mlp.down_proj`",
        "ensure-weight-tying" => "leave `ensure-weight-tying` out",
        _ => "a module's path is, for example, `model.layers.0.self_attn.q_proj`",
    }
}

/// The hint about a setting that cannot be run: of the family of a model, what else to take.
fn hint_of_key(key: &str) -> &'static str {
    match key {
        "model_type" | "general.architecture" => "take a model of one of these families; no other is read",
        _ => "another checkpoint may do without it",
    }
}

/// The hint for a module name that is that of no linear map. Lists `known`, the names of the model's maps, after the
/// name among them that is most similar to `name`, or before `all-linear` if none is similar. For embedding and head,
/// the setting that trains them whole.
fn suggest_module(name: &str, known: &[&str]) -> String {
    let list = known.join(", ");
    if ["embed_tokens", "lm_head"].iter().any(|whole| name.ends_with(whole)) {
        return format!("train it whole by `modules-to-save`; low-rank factors are for the maps {list}");
    }
    match nearest(name, known.iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`? (maps: {list})"),
        None => format!("maps: {list}; or `all-linear`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_shape_names_the_tensor_and_both_shapes() {
        let error = Error::tensor_shape("model.norm.weight", &[64], &[32], Path::new("model.safetensors"));
        assert_eq!(error.to_string(), "tensor `model.norm.weight` is [32], the configuration asks for [64]");
    }
}
