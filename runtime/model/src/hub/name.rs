//! The names of models and data sets on a hub.

use std::fmt;

use hf_hub::{Repo, RepoType};

use crate::weights::safetensors::is_plain;

/// How the address of a data set begins.
const DATA_SETS: &str = "hf://datasets/";

/// The branch on which the hub keeps a copy of a data set in Parquet.
const PARQUET: &str = "refs/convert/parquet";

/// What a repository of a hub holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Model,
    DataSet,
}

/// The name of a model or of data on a hub, for example `owner/model`, `owner/model@revision`, `owner/model/file.gguf`,
/// `hf://datasets/owner/name@revision/folder`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    pub(super) kind: Kind,
    /// `owner/name`.
    pub(super) repository: String,
    pub(super) revision: String,
    /// The GGUF file of a model, or the file or folder in a data set; `None` for a model in safetensors files, and for
    /// the top folder of a data set.
    pub(super) path: Option<String>,
}

impl Name {
    /// Parses the name of a model, `owner/model` or `owner/model/file.gguf` (`.gguf` in any case), either with
    /// `@revision` at its end; `None` for anything else. Each part between slashes, also of the revision, is made of
    /// ASCII letters, digits, `-`, `_` and `.`, and does not begin with `.`. A revision in the name wins over
    /// `revision`; the default is `main`.
    #[must_use]
    pub fn parse(name: &str, revision: Option<&str>) -> Option<Self> {
        let (path, own) = match name.split_once('@') {
            Some((path, own)) => (path, Some(own)),
            None => (name, None),
        };
        let revision = own.or(revision).unwrap_or("main");
        let parts: Vec<&str> = path.split('/').collect();
        let file = match parts.as_slice() {
            [_, _] => None,
            [_, _, file] if file.to_ascii_lowercase().ends_with(".gguf") => Some((*file).to_owned()),
            _ => return None,
        };
        let sound = parts.iter().all(|part| is_word(part)) && revision.split('/').all(is_word);
        let repository = parts.get(..2)?.join("/");
        sound.then(|| Self { kind: Kind::Model, repository, revision: revision.to_owned(), path: file })
    }

    /// Parses the address of data, `hf://datasets/OWNER/NAME[@REVISION][/PATH]` as `huggingface_hub` and DuckDB write
    /// it; `None` for anything else. PATH is a file or folder in the data set. Slashes in a revision are written `%2F`,
    /// but not in `refs/convert/parquet` and `refs/pr/NUMBER`; `~parquet` stands for the former. The default revision
    /// is `main`. Owner, name and revision have the characters of [`Name::parse`], PATH may also have `+`, `=`, `,` and
    /// `@`.
    #[must_use]
    pub fn parse_data(address: &str) -> Option<Self> {
        let (owner, rest) = address.strip_prefix(DATA_SETS)?.split_once('/')?;
        let (name, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (name, revision, path) = match name.split_once('@') {
            None => (name, "main".to_owned(), path),
            Some((name, "~parquet")) => (name, PARQUET.to_owned(), path),
            Some((name, "refs")) => {
                let (kind, rest) = path.split_once('/')?;
                let (own, path) = rest.split_once('/').unwrap_or((rest, ""));
                (name, format!("refs/{kind}/{own}"), path)
            }
            Some((name, revision)) => (name, revision.replace("%2F", "/"), path),
        };
        let path = path.trim_end_matches('/');
        let path = (!path.is_empty()).then(|| path.to_owned());
        // The cache writes the slash between them so.
        let is_name = |part: &str| is_word(part) && !part.contains("--");
        let sound = is_name(owner) && is_name(name) && revision.split('/').all(is_word);
        let sound = sound && path.as_deref().is_none_or(is_file_path);
        sound.then(|| Self { kind: Kind::DataSet, repository: format!("{owner}/{name}"), revision, path })
    }

    /// The file or folder in a data set, or the GGUF file of a model; empty if the name has none.
    #[must_use]
    pub fn path(&self) -> &str {
        self.path.as_deref().unwrap_or_default()
    }

    /// The address of the copy in Parquet that the hub makes of most data sets.
    #[must_use]
    pub fn parquet_copy(&self) -> String {
        format!("{DATA_SETS}{}@~parquet", self.repository)
    }

    /// The repository at `revision`, as the client of the hub names it.
    pub(super) fn repository(&self, revision: &str) -> Repo {
        let kind = match self.kind {
            Kind::Model => RepoType::Model,
            Kind::DataSet => RepoType::Dataset,
        };
        Repo::with_revision(self.repository.clone(), kind, revision.to_owned())
    }
}

impl fmt::Display for Name {
    /// Writes `owner/model[/file]@revision`, or the address of data with its revision, as the parsers read them.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (repository, revision) = (&self.repository, &self.revision);
        let path = self.path.iter().map(|path| format!("/{path}")).collect::<String>();
        match self.kind {
            Kind::Model => write!(out, "{repository}{path}@{revision}"),
            Kind::DataSet => write!(out, "{DATA_SETS}{repository}@{}{path}", revision.replace('/', "%2F")),
        }
    }
}

/// Whether a text is meant as an address on a hub: it begins with `hf://`.
#[must_use]
pub fn is_address(text: &str) -> bool {
    text.starts_with("hf://")
}

/// Whether a text is the path of a file in a repository that neither leads elsewhere nor has a meaning in a URL: parts
/// with slashes between them, each not hidden and of ASCII letters, digits and `-_.+=,@`.
pub(super) fn is_file_path(path: &str) -> bool {
    path.split('/').all(|part| is_of(part, "-_.+=,@"))
}

/// Whether a text is made of ASCII letters, digits, `-`, `_` and `.`, is not empty and does not begin with `.`.
fn is_word(text: &str) -> bool {
    is_of(text, "-_.")
}

/// Whether a text is a plain file name of ASCII letters, digits and the characters of `more`.
fn is_of(text: &str, more: &str) -> bool {
    is_plain(text) && text.chars().all(|letter| letter.is_ascii_alphanumeric() || more.contains(letter))
}
