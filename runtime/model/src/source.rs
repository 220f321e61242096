//! What a person means by a model: a folder, a GGUF file, or a name on a hub.
//! Finds the files and reads no weights; leaves fetching to `hub`.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use tunebox_foundation::paths;

use crate::error::{Error, MODEL_FORMS, Result};
use crate::hub::{Hub, Name, Progress};
use crate::weights::{digest, safetensors};

/// The files of a model.
#[derive(Debug, Clone)]
pub struct Source {
    name: String,
    form: Form,
    digest: Arc<OnceLock<String>>,
}

/// How the files hold the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// `config.json`, tokenizer files and safetensors in a folder.
    Folder {
        /// The folder.
        path: PathBuf,
        /// Its weight files, sorted by name.
        weights: Vec<PathBuf>,
    },
    /// Everything in one GGUF file.
    Gguf {
        /// The file.
        path: PathBuf,
    },
}

impl Source {
    /// Finds a model by its folder, its GGUF file, or its name on the hub; fetches what is not here yet unless
    /// `offline`.
    ///
    /// # Errors
    /// When there is no such model, or it cannot be fetched.
    pub fn open(name: &str, offline: bool) -> Result<Self> {
        Self::find(name, None, &Hub::from_environment(offline), &mut |_| {})
    }

    /// Finds a model by its folder, its GGUF file or its name on the hub, from which missing files are downloaded.
    /// `revision` counts if the name holds none. Calls `watch` with the progress of downloads.
    ///
    /// # Errors
    /// When there is no such model, or it cannot be fetched.
    pub fn find(name: &str, revision: Option<&str>, hub: &Hub, watch: &mut dyn FnMut(&Progress<'_>)) -> Result<Self> {
        let path = Path::new(name);
        let form = if path.is_dir() {
            form_of_folder(path)?
        } else if path.exists() {
            form_of_file(path)?
        } else if let Some(wanted) = Name::parse(name, revision) {
            let fetched = hub.fetch(&wanted, watch)?;
            if fetched.is_dir() { form_of_folder(&fetched)? } else { form_of_file(&fetched)? }
        } else {
            let why = "there is no such file or folder, and a name on the hub is written `owner/model`";
            let hint = || "give a folder with `config.json`, a GGUF file, or `owner/model`".into();
            return Err(Error::not_a_model(name, why, paths::did_you_mean(path).unwrap_or_else(hint)));
        };
        Ok(Self { name: name.into(), form, digest: Arc::new(OnceLock::new()) })
    }

    /// A source for a folder with a model's `config.json` and tokenizer but no weights; `config.json` stands in for the
    /// weight files.
    ///
    /// # Errors
    /// When it has no `config.json`.
    pub(crate) fn without_weights(folder: &Path) -> Result<Self> {
        let shape = folder.join("config.json");
        std::fs::metadata(&shape).map_err(|error| Error::file(&shape, error))?;
        let form = Form::Folder { path: folder.to_path_buf(), weights: vec![shape] };
        Ok(Self { name: folder.display().to_string(), form, digest: Arc::new(OnceLock::new()) })
    }

    /// The model as the person named it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How the files hold the model.
    #[must_use]
    pub fn form(&self) -> &Form {
        &self.form
    }

    /// The model's folder or GGUF file.
    #[must_use]
    pub fn path(&self) -> &Path {
        match &self.form {
            Form::Folder { path, .. } | Form::Gguf { path } => path,
        }
    }

    /// The files that hold weights: safetensors sorted by name, or the one GGUF file.
    #[must_use]
    pub fn weight_files(&self) -> &[PathBuf] {
        match &self.form {
            Form::Folder { weights, .. } => weights,
            Form::Gguf { path } => std::slice::from_ref(path),
        }
    }

    /// The sha256 over the weight files, in hexadecimal. Reads all files the first time, and caches the result.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn digest(&self) -> Result<String> {
        if let Some(known) = self.digest.get() {
            return Ok(known.clone());
        }
        let fresh = digest(self.weight_files())?;
        Ok(self.digest.get_or_init(|| fresh).clone())
    }
}

/// The form of a model in one file. Errors: the file is not a GGUF file by its extension.
fn form_of_file(path: &Path) -> Result<Form> {
    if has_extension(path, "gguf") {
        return Ok(Form::Gguf { path: path.to_path_buf() });
    }
    let hint = if has_extension(path, "safetensors") || path.ends_with("config.json") {
        "give the folder that it lies in: the configuration and the tokenizer are needed as well"
    } else {
        MODEL_FORMS
    };
    Err(Error::not_a_model(path.display(), "one file holds a whole model only if it is GGUF", hint))
}

/// The form of a folder: a Hugging Face folder if it has `config.json`, else its only GGUF file. Errors: neither, or
/// several GGUF files.
fn form_of_folder(folder: &Path) -> Result<Form> {
    if folder.join("config.json").is_file() {
        let weights = safetensors::files(folder)?;
        return Ok(Form::Folder { path: folder.to_path_buf(), weights });
    }
    let listed = std::fs::read_dir(folder).map_err(|error| Error::file(folder, error))?;
    let mut files: Vec<PathBuf> = listed.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| has_extension(path, "gguf"));
    files.sort();
    match files.as_slice() {
        [one] => Ok(Form::Gguf { path: one.clone() }),
        [] => {
            let why = "it holds neither `config.json` nor a GGUF file";
            Err(Error::not_a_model(folder.display(), why, MODEL_FORMS))
        }
        [first, ..] => {
            let hint = format!("name one of them, as in `{}`", first.display());
            Err(Error::not_a_model(folder.display(), format!("it holds {} GGUF files", files.len()), hint))
        }
    }
}

/// Whether a path has this extension, in any case.
fn has_extension(path: &Path, wanted: &str) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(wanted))
}

#[cfg(test)]
mod tests {
    use tunebox_foundation::explain::Explain;

    use super::*;

    #[test]
    fn a_word_that_is_nothing_says_what_a_model_may_be() {
        let error = Source::open("nothing-like-this", true).unwrap_err();
        assert_eq!(error.to_string(), "`nothing-like-this` is not a model");
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("tiny.gguf"), "GGUF").unwrap();
        let error = Source::open(&folder.path().join("tyni.gguf").display().to_string(), true).unwrap_err();
        assert_eq!(error.hint(), Some(format!("did you mean `{}`?", folder.path().join("tiny.gguf").display())));
    }

    #[test]
    fn a_folder_without_weights_says_what_was_looked_for() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), "{}").unwrap();
        let error = Source::open(&folder.path().display().to_string(), true).unwrap_err();
        let Error::NotAModel { why, .. } = error else { panic!("{error}") };
        assert_eq!(why, "it has neither `model.safetensors` nor `model.safetensors.index.json`");
    }

    #[test]
    fn a_folder_with_one_gguf_file_is_that_file() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("small.gguf"), "GGUF").unwrap();
        let source = Source::open(&folder.path().display().to_string(), true).unwrap();
        assert_eq!(source.path(), folder.path().join("small.gguf"));
    }
}
