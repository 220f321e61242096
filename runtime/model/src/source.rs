//! Finds the files of a model that the user gives by a folder, a GGUF file, or a name on a hub. Reads no weights;
//! `hub` downloads.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use sha2::{Digest, Sha256};
use tunebox_foundation::hexadecimal::hexadecimal;
use tunebox_foundation::{bounded, paths};

use crate::configuration::Configuration;
use crate::error::{Error, MODEL_FORMS, Result};
use crate::hub::{Hub, Name};
use crate::weights::safetensors;

/// The files of a model beside its configuration and weights. Downloading or copying a model takes those of them that
/// exist, and never code.
pub(crate) const COMPANIONS: [&str; 10] = [
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
];

/// The files of a model.
#[derive(Debug, Clone)]
pub struct Source {
    name: String,
    /// The model's folder or GGUF file.
    path: PathBuf,
    /// Safetensors files sorted by name, or the GGUF file itself.
    weights: Vec<PathBuf>,
    /// The sha256 of the weight files once it was computed; clones share it.
    digest: Arc<OnceLock<String>>,
}

impl Source {
    /// Finds a model by its folder, its GGUF file, or its name on the hub of [`Hub::from_environment`]. Downloads files
    /// of a hub model that the cache lacks, unless `offline`.
    ///
    /// # Errors
    /// When [`Source::find`] fails.
    pub fn open(name: &str, offline: bool) -> Result<Self> {
        Self::find(name, None, &Hub::from_environment(offline))
    }

    /// Finds a model by its folder, its GGUF file or its name on the hub, from which missing files are downloaded. A
    /// path that exists wins over a hub name. `revision` is used only for a hub name without an `@revision`.
    ///
    /// # Errors
    /// When `name` is neither a path that exists nor a name on the hub, the path is not a model or a folder with
    /// several GGUF files, or [`Hub::fetch`] fails.
    pub fn find(name: &str, revision: Option<&str>, hub: &Hub) -> Result<Self> {
        let path = Path::new(name);
        if path.exists() {
            return Self::from_path(name, path);
        }
        let Some(wanted) = Name::parse(name, revision) else {
            let why = "there is no such file or folder, and a name on the hub is written `owner/model`";
            let hint = || "give a folder with `config.json`, a GGUF file, or `owner/model`".into();
            return Err(Error::not_a_model(name, why, paths::did_you_mean(path).unwrap_or_else(hint)));
        };
        Self::from_path(name, &hub.fetch(&wanted)?)
    }

    /// The source for the folder or file `path`, which exists: a folder with `config.json` and safetensors, a GGUF
    /// file, or a folder with one GGUF file and no `config.json`. `name` is what the user gave. Errors: none of these,
    /// several GGUF files, and of a folder a family that is not known or a broken index of weight files. A GGUF file is
    /// not read.
    pub(crate) fn from_path(name: &str, path: &Path) -> Result<Self> {
        let (path, weights) = if path.is_dir() && path.join("config.json").is_file() {
            check_family(path)?;
            (path.to_path_buf(), safetensors::files(path)?)
        } else {
            let file = find_gguf_file(path)?;
            (file.clone(), vec![file])
        };
        Ok(Self { name: name.into(), path, weights, digest: Arc::default() })
    }

    /// A source for a folder with `config.json` and safetensors weights of any family. `name` is what the user gave.
    /// Errors: no weights, or a broken index of weight files.
    pub(crate) fn of_folder(name: &str, folder: &Path) -> Result<Self> {
        let (name, path) = (name.into(), folder.to_path_buf());
        Ok(Self { name, weights: safetensors::files(folder)?, path, digest: Arc::default() })
    }

    /// A source for a folder with a model's `config.json` and tokenizer but no weights; its name is the folder's path.
    /// `config.json` takes the place of the weight files, also in the digest.
    ///
    /// # Errors
    /// When it has no `config.json`.
    pub(crate) fn without_weights(folder: &Path) -> Result<Self> {
        let shape = folder.join("config.json");
        std::fs::metadata(&shape).map_err(|error| Error::file(&shape, error))?;
        let (name, path) = (folder.display().to_string(), folder.to_path_buf());
        Ok(Self { name, path, weights: vec![shape], digest: Arc::default() })
    }

    /// The path or hub name by which the user gave the model.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether everything is in one GGUF file, not in a folder with `config.json`, tokenizer files and safetensors.
    #[must_use]
    pub fn is_gguf(&self) -> bool {
        self.weights == [self.path.as_path()]
    }

    /// The model's folder or GGUF file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files that hold weights: safetensors sorted by name, or the one GGUF file.
    #[must_use]
    pub fn weight_files(&self) -> &[PathBuf] {
        &self.weights
    }

    /// The bytes of the weight files; files that cannot be read count 0.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.weights.iter().map(|file| std::fs::metadata(file).map_or(0, |metadata| metadata.len())).sum()
    }

    /// The sha256 over the weight files, in hexadecimal. Reads all files at the first call, and caches the result for
    /// this source and its clones.
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

/// Largest `config.json` that [`check_family`] reads, in bytes.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// Fails if the `config.json` in a model's folder names a family that is not known, or quantized weights, so that this
/// is reported before weights are missed or fetched. Reports nothing else about that file, and does not read one of
/// more than [`MAX_CONFIG_BYTES`].
pub(crate) fn check_family(folder: &Path) -> Result<()> {
    let file = folder.join("config.json");
    let text = bounded::read_text(&file, MAX_CONFIG_BYTES).unwrap_or_default();
    serde_json::from_str(&text).map_or(Ok(()), |config| Configuration::check_family(&config, &file))
}

/// Finds the GGUF file at a path: the path itself, or the only one directly in a folder. Goes by the extension `gguf`,
/// in any case, and reads no content. Errors: another file, or a folder with none or several.
fn find_gguf_file(path: &Path) -> Result<PathBuf> {
    let refuse = |why: String, hint: &str| Err(Error::not_a_model(path.display(), why, hint));
    if !path.is_dir() {
        if has_extension(path, "gguf") {
            return Ok(path.to_path_buf());
        }
        let is_part = has_extension(path, "safetensors") || path.ends_with("config.json");
        let folder = "give the folder that it lies in: the configuration and the tokenizer are needed as well";
        let hint = if is_part { folder } else { MODEL_FORMS };
        return refuse("one file holds a whole model only if it is GGUF".into(), hint);
    }
    let listed = std::fs::read_dir(path).map_err(|error| Error::file(path, error))?;
    let mut files: Vec<PathBuf> = listed.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| has_extension(path, "gguf"));
    files.sort();
    match files.as_slice() {
        [one] => Ok(one.clone()),
        [] => refuse("it holds neither `config.json` nor a GGUF file".into(), MODEL_FORMS),
        [first, ..] => {
            let hint = format!("name one of them, as in `{}`", first.display());
            refuse(format!("it holds {} GGUF files", files.len()), &hint)
        }
    }
}

/// Whether a path has this extension, in any case.
fn has_extension(path: &Path, wanted: &str) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(wanted))
}

/// The sha256, in hexadecimal, over the bytes of the files in the given order. Reads every byte: about a second per
/// gigabyte.
///
/// # Errors
/// When a file cannot be read.
pub fn digest(files: &[PathBuf]) -> Result<String> {
    let mut hasher = Sha256::new();
    let mut piece = vec![0; 1 << 20];
    for path in files {
        let failed = |error| Error::file(path, error);
        let mut file = bounded::open(path).map_err(failed)?;
        loop {
            let length = file.read(&mut piece).map_err(failed)?;
            if length == 0 {
                break;
            }
            hasher.update(&piece[..length]);
        }
    }
    Ok(hexadecimal(&hasher.finalize()))
}

#[cfg(test)]
mod tests {
    use tunebox_foundation::explain::Explain;

    use super::*;

    fn folder_with(name: &str, text: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(name), text).unwrap();
        folder
    }

    #[test]
    fn a_word_that_is_nothing_says_what_a_model_may_be() {
        let error = Source::open("nothing-like-this", true).unwrap_err();
        assert_eq!(error.to_string(), "`nothing-like-this` is not a model");
        let folder = folder_with("tiny.gguf", "GGUF");
        let error = Source::open(&folder.path().join("tyni.gguf").display().to_string(), true).unwrap_err();
        assert_eq!(error.hint(), Some(format!("did you mean `{}`?", folder.path().join("tiny.gguf").display())));
    }

    #[test]
    fn a_folder_without_weights_says_what_was_looked_for() {
        let folder = folder_with("config.json", "{}");
        let error = Source::open(&folder.path().display().to_string(), true).unwrap_err();
        let why = error.explanation().why;
        assert_eq!(why.unwrap(), "it has neither `model.safetensors` nor `model.safetensors.index.json`");
    }

    #[test]
    fn a_family_that_is_not_known_is_named_before_missing_weights() {
        let folder = folder_with("config.json", r#"{"model_type": "mamba"}"#);
        let error = Source::open(&folder.path().display().to_string(), true).unwrap_err();
        assert!(error.to_string().contains("mamba") && error.to_string().contains("model_type"), "{error}");
    }

    #[test]
    fn weights_that_mlx_quantized_are_refused_with_what_to_give() {
        let config = r#"{"model_type": "qwen2", "quantization": {"group_size": 64, "bits": 4}}"#;
        let folder = folder_with("config.json", config);
        let error = Source::open(&folder.path().display().to_string(), true).unwrap_err();
        assert!(error.to_string().contains("quantized by MLX"), "{error}");
        assert!(error.hint().unwrap().contains("GGUF"), "{:?}", error.hint());
    }

    #[test]
    fn weights_that_another_program_quantized_are_refused_by_its_name() {
        for program in ["bitsandbytes", "gptq", "fp8"] {
            let config =
                format!(r#"{{"model_type": "qwen2", "quantization_config": {{"quant_method": "{program}"}}}}"#);
            let folder = folder_with("config.json", &config);
            let error = Source::open(&folder.path().display().to_string(), true).unwrap_err();
            assert!(error.to_string().contains(&format!("quantized by {program}")), "{error}");
            assert!(error.hint().unwrap().contains("--precision nf4"), "{:?}", error.hint());
        }
    }

    #[test]
    fn a_folder_with_one_gguf_file_is_that_file() {
        let folder = folder_with("small.gguf", "GGUF");
        let source = Source::open(&folder.path().display().to_string(), true).unwrap();
        assert_eq!(source.path(), folder.path().join("small.gguf"));
    }

    #[test]
    #[cfg(unix)]
    fn of_what_never_ends_there_is_no_digest() {
        assert!(digest(&[PathBuf::from("/dev/zero")]).is_err());
    }

    #[test]
    fn several_files_are_one_stream() {
        let (first, second) = (folder_with("one", "a"), folder_with("two", "bc"));
        let files = [first.path().join("one"), second.path().join("two")];
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest(&files).unwrap(), abc);
    }
}
