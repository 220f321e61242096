//! Downloads models and data sets by name from a hub such as Hugging Face, once, into the cache that other programs
//! share, and finds them there later. `HF_ENDPOINT`, `HF_HOME`, `HF_HUB_CACHE`, `HF_TOKEN` and `HF_HUB_OFFLINE` are
//! honored. Nothing else in this crate uses the network. `name` parses names, `data_set` fetches data sets.

mod data_set;
mod name;

use std::path::{Path, PathBuf};

use hf_hub::Cache;
use hf_hub::api::sync::{Api, ApiBuilder, ApiError};
use tunebox_foundation::environment;
use tunebox_foundation::explain::Explanation;

use crate::error::{Error, Result};
use crate::source::{COMPANIONS, check_family};
use crate::weights::safetensors::{self, INDEX, SINGLE};
pub use data_set::{cached_address, cached_folder};
use name::Kind;
pub use name::{Name, is_address};

/// What `huggingface_hub` takes for true in an environment variable.
const TRUE_VALUES: [&str; 4] = ["1", "ON", "YES", "TRUE"];

/// The address of the hub if `HF_ENDPOINT` is not set.
const ENDPOINT: &str = "https://huggingface.co";
/// How often a failed request is tried again.
const RETRIES: usize = 3;
/// The prefix of the folder of a model in the cache, `models--owner--name`.
const PREFIX: &str = "models--";

/// A hub's address, and the cache folder for files downloaded from it.
#[derive(Debug, Clone)]
pub struct Hub {
    /// The address, without a slash at its end.
    endpoint: String,
    /// The cache folder; `None` if no variable names one and the user has no home folder.
    cache: Option<PathBuf>,
    /// The access token; without one, the token that is stored in the cache is used, if any.
    token: Option<String>,
    /// Whether only the cache is used.
    offline: bool,
}

impl Hub {
    /// A hub configured by `HF_ENDPOINT`, `HF_HOME`, `HF_HUB_CACHE`, `HF_TOKEN` and `HF_HUB_OFFLINE`. Empty variables
    /// count as missing. It uses only its cache if `offline` is true or `HF_HUB_OFFLINE` is one of [`TRUE_VALUES`], in
    /// upper or lower case.
    #[must_use]
    pub fn from_environment(offline: bool) -> Self {
        let look_up = |name: &str| environment::variable(name)?.into_string().ok();
        Self::from_variables(offline, look_up, environment::home_folder())
    }

    /// A hub at the address `endpoint`, from which slashes at the end are removed, with this cache folder. It sends the
    /// token stored in the cache, if there is one.
    #[must_use]
    pub fn at(endpoint: &str, cache: &Path, offline: bool) -> Self {
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        Self { endpoint, cache: Some(cache.to_path_buf()), token: None, offline }
    }

    /// A hub configured by environment variables that `look_up` reads; empty ones count as missing. The cache is
    /// `HF_HUB_CACHE`, else `HF_HOME/hub`, else `.cache/huggingface/hub` in `home`, the user's home folder. The hub is
    /// offline if `offline` is true or `HF_HUB_OFFLINE` is one of [`TRUE_VALUES`], in upper or lower case.
    /// `HF_ENDPOINT` replaces [`ENDPOINT`]; `HF_TOKEN` is the access token. Makes no request and creates no folder.
    fn from_variables(offline: bool, look_up: impl Fn(&str) -> Option<String>, home: Option<PathBuf>) -> Self {
        let variable = |name| look_up(name).filter(|value| !value.is_empty());
        let root = variable("HF_HOME").map(PathBuf::from).or(home.map(|home| home.join(".cache/huggingface")));
        let cache = variable("HF_HUB_CACHE").map(PathBuf::from).or(root.map(|root| root.join("hub")));
        let offline_by_variable =
            variable("HF_HUB_OFFLINE").is_some_and(|value| TRUE_VALUES.contains(&value.to_uppercase().as_str()));
        let endpoint = variable("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.into());
        let token = variable("HF_TOKEN");
        Self { endpoint: endpoint.trim_end_matches('/').into(), cache, token, offline: offline || offline_by_variable }
    }

    /// Returns the folder or GGUF file of a model in the cache, after downloading the files that the cache lacks, all
    /// from the commit that the revision names now: the GGUF file alone, or `config.json`, the weights and the files
    /// beside them. Records the commit in the cache under the name of the revision, once all files are there. Offline,
    /// only looks in the cache.
    ///
    /// # Errors
    /// When there is no cache folder, when the hub cannot be reached, has no such model or file or names no commit,
    /// when a model without a GGUF file in its name lacks `config.json` or safetensors weights, or when offline and the
    /// model is not whole in the cache.
    pub fn fetch(&self, name: &Name) -> Result<PathBuf> {
        self.fetch_checked(name, check_family)
    }

    /// Does the work of [`Hub::fetch`] for models whose `config.json` passes `check`, which gets its folder before
    /// weights are fetched. Does not call `check` offline, nor for a name with a GGUF file.
    pub(crate) fn fetch_checked(&self, name: &Name, check: fn(&Path) -> Result<()>) -> Result<PathBuf> {
        if self.offline {
            return self.find_cached(name);
        }
        self.fetch_files(name, |_, files, fetch| match &name.path {
            Some(file) => fetch(file),
            None => fetch_folder(files, check, fetch)?.ok_or_else(|| self.no_weights(name, files)),
        })
    }

    /// Asks the hub for the commit that the revision names now, and returns what `choose` returns. `choose` gets the
    /// commit, the names of its files, and a function that returns the path of a file in the cache and before that
    /// downloads a file that the cache lacks. After `choose`, records the commit in the cache under the name of the
    /// revision.
    fn fetch_files<T>(
        &self,
        name: &Name,
        choose: impl FnOnce(&str, &[&str], &mut dyn FnMut(&str) -> Result<PathBuf>) -> Result<T>,
    ) -> Result<T> {
        let cache = self.cache(name)?;
        let api = self.api(cache.clone()).map_err(|error| self.failure(name, &error))?;
        let listed = api.repo(name.repository(&name.revision)).info().map_err(|error| self.failure(name, &error))?;
        if !is_commit(&listed.sha) {
            return Err(self.error(name, "the hub names no commit", "this address may not be a hub"));
        }
        // Everything comes from one commit, whatever is pushed meanwhile.
        let commit = api.repo(name.repository(&listed.sha));
        let snapshot = cache.repo(name.repository(&listed.sha)).pointer_path(&listed.sha);
        let files: Vec<&str> = listed.siblings.iter().map(|file| file.rfilename.as_str()).collect();
        // Files that an earlier call or another program fetched are in the cache.
        let mut fetch = |file: &str| match snapshot.join(file) {
            path if path.exists() => Ok(path),
            _ => commit.download(file).map_err(|error| self.failure(name, &error)),
        };
        let result = choose(&listed.sha, &files, &mut fetch)?;
        // Offline work finds the commit by the name of the revision.
        let recorded = cache.repo(name.repository(&name.revision)).create_ref(&listed.sha);
        recorded.map_err(|error| Error::file(cache.path(), error))?;
        Ok(result)
    }

    /// The cache. Fails if there is none; the error is about `name`.
    fn cache(&self, name: &Name) -> Result<Cache> {
        let no_cache = || self.error(name, "there is no home folder to keep it in", "set `HF_HOME` to a folder");
        self.cache.clone().map(Cache::new).ok_or_else(no_cache)
    }

    /// Finds the folder or GGUF file of a model in the cache, without network. Errors: there is no cache, the GGUF
    /// file, `config.json` or one of the weight files is missing, or the index of the weight files is broken.
    fn find_cached(&self, name: &Name) -> Result<PathBuf> {
        let named = self.cache(name)?.repo(name.repository(&name.revision));
        let wanted = name.path.as_deref().unwrap_or("config.json");
        let found = named.get(wanted).and_then(|path| match name.path {
            Some(_) => Some(path),
            None => path.parent().map(Path::to_path_buf),
        });
        let whole = found.filter(|path| {
            !path.is_dir() || safetensors::files(path).is_ok_and(|files| files.iter().all(|file| file.is_file()))
        });
        let why = "nothing is fetched offline, and the cache does not hold it";
        whole.ok_or_else(|| self.error(name, why, "run once without `--offline`, or give a folder or a GGUF file"))
    }

    /// The names, as `owner/model`, of the models that have a folder `models--owner--name` in the cache, sorted; each
    /// `--` after the prefix becomes `/`. Empty if there is no cache. Does not check that their files are complete.
    #[must_use]
    pub fn cached_models(&self) -> Vec<String> {
        let entries = self.cache.as_ref().and_then(|folder| std::fs::read_dir(folder).ok());
        let name = |entry: std::io::Result<std::fs::DirEntry>| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            Some(name.strip_prefix(PREFIX)?.replace("--", "/"))
        };
        let mut names: Vec<String> = entries.into_iter().flatten().filter_map(name).collect();
        names.sort();
        names
    }

    /// A client for this endpoint and cache, without progress bars and with [`RETRIES`] retries. Uses the token of the
    /// hub, else the one stored in the cache.
    fn api(&self, cache: Cache) -> std::result::Result<Api, ApiError> {
        let token = self.token.clone().or_else(|| cache.token());
        ApiBuilder::from_cache(cache)
            .with_endpoint(self.endpoint.clone())
            .with_progress(false)
            .with_retries(RETRIES)
            .with_user_agent("tunebox", env!("CARGO_PKG_VERSION"))
            .with_token(token)
            .build()
    }

    /// The error for a repository that lacks `config.json` or safetensors weights. `files` are the names of its files;
    /// the hint names the first GGUF file among them, if there is one.
    fn no_weights(&self, name: &Name, files: &[&str]) -> Error {
        let hint = match files.iter().find(|file| file.ends_with(".gguf")) {
            Some(file) => format!("it has GGUF files; name one, as in `{}/{file}`", name.repository),
            None => "look for a version of it with safetensors weights".into(),
        };
        self.error(name, "it has no `config.json` with safetensors weights", &hint)
    }

    /// Converts an error of the hub's client to the error that `name` cannot be fetched. The client gives the
    /// HTTP status only within its text, so the hint follows from that text: about a token if it contains `401` or
    /// `403`, else about the name if it contains `404`, else about the connection.
    fn failure(&self, name: &Name, error: &ApiError) -> Error {
        let why = error.to_string();
        let hint = if why.contains("401") || why.contains("403") {
            "it asks for a token: check its name, accept its terms on the hub, then set `HF_TOKEN`"
        } else if why.contains("404") {
            "check owner, name and revision; what is private needs `HF_TOKEN`"
        } else {
            "check the connection; `--offline` uses what was fetched before"
        };
        self.error(name, &why, hint)
    }

    /// Builds the error that `name` cannot be fetched, with the address of this hub as its location.
    fn error(&self, name: &Name, why: &str, hint: &str) -> Error {
        let kind = match name.kind {
            Kind::Model => "model",
            Kind::DataSet => "data set",
        };
        let what = format!("{kind} `{name}` cannot be fetched");
        Explanation::new("hub", what).with_location(&self.endpoint).with_why(why).with_hint(hint).into()
    }
}

/// Whether a text may be the digest of a commit, maybe shortened.
fn is_commit(text: &str) -> bool {
    text.len() >= 7 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Fetches `config.json`, those of `README.md` and [`COMPANIONS`] that exist, and all weight files: those of the index
/// if there is one, else [`SINGLE`]. Returns their folder; `None`, without fetching anything, if the repository lacks
/// `config.json` or weights. `files` are the names of the repository's files. `fetch` gets a file by its name and
/// returns its path. Calls `check` with the folder before any weights are fetched, and fails if it fails.
fn fetch_folder(
    files: &[&str],
    check: fn(&Path) -> Result<()>,
    fetch: &mut dyn FnMut(&str) -> Result<PathBuf>,
) -> Result<Option<PathBuf>> {
    let has = |file: &str| files.contains(&file);
    if !has("config.json") || !(has(SINGLE) || has(INDEX)) {
        return Ok(None);
    }
    if let Some(folder) = fetch("config.json")?.parent() {
        // Before gigabytes of weights that cannot be run.
        check(folder)?;
    }
    for companion in ["README.md"].into_iter().chain(COMPANIONS).filter(|file| has(file)) {
        fetch(companion)?;
    }
    let first = fetch(if has(INDEX) { INDEX } else { SINGLE })?;
    let folder = first.parent().map(Path::to_path_buf).unwrap_or_default();
    for file in safetensors::files(&folder)? {
        // The index names only plain files, so the name is whole.
        if let Some(file) = file.file_name().and_then(|file| file.to_str()) {
            fetch(file)?;
        }
    }
    Ok(Some(folder))
}

#[cfg(test)]
mod tests;
