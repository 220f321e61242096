//! What holds for both files of trust, whatever their text.

use std::fmt::Debug;

use tunebox_foundation::explain::Explain;
use tunebox_package::Error;

/// Entries that are written and read back as the same, or an error with a place in the text.
pub(crate) fn reads_what_it_writes<File: PartialEq + Debug>(
    bytes: &[u8],
    parse: impl Fn(&str) -> Result<File, Error>,
    write: impl Fn(&File) -> Result<String, Error>,
) {
    let text = String::from_utf8_lossy(bytes);
    match parse(&text) {
        Ok(read) => {
            let written = write(&read);
            let again = written.as_ref().ok().map(|text| parse(text));
            assert!(again.is_some_and(|again| again.is_ok_and(|again| again == read)), "{written:?}");
        }
        Err(error) => {
            let lines = text.split('\n').count();
            assert!(error.explanation().snippet.is_none_or(|line| (1..=lines).contains(&line.line)), "{error:?}");
            assert!(!error.to_string().chars().any(char::is_control), "{error:?}");
        }
    }
}
