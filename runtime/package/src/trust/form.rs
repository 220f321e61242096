//! What both files of trust have in common: a comment, a schema, and entries of one kind.

use std::path::Path;

use serde::Serialize;

use super::document::{Document, LONGEST, SCHEMA, unusable};
use crate::Error;

/// How the entries of one kind of file are read and written.
pub(super) struct Form<T> {
    /// The comment that the file begins with.
    pub(super) head: &'static str,
    /// The name of an entry's table.
    pub(super) table: &'static str,
    /// What to do about a file that is wrong.
    pub(super) hint: &'static str,
    /// The entries of a file, every value of them checked.
    pub(super) entries: fn(&Document) -> Result<Vec<T>, Error>,
}

impl<T: Serialize> Form<T> {
    /// The entries of a file; one that is not there has none. Errors: an entry that is not understood, with its place.
    pub(super) fn read(&self, path: &Path) -> Result<Vec<T>, Error> {
        match Document::read(path, self.hint)? {
            Some(document) => Ok((self.entries)(&document)?),
            None => Ok(Vec::new()),
        }
    }

    /// The entries of a text; `name` is what errors call it.
    pub(super) fn parse(&self, name: &str, text: &str) -> Result<Vec<T>, Error> {
        (self.entries)(&Document::new(name, text, self.hint))
    }

    /// The text of a file with these entries. Errors: it could not be read again, and so must not be written.
    pub(super) fn text(&self, path: &Path, entries: &[T]) -> Result<String, Error> {
        let wrong = |problem: &str| {
            let problem = format!("what is to be written into it could not be read again: {problem}");
            Error::from(unusable(path, &problem, "it stays as it is; name the package by another path or place"))
        };
        let mut text = format!("{}schema = {SCHEMA}\n", self.head);
        for entry in entries {
            let entry = toml::to_string(entry).map_err(|error| wrong(&error.to_string()))?;
            text.push_str(&format!("\n[[{}]]\n{entry}", self.table));
        }
        if text.len() as u64 > LONGEST {
            return Err(wrong(&format!("it would have more than {LONGEST} bytes")));
        }
        match self.parse(&path.to_string_lossy(), &text) {
            Ok(_) => Ok(text),
            Err(error) => Err(wrong(&error.to_string())),
        }
    }
}
