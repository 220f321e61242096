//! Fetches the files of data sets, and finds them in the cache, where each commit has a list of all its files: without
//! it, a part of the files of a split would look like all of them.

use std::path::{Path, PathBuf};

use tunebox_foundation::files;

use super::name::{Kind, is_file_path};
use super::{Hub, Name, is_commit};
use crate::error::Result;

/// The prefix of the folder of a data set in the cache, `datasets--owner--name`.
const PREFIX: &str = "datasets--";

/// The folder in that of a data set with the list of files of each commit, as a JSON array.
const LISTS: &str = ".tunebox";

impl Hub {
    /// Returns the paths in the cache of those files of a data set that `choose` picks from the names of all its files,
    /// after downloading the ones that the cache lacks, from the commit that the revision names now. Records the commit
    /// and its list of files in the cache. Offline, only looks in the cache.
    ///
    /// # Errors
    /// When there is no cache folder, when the hub cannot be reached, has no such data set or names no commit, when
    /// `choose` fails or picks a name that is no plain path, and when offline and the cache lacks the list or a file.
    pub fn fetch_data(
        &self,
        name: &Name,
        choose: impl for<'a> FnOnce(&[&'a str]) -> Result<Vec<&'a str>>,
    ) -> Result<Vec<PathBuf>> {
        if self.offline {
            return self.find_cached_data(name, choose);
        }
        self.fetch_files(name, |commit, names, fetch| {
            let chosen = self.check_paths(name, choose(names)?)?;
            let paths = chosen.into_iter().map(fetch).collect::<Result<_>>()?;
            let lists = self.data_folder(name)?.join(LISTS);
            files::create_folder(&lists)?;
            files::write(&lists.join(commit), &serde_json::to_vec(names).unwrap_or_default())?;
            Ok(paths)
        })
    }

    /// Finds the files that `choose` picks in the cache, without network.
    fn find_cached_data(
        &self,
        name: &Name,
        choose: impl for<'a> FnOnce(&[&'a str]) -> Result<Vec<&'a str>>,
    ) -> Result<Vec<PathBuf>> {
        let folder = self.data_folder(name)?;
        let absent = |what: &str| {
            let why = format!("nothing is fetched offline, and the cache does not hold {what}");
            self.error(name, &why, "run once without `--offline`, or name a file or folder of this machine")
        };
        let commit = self.pin(name).ok_or_else(|| absent("it"))?.revision;
        let list = std::fs::read(folder.join(LISTS).join(&commit)).map_err(|_| absent("the list of its files"))?;
        let names: Vec<String> = serde_json::from_slice(&list).map_err(|_| absent("the list of its files"))?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let find = |file: &str| {
            let path = folder.join("snapshots").join(&commit).join(file);
            if path.is_file() { Ok(path) } else { Err(absent(&format!("`{file}`"))) }
        };
        self.check_paths(name, choose(&names)?)?.into_iter().map(find).collect()
    }

    /// Replaces the revision of a data set's name by the commit that the cache has under it; `None` if it has none.
    #[must_use]
    pub fn pin(&self, name: &Name) -> Option<Name> {
        let folder = self.data_folder(name).ok()?;
        let recorded = std::fs::read_to_string(folder.join("refs").join(&name.revision)).ok();
        // A commit is recorded only under the names by which it was fetched.
        let commit = recorded.unwrap_or_else(|| name.revision.clone());
        is_commit(&commit).then(|| Name { revision: commit, ..name.clone() })
    }

    /// The folder of a data set in the cache. Fails without a cache.
    fn data_folder(&self, name: &Name) -> Result<PathBuf> {
        Ok(self.cache(name)?.path().join(name.repository(&name.revision).folder_name()))
    }

    /// Returns the paths of files in a repository. Fails for the first that could lead outside it, or elsewhere in a
    /// URL.
    fn check_paths<'a>(&self, name: &Name, paths: Vec<&'a str>) -> Result<Vec<&'a str>> {
        match paths.iter().find(|path| !is_file_path(path)) {
            None => Ok(paths),
            Some(odd) => {
                let why =
                    format!("it has a file `{odd}`, which is no plain path of ASCII letters, digits and `-_.+=,@`");
                Err(self.error(name, &why, "download the files by other means, and name their folder"))
            }
        }
    }
}

/// The folder of the data set that `path`, the path of a data file, is in, within the cache of a hub: it holds
/// everything that finding the file again takes. `None` for other files.
#[must_use]
pub fn cached_folder(path: &Path) -> Option<&Path> {
    let is_data_set =
        |folder: &&Path| folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
    let snapshots = path.ancestors().skip(2).filter(|above| above.ends_with("snapshots"));
    snapshots.filter_map(Path::parent).find(is_data_set)
}

/// The address, with its commit, of a data file in the cache of a hub; `None` for other files.
#[must_use]
pub fn cached_address(path: &Path) -> Option<String> {
    let folder = cached_folder(path)?;
    let repository = folder.file_name()?.to_str()?.strip_prefix(PREFIX)?.replace("--", "/");
    let (revision, file) = path.strip_prefix(folder.join("snapshots")).ok()?.to_str()?.split_once('/')?;
    let (revision, file) = (revision.to_owned(), Some(file.to_owned()));
    Some(Name { kind: Kind::DataSet, repository, revision, path: file }.to_string())
}
