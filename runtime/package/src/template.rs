//! A new method's folder: a template, or the source of a built-in method under another name.
//!
//! It builds, tests and trains without changes; the caller adds what else a run needs.

mod like;
mod name;

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tunebox_foundation::explain::Explanation;

use crate::build::python::files_for_editors;
use crate::sources::{self, Files};
use crate::{Error, files};
pub use name::Language;

/// Every file of the templates, by language and path. Written by the build script.
static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/template.rs"));

/// The name of the method in a template's files, which the new method's name replaces.
const PLACEHOLDER: &str = "blank";

/// The files of a new method's folder, not written yet.
#[derive(Debug, Clone)]
pub struct Template {
    name: String,
    files: Files,
}

impl Template {
    /// Makes the files of a new method called `name`, without writing them: those of the language's template, or of the
    /// source of the built-in method or verifier `like`.
    ///
    /// # Errors
    /// A name that no method can have, or that is taken; no such built-in method; `like` for a method in Python.
    pub fn new(name: &str, language: Language, like: Option<&str>) -> Result<Self, Error> {
        name::check(name, language)?;
        Ok(Self { name: name.to_owned(), files: files_of(name, language, like)? })
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
    /// appears whole or not at all. `more` is called with the path of the unfinished folder, and may add files to it.
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
            return Err(exists(&folder, hint).into());
        }
        let draft = self.draft(parent)?;
        more(&drafted(&draft))?;
        fs::rename(drafted(&draft), &folder).map_err(Error::file("created", &folder))?;
        Ok(folder)
    }

    /// Writes the files into a folder that exists; nothing in it is replaced. `more` is called with the folder itself,
    /// before the files appear in it.
    ///
    /// # Errors
    /// One of the files exists; a folder that cannot be written; an error of `more`. None of the files is added then.
    pub fn write_here<E: From<Error>>(
        &self,
        folder: &Path,
        more: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<(), E> {
        let entries: Vec<&str> = self.entries();
        if let Some(path) = entries.iter().map(|entry| folder.join(entry)).find(|path| path.symlink_metadata().is_ok())
        {
            return Err(exists(&path, "move it away, or leave `--here` out for a new folder").into());
        }
        let draft = self.draft(folder)?;
        more(folder)?;
        for (done, entry) in entries.iter().enumerate() {
            let place = folder.join(entry);
            if let Err(error) = fs::rename(drafted(&draft).join(entry), &place) {
                for earlier in &entries[..done] {
                    // Back into the draft, which is removed with all that is in it.
                    let _ = fs::rename(folder.join(earlier), drafted(&draft).join(earlier));
                }
                return Err(Error::file("created", place)(error).into());
            }
        }
        Ok(())
    }

    /// Writes all files to a temporary folder in `beside`, which is deleted when the result is dropped.
    fn draft(&self, beside: &Path) -> Result<TempDir, Error> {
        let draft = tempfile::Builder::new().prefix(".new-").tempdir_in(beside);
        let draft = draft.map_err(Error::file("written to", beside))?;
        for (path, contents) in &self.files {
            files::write(&drafted(&draft).join(path), contents)?;
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

/// The error for a file or folder that is in the way of the new files.
fn exists(path: &Path, hint: &str) -> Error {
    let error =
        Explanation::new("new", format!("`{}` exists", path.display())).with_kept("all of it: nothing was written");
    error.with_why("nothing that exists is replaced").with_hint(hint).into()
}

/// Returns the folder inside a draft that holds the files. Unlike the draft, it has the permissions of any new folder.
fn drafted(draft: &TempDir) -> PathBuf {
    draft.path().join("folder")
}

/// Returns the files of a method called `name`: the language's template, or the source of the built-in `like`, and below
/// `.tunebox` what the program carries, the SDK or the files for editors. Errors: no such built-in, or `like` for a
/// method in Python, since the built-in methods are in Rust.
fn files_of(name: &str, language: Language, like: Option<&str>) -> Result<Files, Error> {
    let (folder, carried) = match language {
        Language::Rust => ("rust/", sources::files()),
        Language::Python => ("python/", files_for_editors()),
    };
    let mut files = named(folder, name);
    match (language, like) {
        (Language::Rust, Some(like)) => like::rewrite(&mut files, name, like)?,
        (Language::Python, Some(like)) => {
            let error = Explanation::new("new", format!("`{like}` is written in Rust"))
                .with_why("a method in Python cannot begin with its source");
            return Err(error.with_hint("leave `--like` or `--language python` out").into());
        }
        (_, None) => {}
    }
    files.extend(carried.iter().map(|(path, bytes)| (format!("{}/{path}", sources::FOLDER), bytes.clone())));
    Ok(files)
}

/// Returns the files of the template below `prefix`, with `name` in place of the word `blank`, and the module's name in
/// place of `blank` in `blank.py`. The file `gitignore` becomes `.gitignore`.
fn named(prefix: &str, name: &str) -> Files {
    let files = FILES.iter().filter_map(|(path, bytes)| Some((path.strip_prefix(prefix)?, bytes)));
    let module = |text: &str| text.replace(&format!("{PLACEHOLDER}.py"), &format!("{}.py", name::module(name)));
    let renamed = files.map(|(path, bytes)| {
        // With its dot it would hide files of the template itself.
        let path = if path == "gitignore" { ".gitignore" } else { path };
        (module(path), module(&String::from_utf8_lossy(bytes)).replace(PLACEHOLDER, name).into_bytes())
    });
    renamed.collect()
}

#[cfg(test)]
mod tests;
