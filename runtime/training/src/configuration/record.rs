//! Records the settings of a run as the run file in its folder: versions and revisions pinned, paths absolute.

use std::path::{Path, PathBuf};

use tunebox_model::hub::{Hub, Name};
use tunebox_package::Reference;

use super::{DataFile, RunSettings, ValidationData};

impl RunSettings {
    /// Appends `@` and the found version to the name of every package of the store that the run file names without one,
    /// for the method, the verifiers and the environment, so that a version stored later changes nothing. Leaves other
    /// references, and those that cannot be found, as they are.
    pub(crate) fn pin_versions(&mut self) {
        for (found, written) in self.references().into_iter().zip(self.file.components_mut()) {
            if let Ok(Reference::Stored(stored)) = found
                && *written == stored.name
            {
                *written = format!("{}@{}", stored.name, stored.version);
            }
        }
    }

    /// Replaces the revision in each address of data on a hub by the commit that the cache has under it, so that a
    /// commit pushed later changes nothing. Leaves addresses of data that the cache does not have.
    pub(crate) fn pin_data(&mut self) {
        let hub = Hub::from_environment(true);
        let data = &mut self.file.data;
        let files = data.files.iter_mut().map(DataFile::path_mut);
        let validation = data.validation.iter_mut().filter_map(ValidationData::path_mut);
        for address in files.chain([&mut data.path]).chain(validation) {
            if let Some(pinned) = Name::parse_data(address).and_then(|name| hub.pin(&name)) {
                *address = pinned.to_string();
            }
        }
    }

    /// Returns the settings as the text of a run file that works from any folder: defaults filled in (of the limits
    /// only changed ones), the folder of runs and every existing path absolute, and the run named `name`. Names of
    /// packages stay as they are. Leaves out `train.adapter` if the run continues an adapter.
    #[must_use]
    pub fn to_toml(&self, name: &str) -> String {
        let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path).to_string_lossy().into_owned();
        let mut file = self.file.clone();
        let make_absolute = |key: &str, written: &mut String| {
            let path = self.path(key, written);
            if path.exists() {
                *written = absolute(path);
            }
        };
        make_absolute("model.path", &mut file.model.path);
        if !file.data.path.is_empty() {
            make_absolute("data.path", &mut file.data.path);
        }
        for (number, one) in file.data.files.iter_mut().enumerate() {
            make_absolute(&format!("data.files.{number}"), one.path_mut());
        }
        file.model.chat_template.iter_mut().for_each(|written| make_absolute("model.chat-template", written));
        file.model.adapter.iter_mut().for_each(|written| make_absolute("model.adapter", written));
        for (number, teacher) in file.teacher.iter_mut().enumerate() {
            make_absolute(&format!("teacher.{number}.path"), &mut teacher.path);
        }
        let validation = file.data.validation.iter_mut().filter_map(ValidationData::path_mut);
        validation.for_each(|written| make_absolute("data.validation", written));
        for (found, written) in self.references().into_iter().zip(file.components_mut()) {
            if let Ok(Reference::File(path) | Reference::Folder(path)) = found {
                *written = absolute(path);
            }
        }
        for (number, name) in self.reward_models() {
            if Path::new(&name).exists() {
                file.verifier[number].r#use = format!("model:{}", absolute(name.into()));
            }
        }
        file.run.folder = absolute(PathBuf::from(&file.run.folder));
        file.run.name = Some(name.to_owned());
        let mut table = toml::Table::try_from(&file).unwrap_or_default();
        if file.model.adapter.is_some()
            && let Some(train) = table.get_mut("train").and_then(toml::Value::as_table_mut)
        {
            // A continued adapter has its own description; both together are an error.
            train.remove("adapter");
        }
        toml::to_string_pretty(&table).unwrap_or_default()
    }
}
