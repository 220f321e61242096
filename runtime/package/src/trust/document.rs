//! Reads and writes the two trust files, `tunebox.lock` and `publishers.toml`: a comment, a schema number, and entries
//! of one kind. Reading is strict: whatever is not understood is an error with its line and column.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::DeTable;
use tunebox_foundation::bounded;
use tunebox_foundation::explain::{Explanation, Snippet};
use tunebox_foundation::printable::{is_unprintable, printable};

use crate::Error;

/// The version of the format of both files, which their key `schema` states.
const SCHEMA: u32 = 1;

/// The longest source and the longest prefix, in bytes.
pub(super) const MAX_NAME_BYTES: usize = 4096;

/// The largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// How much of a wrong line an error shows, in bytes.
const SHOWN_BYTES: usize = 160;

/// Makes the explanation for a trust file (`tunebox.lock` or a list of publishers) that cannot be used. Its location is
/// the path alone: the caller adds line and column if they are known.
fn unusable(path: &Path, problem: &str, hint: &str) -> Explanation {
    let explanation = Explanation::new("trust", printable(problem, 400)).with_location(format_path(path));
    explanation.with_kept("nothing was installed and nothing ran").with_hint(hint)
}

/// Formats a path for messages, with control characters escaped.
fn format_path(path: &Path) -> String {
    printable(&path.to_string_lossy(), 400)
}

/// An entry of one of the two trust files.
pub trait Entry: Serialize + DeserializeOwned {
    /// The comment that the file begins with.
    const HEAD: &'static str;
    /// The name of an entry's table: `package` or `publisher`.
    const TABLE: &'static str;
    /// What to do about a file that is wrong.
    const HINT: &'static str;

    /// Checks every value, and replaces it by its normalized form.
    fn check(&mut self) -> Result<(), InvalidValue>;

    /// Adds the entry to those before it in the file. Fails if it contradicts one of them.
    fn add_to(self, list: &mut Vec<Self>) -> Result<(), InvalidValue>;
}

/// An invalid value of an entry.
#[derive(Debug)]
pub struct InvalidValue {
    /// The value's key.
    pub(super) key: &'static str,
    /// The index of the invalid value, if the key has a list.
    pub(super) item: Option<usize>,
    pub(super) problem: String,
}

impl InvalidValue {
    /// Returns a function for `map_err` that makes an error about the value of a key out of a message.
    pub(super) fn for_key(key: &'static str) -> impl FnOnce(String) -> Self {
        move |problem| Self { key, item: None, problem }
    }

    /// Returns the byte range of the invalid value in `text`, the content of a file. `table` is the name of the
    /// entries' table, `number` the index of the entry, from 0. `None` if there is no such value.
    fn find_span(&self, text: &str, table: &str, number: usize) -> Option<Range<usize>> {
        let file = DeTable::parse(text).ok()?;
        let value = file.get_ref().get(table)?.get_ref().get(number)?.get_ref().get(self.key)?;
        let item = self.item.and_then(|item| value.get_ref().get(item));
        Some(item.unwrap_or(value).span())
    }
}

/// The content of a trust file. Its entries are in `[[package]]` in a lock, in `[[publisher]]` in a list of publishers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File<T> {
    schema: Spanned<u32>,
    #[serde(rename = "package", alias = "publisher", default = "Vec::new")]
    entries: Vec<T>,
}

/// One of the two trust files: its path and its entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustFile<T> {
    pub(super) path: PathBuf,
    pub(super) list: Vec<T>,
}

impl<T: Entry> TrustFile<T> {
    /// Reads and checks the entries of a file of at most 1 MiB; none if there is no such file. Errors: a file that
    /// cannot be read, or those of [`parse`](Self::parse).
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        match bounded::read_text(path, MAX_FILE_BYTES) {
            Ok(text) => Self::parse(path, &text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self { path: path.into(), list: Vec::new() }),
            Err(error) => Err(Error::file("read", path)(error)),
        }
    }

    /// Parses and checks the entries of a text; errors name it by `path`, which is not read. Errors, with line and
    /// column where known: malformed TOML, an unknown or missing key, an invalid value, an entry that contradicts an
    /// earlier one, or a `schema` other than 1.
    pub fn parse(path: impl AsRef<Path>, text: &str) -> Result<Self, Error> {
        let path = path.as_ref();
        let wrong = |span: Option<Range<usize>>, problem: &str| {
            let whole = unusable(path, problem, T::HINT);
            let Some(snippet) = span.map(|span| source_snippet(text, &span)) else { return Error::from(whole) };
            let location = format!("{}:{}:{}", format_path(path), snippet.line, snippet.column);
            whole.with_location(location).with_snippet(snippet).into()
        };
        let file: File<T> = toml::from_str(text).map_err(|error| {
            let message = error.message().trim().replace('\n', ", ");
            let message =
                message.replacen("unknown field", "unknown key", 1).replacen("missing field", "missing key", 1);
            wrong(error.span(), &message)
        })?;
        if *file.schema.get_ref() != SCHEMA {
            let problem = format!("`schema` is {}, this program reads {SCHEMA}", file.schema.get_ref());
            return Err(wrong(Some(file.schema.span()), &problem));
        }
        let mut list = Vec::with_capacity(file.entries.len());
        for (number, mut entry) in file.entries.into_iter().enumerate() {
            let added = entry.check().and_then(|()| entry.add_to(&mut list));
            added.map_err(|value| wrong(value.find_span(text, T::TABLE, number), &value.problem))?;
        }
        Ok(Self { path: path.into(), list })
    }

    /// Returns the text of the file. Errors: the text has more than 1 MiB or [`parse`](Self::parse) rejects it, and so
    /// must not be written.
    pub fn to_text(&self) -> Result<String, Error> {
        let wrong = |problem: &str| {
            let problem = format!("what is to be written into it could not be read again: {problem}");
            Error::from(unusable(&self.path, &problem, "it stays as it is; name the package by another path or place"))
        };
        let mut text = format!("{}schema = {SCHEMA}\n", T::HEAD);
        for entry in &self.list {
            let entry = toml::to_string(entry).map_err(|error| wrong(&error.to_string()))?;
            text.push_str(&format!("\n[[{}]]\n{entry}", T::TABLE));
        }
        if text.len() as u64 > MAX_FILE_BYTES {
            return Err(wrong(&format!("it would have more than {MAX_FILE_BYTES} bytes")));
        }
        match Self::parse(&self.path, &text) {
            Ok(_) => Ok(text),
            Err(error) => Err(wrong(&error.to_string())),
        }
    }
}

/// Returns the line in which a byte range begins, for an error. Column and width are 0 if the line is cut or
/// escaped when shown: it then no longer has the columns of the file.
fn source_snippet(text: &str, span: &Range<usize>) -> Snippet {
    let whole = Snippet::of(text, span);
    let shown = printable(&whole.text, SHOWN_BYTES);
    if shown == whole.text && whole.column <= SHOWN_BYTES {
        return whole;
    }
    Snippet { text: shown, column: 0, width: 0, ..whole }
}

/// Fails unless a text is not empty, has at most [`MAX_NAME_BYTES`] bytes and no character that [`is_unprintable`]. The
/// error names it `what`.
pub(super) fn check_plain(what: &str, text: &str) -> Result<(), String> {
    if text.is_empty() || text.len() > MAX_NAME_BYTES || text.chars().any(is_unprintable) {
        return Err(format!("`{what}` is empty, longer than {MAX_NAME_BYTES} bytes, or holds a control character"));
    }
    Ok(())
}
