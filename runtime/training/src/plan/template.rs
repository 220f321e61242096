//! The chat template that a run or a command uses in place of that of the model's files.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use tunebox_foundation::bounded;
use tunebox_foundation::explain::Explanation;
use tunebox_foundation::files::FileError;
use tunebox_model::chat::{TEMPLATE_FILE, builtin_template, builtin_templates};

use crate::configuration::RunSettings;
use crate::error::Error;

/// The most bytes of a template that are read.
const MAX_BYTES: u64 = 64 << 10;

/// The path of the file that `model.chat-template` names; `None` if the key is not given or names a built-in template.
pub(crate) fn template_file(settings: &RunSettings) -> Option<PathBuf> {
    let written = settings.file.model.chat_template.as_ref().filter(|name| builtin_template(name).is_none())?;
    Some(settings.path("model.chat-template", written))
}

/// The source of the template that a run uses in place of that of the model's files: the one that
/// `model.chat-template` names, else that of the adapter which the run continues. `None` without either.
pub(super) fn find_template(settings: &RunSettings) -> Result<Option<String>, Error> {
    let table = &settings.file.model;
    let Some(written) = &table.chat_template else {
        let adapter = table.adapter.as_ref().map(|written| settings.path("model.adapter", written));
        return adapter.map_or(Ok(None), |folder| adapter_template(&folder));
    };
    let file = template_file(settings);
    let source = read_template(written, file.as_deref().unwrap_or(Path::new(written)));
    source.map(Some).map_err(|error| settings.with_location("model.chat-template", error))
}

/// Returns the source of a template: a built-in one if `written` is its name, else the text of `file`.
///
/// # Errors
/// A file that cannot be read, or has more than 64 KiB.
pub fn read_template(written: &str, file: &Path) -> Result<String, Error> {
    if let Some(source) = builtin_template(written) {
        return Ok(source.to_owned());
    }
    bounded::read_text(file, MAX_BYTES).map_err(|error| {
        let names: Vec<&str> = builtin_templates().collect();
        let what = format!("the chat template `{written}` cannot be read");
        let hint = format!("built in are {}; any other is a Jinja file", names.join(", "));
        Explanation::new("config", what).with_why(error.to_string()).with_hint(hint).into()
    })
}

/// The source of the template in the folder of an adapter; `None` if it has none.
///
/// # Errors
/// A file that cannot be read, or has more than 64 KiB.
pub fn adapter_template(folder: &Path) -> Result<Option<String>, Error> {
    let path = folder.join(TEMPLATE_FILE);
    match bounded::read_text(&path, MAX_BYTES) {
        Ok(source) => Ok(Some(source)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FileError::at("read", &path)(error).into()),
    }
}
