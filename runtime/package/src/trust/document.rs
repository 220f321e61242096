//! Reads and writes the two files of trust: a comment, a schema, and entries of one kind. Reading is strict: what is
//! not understood is an error with its line and column.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::Spanned;
use tunebox_foundation::bounded;
use tunebox_foundation::explain::{Explanation, Snippet};
use tunebox_foundation::printable::{is_unprintable, printable};

use crate::Error;

/// The way in which both files are written.
const SCHEMA: u32 = 1;

/// Bytes of the longest source and of the longest prefix.
pub(super) const LONGEST_NAME: usize = 4096;

/// Bytes of the longest file that is read.
const LONGEST: u64 = 1 << 20;

/// Bytes of a line that is shown.
const SHOWN: usize = 160;

/// Starts the explanation of a file of trust that cannot be used, without a place in it.
fn unusable(path: &Path, problem: &str, hint: &str) -> Explanation {
    let explanation = Explanation::new("trust", printable(problem, 400)).with_location(show(path));
    explanation.with_kept("nothing was installed and nothing ran").with_hint(hint)
}

/// Formats a path for messages, with control characters escaped.
fn show(path: &Path) -> String {
    printable(&path.to_string_lossy(), 400)
}

/// A file of trust: its name and what is in it.
pub(super) struct Document {
    path: PathBuf,
    text: String,
    hint: &'static str,
}

impl Document {
    /// Reads a file, of at most 1 MiB. `None` if there is none. `hint` says in errors what to do about wrong contents.
    fn read(path: &Path, hint: &'static str) -> Result<Option<Self>, Error> {
        match bounded::read_text(path, LONGEST) {
            Ok(text) => Ok(Some(Self { path: path.to_owned(), text, hint })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::file("read", path)(error)),
        }
    }

    /// Makes a document of a text; `name` is what errors call it, and `hint` says what to do about wrong contents.
    fn new(name: &str, text: &str, hint: &'static str) -> Self {
        Self { path: PathBuf::from(name), text: text.to_owned(), hint }
    }

    /// Parses the text as TOML into `T`. Errors: malformed TOML, an unknown key or a missing one, with line and column.
    pub(super) fn values<T: DeserializeOwned>(&self) -> Result<T, Error> {
        toml::from_str(&self.text).map_err(|error| {
            let message = error.message().trim().replace('\n', ", ");
            let message =
                message.replacen("unknown field", "unknown key", 1).replacen("missing field", "missing key", 1);
            self.wrong(error.span().as_ref(), &message)
        })
    }

    /// Fails unless `schema`, the number of the file's format, is the one that this program reads.
    pub(super) fn check_schema(&self, schema: &Spanned<u32>) -> Result<(), Error> {
        if *schema.get_ref() == SCHEMA {
            return Ok(());
        }
        Err(self.at(schema, &format!("`schema` is {}, this program reads {SCHEMA}", schema.get_ref())))
    }

    /// Returns what `check` makes of a value. If `check` fails, its message becomes an error at the value's line and
    /// column.
    pub(super) fn checked<U>(
        &self,
        value: &Spanned<String>,
        check: impl FnOnce(&str) -> Result<U, String>,
    ) -> Result<U, Error> {
        check(value.get_ref()).map_err(|problem| self.at(value, &problem))
    }

    /// Makes an error about a value, at its line and column.
    pub(super) fn at<T>(&self, value: &Spanned<T>, problem: &str) -> Error {
        self.wrong(Some(&value.span()), problem)
    }

    /// Makes an error about the file, at the line and column of the byte range `span` if there is one.
    fn wrong(&self, span: Option<&Range<usize>>, problem: &str) -> Error {
        let whole = unusable(&self.path, problem, self.hint);
        let Some(snippet) = span.map(|span| self.snippet(span)) else { return whole.into() };
        let location = format!("{}:{}:{}", show(&self.path), snippet.line, snippet.column);
        whole.with_location(location).with_snippet(snippet).into()
    }

    /// Returns the line in which a byte range begins, for an error. Column and width are 0 if the line is cut or
    /// escaped when shown.
    fn snippet(&self, span: &Range<usize>) -> Snippet {
        let start = (0..=span.start.min(self.text.len())).rev().find(|at| self.text.is_char_boundary(*at)).unwrap_or(0);
        let (before, after) = self.text.split_at(start);
        let begin = before.rfind('\n').map_or(0, |at| at + 1);
        let line = self.text[begin..].lines().next().unwrap_or_default();
        let covered = after.get(..span.end.saturating_sub(start)).unwrap_or(after);
        let width = covered.lines().next().unwrap_or_default().chars().count().max(1);
        let column = before[begin..].chars().count() + 1;
        // A line that is cut or escaped no longer has the columns of the file.
        let shown = printable(line, SHOWN);
        let whole = shown == line && column <= SHOWN;
        Snippet {
            line: before.matches('\n').count() + 1,
            text: shown,
            column: if whole { column } else { 0 },
            width: if whole { width } else { 0 },
            note: None,
        }
    }
}

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
    /// Reads and checks the entries of a file; none if there is no such file. Errors: an entry that is not understood,
    /// with line and column.
    pub(super) fn read(&self, path: &Path) -> Result<Vec<T>, Error> {
        match Document::read(path, self.hint)? {
            Some(document) => Ok((self.entries)(&document)?),
            None => Ok(Vec::new()),
        }
    }

    /// Reads and checks the entries of a text; `name` is what errors call it.
    pub(super) fn parse(&self, name: &str, text: &str) -> Result<Vec<T>, Error> {
        (self.entries)(&Document::new(name, text, self.hint))
    }

    /// Returns the text of a file with these entries. `path` is for errors. Errors: the text is too long or could not
    /// be read again, and so must not be written.
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

/// Returns a text unchanged if it is not empty, has at most `most` bytes and no control characters. The error names it
/// `what`.
pub(super) fn plain(what: &str, text: &str, most: usize) -> Result<String, String> {
    if text.is_empty() || text.len() > most || text.chars().any(is_unprintable) {
        return Err(format!("`{what}` is empty, longer than {most} bytes, or holds a control character"));
    }
    Ok(text.to_owned())
}
