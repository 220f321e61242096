//! The folder of a new method, verifier or environment: a template, or the source of a built-in under another name.
//!
//! It builds, tests and trains without changes; the caller adds what else a run needs.

mod kind;
mod like;
mod name;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tunebox_foundation::explain::Explanation;

use crate::build::python::files_for_editors;
use crate::sources::{self, Files};
use crate::{Error, World, files};
pub use name::Language;

/// Every file of the templates, by language and path. Written by the build script.
static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/template.rs"));

/// What the templates of a method say in place of its description, for its author to replace.
const DESCRIPTION: &str = "What this method does, in a sentence";

/// What the templates of methods, verifiers and environments say in place of a description, for their author to
/// replace.
pub const DESCRIPTIONS: [&str; 3] =
    [DESCRIPTION, "What this verifier does, in a sentence", "What this environment does, in a sentence"];

/// The line of a template's `Cargo.toml` that names the SDK.
const SDK: &str = "tunebox = { path = \".tunebox/sdk/rust\", version = \"0.1\" }\n";

/// The heading in a template's README from which on the text is true of every folder.
const EVERY_FOLDER: &str = "## The folder\n";

/// The name of the method in a template's files, which the new method's name replaces.
const PLACEHOLDER: &str = "blank";

/// The data shapes that have a template: folders in `sdk/template/shapes` with the source in each language, and with
/// the part of the README that the shape decides. `contrast` has no folder: its template is that of `instructions` with
/// the texts in [`CONTRAST_TEXTS`] replaced.
pub const SHAPES: [&str; 6] = ["supervised", "preference", "unpaired", "prompts", "instructions", "contrast"];

/// What the templates of `instructions` say, and what those of `contrast` say in its place, replaced in this order.
const CONTRAST_TEXTS: [(&str, &str); 5] = [
    ("lines with `harmful` or `harmless`, or both", "lines with `positive` and `negative`"),
    ("harmful", "positive"),
    ("harmless", "negative"),
    ("Instructions", "Contrast"),
    ("instructions", "contrast"),
];

/// What a new folder begins with.
#[derive(Debug, Clone, Copy)]
pub enum Start<'a> {
    /// The template of this data shape, one of [`SHAPES`].
    Shape(&'a str),
    /// The source of the built-in method or verifier of this name.
    Like(&'a str),
    /// The template of a verifier.
    Verifier,
    /// The template of an environment.
    Environment,
}

/// The files of a new folder, not written yet.
#[derive(Debug, Clone)]
pub struct Template {
    name: String,
    files: Files,
}

impl Template {
    /// Makes the files of a new method, verifier or environment called `name`, without writing them: those of the
    /// template, or of the source of the built-in method or verifier, and those of the SDK or for editors.
    ///
    /// # Errors
    /// A name of another form than a manifest's, one that the language's tools or a file system reserve, or one that a
    /// built-in has; no such built-in to start from; any built-in for a folder in Python.
    pub fn new(name: &str, language: Language, start: Start<'_>) -> Result<Self, Error> {
        name::check_name(name, language)?;
        Ok(Self { name: name.to_owned(), files: folder_files(name, language, start)? })
    }

    /// Adds a file by its path in the folder, or replaces the one of that path. Writes nothing to disk.
    pub fn add(&mut self, path: &str, contents: impl Into<Vec<u8>>) {
        self.files.insert(path.to_owned(), contents.into());
    }

    /// Iterates over the paths of the author's own files: those that do not begin with a dot.
    pub fn own_files(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str).filter(|path| !path.starts_with('.'))
    }

    /// Writes the files to a new folder in `parent`, called by the method's name, and returns its path. The folder
    /// appears whole or not at all. `more` is called with the path of the unfinished folder, which has all files
    /// already, and may add files to it.
    ///
    /// # Errors
    /// A file or folder of that name exists; a folder that cannot be written; an error of `more`.
    pub fn write<E: From<Error>>(
        &self,
        parent: &Path,
        more: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<PathBuf, E> {
        let folder = parent.join(&self.name);
        if folder.symlink_metadata().is_ok() {
            let hint = "another name, or `--here` in a folder that has none of the files";
            return Err(file_exists_error(&folder, hint).into());
        }
        let draft = self.write_draft(parent)?;
        more(draft.path())?;
        fs::rename(draft.path(), &folder).map_err(Error::file("created", &folder))?;
        Ok(folder)
    }

    /// Writes the files into a folder that exists; nothing in it is replaced. `more` is called with the folder itself,
    /// before the files appear in it.
    ///
    /// # Errors
    /// An entry of the folder has the name of one of the files or of a folder that they are in; a folder that cannot be
    /// written; an error of `more`. None of the files is added then; what `more` wrote stays.
    pub fn write_here<E: From<Error>>(
        &self,
        folder: &Path,
        more: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<(), E> {
        let entries: Vec<&str> = self.entries();
        if let Some(path) = entries.iter().map(|entry| folder.join(entry)).find(|path| path.symlink_metadata().is_ok())
        {
            return Err(file_exists_error(&path, "move it away, or leave `--here` out for a new folder").into());
        }
        let draft = self.write_draft(folder)?;
        more(folder)?;
        for (done, entry) in entries.iter().enumerate() {
            let place = folder.join(entry);
            if let Err(error) = fs::rename(draft.path().join(entry), &place) {
                for earlier in &entries[..done] {
                    // Back into the draft, which is removed with all that is in it.
                    let _ = fs::rename(folder.join(earlier), draft.path().join(earlier));
                }
                return Err(Error::file("created", place)(error).into());
            }
        }
        Ok(())
    }

    /// Writes all files to a temporary folder in `beside`, with the permissions of any new folder. It is deleted when
    /// the result is dropped, unless it was renamed.
    fn write_draft(&self, beside: &Path) -> Result<TempDir, Error> {
        let permissions = Permissions::from_mode(0o777);
        let draft = tempfile::Builder::new().prefix(".new-").permissions(permissions).tempdir_in(beside);
        let draft = draft.map_err(Error::file("written to", beside))?;
        for (path, contents) in &self.files {
            files::write(&draft.path().join(path), contents)?;
        }
        Ok(draft)
    }

    /// Returns the names of the files and folders directly in the new folder, each once.
    fn entries(&self) -> Vec<&str> {
        let mut entries: Vec<&str> = self.files.keys().filter_map(|path| path.split('/').next()).collect();
        entries.dedup();
        entries
    }
}

/// Creates the error that a file or folder at `path` exists already, where `new` would write one; `hint` says what to
/// do.
fn file_exists_error(path: &Path, hint: &str) -> Error {
    let error =
        Explanation::new("new", format!("`{}` exists", path.display())).with_kept("all of it: nothing was written");
    error.with_why("nothing that exists is replaced").with_hint(hint).into()
}

/// Returns the files of a folder called `name`: a template in the language, or the source of a built-in, and below
/// `.tunebox` what the program carries, the SDK or the files for editors. Errors: no such built-in, or a built-in for a
/// folder in Python, since the built-in methods are in Rust.
fn folder_files(name: &str, language: Language, start: Start<'_>) -> Result<Files, Error> {
    let (folder, carried) = match language {
        Language::Rust => ("rust/", sources::files()),
        Language::Python => ("python/", files_for_editors()),
    };
    let mut files = fill_template(folder, name);
    match (language, start) {
        (_, Start::Shape(shape)) => {
            fill_page(&mut files, shape);
            let (source, path) = match language {
                Language::Rust => ("lib.rs", "src/lib.rs".to_owned()),
                Language::Python => ("method.py", format!("src/{}.py", name::python_module(name))),
            };
            files.insert(path, shape_file(shape, source).into());
        }
        (_, Start::Verifier) => kind::rewrite(&mut files, name, folder, World::Verifier),
        (_, Start::Environment) => kind::rewrite(&mut files, name, folder, World::Environment),
        (Language::Rust, Start::Like(like)) => like::rewrite(&mut files, name, like)?,
        (Language::Python, Start::Like(like)) => {
            let error = Explanation::new("new", format!("`{like}` is written in Rust"))
                .with_why("a folder in Python cannot begin with its source");
            return Err(error.with_hint("leave `--like` or `--language python` out").into());
        }
    }
    files.extend(carried.iter().map(|(path, bytes)| (format!("{}/{path}", sources::FOLDER), bytes.clone())));
    Ok(files)
}

/// Replaces the README of a template by `page`, except for the part that is true of every folder, which follows `page`.
fn replace_readme(files: &mut Files, page: &str) {
    let template = files.remove("README.md").unwrap_or_default();
    let template = String::from_utf8_lossy(&template);
    let folder = template.find(EVERY_FOLDER).map_or("", |start| &template[start..]);
    files.insert("README.md".to_owned(), format!("{page}{folder}").into_bytes());
}

/// Puts the loss and the tables of a shape's page into the template's README, in place of `{loss}` and `{tables}`. Does
/// nothing without a README.
fn fill_page(files: &mut Files, shape: &str) {
    let part = shape_file(shape, "page.md");
    let (loss, tables) = part.split_once("\n\n").unwrap_or_default();
    if let Some(page) = files.get_mut("README.md") {
        let text = String::from_utf8_lossy(page).replace("{loss}", loss).replace("{tables}", tables.trim_end());
        *page = text.into_bytes();
    }
}

/// Returns the text of the file `file` of a shape's template; for `contrast`, that of `instructions` with the texts in
/// [`CONTRAST_TEXTS`] replaced. Empty if there is no such file, or it is not UTF-8.
fn shape_file(shape: &str, file: &str) -> String {
    let (folder, replaced): (_, &[_]) =
        if shape == "contrast" { ("instructions", &CONTRAST_TEXTS) } else { (shape, &[]) };
    let path = format!("shapes/{folder}/{file}");
    let found = FILES.iter().find(|(known, _)| *known == path);
    let text = found.and_then(|(_, bytes)| std::str::from_utf8(bytes).ok()).unwrap_or_default();
    replaced.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// Returns the files of the template whose paths begin with `prefix`, without it. In paths and contents, `blank.py`
/// becomes the file of the module, and in contents, `from blank import` its import; every other `blank` in contents,
/// also inside a word, becomes `name`. The file `gitignore` becomes `.gitignore`.
fn fill_template(prefix: &str, name: &str) -> Files {
    let files = FILES.iter().filter_map(|(path, bytes)| Some((path.strip_prefix(prefix)?, bytes)));
    let module = name::python_module(name);
    let file = |text: &str| text.replace(&format!("{PLACEHOLDER}.py"), &format!("{module}.py"));
    let import = |text: &str| text.replace(&format!("from {PLACEHOLDER} import"), &format!("from {module} import"));
    let renamed = files.map(|(path, bytes)| {
        // With its dot it would hide files of the template itself.
        let path = if path == "gitignore" { ".gitignore" } else { path };
        (file(path), import(&file(&String::from_utf8_lossy(bytes))).replace(PLACEHOLDER, name).into_bytes())
    });
    renamed.collect()
}

#[cfg(test)]
mod tests;
