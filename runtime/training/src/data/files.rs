//! The files of a data set: one by its path, or those of a split in a folder as Hugging Face lays it out, on this
//! machine or on a hub.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use tunebox_foundation::explain::Explanation;
use tunebox_foundation::hexadecimal::hexadecimal;
use tunebox_model::hub::{Hub, Name, cached_address, is_address};

use super::fault::Fault;
use super::source::{extension, unpacked_bytes};
use crate::error::Error;

/// Extensions of data files, without that of their compression.
const EXTENSIONS: [&str; 9] = ["csv", "json", "jsonl", "md", "ndjson", "parquet", "tab", "tsv", "txt"];

/// Extensions of data files that are mostly something else, so that only the user knows whether they are data.
const COMMON: [&str; 3] = ["json", "md", "txt"];

/// Extensions of plain texts; those beside other data files are not read.
const TEXTS: [&str; 2] = ["md", "txt"];

/// Extensions of files that hold more text than they have bytes.
const PACKED: [&str; 4] = ["gz", "zst", "zstd", "parquet"];

/// Files beside the data that describe it, in lower case.
const DESCRIPTIONS: [&str; 8] = [
    "config.json",
    "dataset_dict.json",
    "dataset_info.json",
    "dataset_infos.json",
    "license.md",
    "license.txt",
    "readme.md",
    "readme.txt",
];

/// The most files of a split.
const MAX_FILES: usize = 10_000;

/// A data file, and how often each of its records counts in an epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct InputFile {
    /// The path of the file.
    pub path: PathBuf,
    /// How often each of its records counts in an epoch; of a fraction, so large a share of the records.
    pub weight: f64,
}

impl InputFile {
    /// A file whose records count once.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), weight: 1.0 }
    }

    /// The file's name in messages: its path, or the address with the commit of one in the cache of a hub.
    #[must_use]
    pub fn name(&self) -> String {
        cached_address(&self.path).unwrap_or_else(|| self.path.display().to_string())
    }

    /// Bytes of text that the file may hold, estimated from its size, for the memory that reading it takes; 0 for a
    /// file that cannot be read.
    pub(crate) fn estimated_bytes(&self) -> u64 {
        /// Times that a packed file is larger once it is unpacked.
        const UNPACKED: u64 = 10;
        let stored = std::fs::metadata(&self.path).map_or(0, |about| about.len());
        let is_packed = self.path.extension().is_some_and(|own| PACKED.iter().any(|known| own == *known));
        let held = if is_packed { stored.saturating_mul(UNPACKED).min(unpacked_bytes(stored)) } else { stored };
        (held as f64 * self.weight.max(1.0)) as u64
    }
}

/// Whether the name of a file is that of data: one of the extensions of data files, with or without that of a
/// compression. False for `.json`, `.md` and `.txt`, which most files with these extensions are not.
#[must_use]
pub fn has_data_name(path: &Path) -> bool {
    extension(path).is_some_and(|own| !COMMON.contains(&own.as_str()) && EXTENSIONS.contains(&own.as_str()))
}

/// Returns the files of the data at `path`: the file itself, or of a folder the data files of `split` in it. These are
/// the files in the folder and in its folder `data` whose name has `split` between other characters than letters, such
/// as `my_train.jsonl`, and all files in a folder of that name. A shard in `data`, such as
/// `data/train_sft-00000-of-00002.parquet`, is of the split before its number alone. If no file of the folder is named
/// for any split, all its files are of the split `train`. Plain texts count only if there are no other data files. If
/// no file has the name of the split, its other names count ([`split_names`]). A path that does not exist is returned
/// as a file, unless it may be a name on a hub.
///
/// Of an address on a hub (`hf://datasets/…`), returns the paths of the files in the cache, after downloading those
/// that the cache lacks, unless `offline`.
///
/// # Errors
/// A folder that cannot be read, has no file of the split, or more than 10,000; a wrong address, a name on a hub that
/// is no address, and data that cannot be fetched.
pub fn find_files(path: &Path, split: &str, offline: bool) -> Result<Vec<PathBuf>, Error> {
    if let Some(address) = path.to_str().filter(|text| is_address(text)) {
        return find_on_hub(address, split, offline);
    }
    if let Some(address) = meant_address(path) {
        let problem = Explanation::new("data", format!("`{}` cannot be read", path.display()));
        let hint = format!("check the path; data on the hub has an address, such as `{address}`");
        return Err(problem.with_why("there is no such file or folder").with_hint(hint).into());
    }
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let inside = split_names(split).into_iter().flat_map(|name| [name.into(), Path::new("data").join(name)]);
    let folders: Vec<PathBuf> = [PathBuf::new(), "data".into()].into_iter().chain(inside).collect();
    let names: Vec<PathBuf> = folders.iter().flat_map(|folder| list_files(path, folder)).collect();
    let names: Vec<&Path> = names.iter().map(PathBuf::as_path).collect();
    let shown = path.display().to_string();
    let found = choose_files(&names, Path::new(""), split, &shown, "name the folder that holds the files");
    Ok(found.map_err(|fault| *fault)?.into_iter().map(|name| path.join(name)).collect())
}

/// The address on the hub of a data set that a path to nothing probably means: one of the form `OWNER/NAME` without the
/// extension of a data file and without a folder `OWNER`, or of the page of the data set. `None` for any other path.
fn meant_address(path: &Path) -> Option<String> {
    let shown = path.to_str().filter(|_| !path.exists())?;
    let name = match shown.split_once("huggingface.co/datasets/") {
        Some((_, name)) => name.split('/').take(2).collect::<Vec<_>>().join("/"),
        None => {
            let is_file = extension(path).is_some_and(|own| EXTENSIONS.contains(&own.as_str()));
            let has_folder = path.parent().is_some_and(Path::exists);
            (!is_file && !has_folder && path.is_relative() && path.components().count() == 2)
                .then(|| shown.to_owned())?
        }
    };
    let address = format!("hf://datasets/{name}");
    Name::parse_data(&address).map(|_| address)
}

/// The names of a split in the order in which they are looked for: its own, then those that the library `datasets`
/// reads as the same.
fn split_names(split: &str) -> Vec<&str> {
    let others: &[&str] = match split {
        "validation" => &["valid", "val", "dev"],
        "test" => &["eval", "evaluation"],
        _ => &[],
    };
    [&[split], others].concat()
}

/// Finds the files of the data at an address on a hub, as [`find_files`] does.
fn find_on_hub(address: &str, split: &str, offline: bool) -> Result<Vec<PathBuf>, Error> {
    let name = Name::parse_data(address).ok_or_else(|| {
        Explanation::new("data", format!("`{address}` is no address of a data set"))
            .with_hint("write `hf://datasets/OWNER/NAME`, with `@REVISION` and then `/PATH` after it if need be")
    })?;
    let hint = format!("the hub may have converted it: name `{}`", name.parquet_copy());
    Ok(Hub::from_environment(offline).fetch_data(&name, |files| {
        if let Some(file) = files.iter().find(|file| **file == name.path()) {
            return Ok(vec![*file]);
        }
        let names: Vec<&Path> = files.iter().map(|file| Path::new(*file)).collect();
        let found = choose_files(&names, Path::new(name.path()), split, address, &hint);
        Ok(found.map_err(tunebox_model::Error::Explained)?.into_iter().filter_map(Path::to_str).collect())
    })?)
}

/// Chooses the data files of `split` in `folder` from `names`, the paths of files in a data set, sorted by name. The
/// error calls the folder `shown`; `hint` says what to do if no folder of the data set has data files.
fn choose_files<'a>(
    names: &[&'a Path],
    folder: &Path,
    split: &str,
    shown: &str,
    hint: &str,
) -> Result<Vec<&'a Path>, Fault> {
    let mut data: Vec<&Path> = names.iter().copied().filter(|name| is_data_file(name)).collect();
    let is_text = |file: &&Path| extension(file).is_some_and(|own| TEXTS.contains(&own.as_str()));
    if !data.iter().all(is_text) {
        data.retain(|file| !is_text(file));
    }
    data.sort();
    let folders = [folder.to_owned(), folder.join("data")];
    let list = |folder: &Path| data.iter().copied().filter(|file| file.parent() == Some(folder)).collect::<Vec<_>>();
    let all: Vec<&Path> = folders.iter().flat_map(|folder| list(folder)).collect();
    let find = |split: &str| {
        let inside = folders.iter().flat_map(|folder| list(&folder.join(split)));
        all.iter().copied().filter(|file| is_of_split(file, split)).chain(inside).collect::<Vec<&Path>>()
    };
    let mut found = split_names(split).into_iter().map(find).find(|found| !found.is_empty()).unwrap_or_default();
    let is_named = |file: &&Path| shard_split(file).is_some() || SPLITS.iter().any(|word| has_word(file, word));
    if found.is_empty() && split == "train" && !all.iter().any(is_named) {
        found.clone_from(&all);
    }
    if found.len() > MAX_FILES {
        let what = format!("`{shown}` has {} files of the split `{split}`", found.len());
        return Err(Explanation::new("data", what).with_why(format!("at most {MAX_FILES} are read")).into());
    }
    if found.is_empty() {
        let problem = Explanation::new("data", format!("`{shown}` has no data file of the split `{split}`"));
        let problem = if all.is_empty() { without_data(problem, &data, hint) } else { without_split(problem, &all) };
        return Err(problem.into());
    }
    Ok(found)
}

/// Completes the error about a folder whose files are of other splits: lists the splits of shards, and the names of
/// other files.
fn without_split(problem: Explanation, files: &[&Path]) -> Explanation {
    let name = |file: &&Path| match shard_split(file) {
        Some(split) => split.to_owned(),
        None => file.file_name().unwrap_or_default().to_string_lossy().into_owned(),
    };
    let why = format!("it has {}", list_names(files.iter().map(name)));
    problem.with_why(why).with_hint("set `data.split`, or name a file")
}

/// Completes the error about a folder without data files: lists other folders of the data set that have some, or gives
/// `hint` if there are none.
fn without_data(problem: Explanation, data: &[&Path], hint: &str) -> Explanation {
    let why = format!("neither it nor its folder `data` has a file that ends in {}", EXTENSIONS.join(", "));
    let folders = list_names(data.iter().filter_map(|file| Some(file.parent()?.to_string_lossy().into_owned())));
    let others = format!("name a folder of the data set that has some: {folders}");
    problem.with_why(why).with_hint(if folders.is_empty() { hint } else { &others })
}

/// Lists at most 8 different names in backticks; empty ones and repetitions are left out.
fn list_names(names: impl Iterator<Item = String>) -> String {
    let mut names: Vec<String> = names.filter(|name| !name.is_empty()).map(|name| format!("`{name}`")).collect();
    names.dedup();
    let more = if names.len() > 8 { ", …" } else { "" };
    names.truncate(8);
    names.join(", ") + more
}

/// Names of splits that Hugging Face knows.
const SPLITS: [&str; 7] = ["train", "validation", "valid", "val", "dev", "test", "eval"];

/// The paths, relative to `top`, of the files directly in its folder `folder`; none if it cannot be read.
fn list_files(top: &Path, folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(top.join(folder)).into_iter().flatten().flatten();
    entries.filter(|entry| entry.path().is_file()).map(|entry| folder.join(entry.file_name())).collect()
}

/// Whether a file has an extension of data files, and is neither hidden nor one that describes a data set.
fn is_data_file(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let is_known = extension(file).is_some_and(|own| EXTENSIONS.contains(&own.as_str()));
    is_known && !name.starts_with('.') && !DESCRIPTIONS.contains(&name.to_lowercase().as_str())
}

/// Whether the name of a file in a folder says that it is of a split.
fn is_of_split(file: &Path, split: &str) -> bool {
    shard_split(file).map_or_else(|| has_word(file, split), |own| own == split)
}

/// The split of a shard in a folder `data`, such as `train_sft` of `data/train_sft-00000-of-00002.parquet`; `None` for
/// other files.
fn shard_split(file: &Path) -> Option<&str> {
    let (before, _) = file.file_name()?.to_str()?.split_once("-of-")?;
    let (split, number) = before.rsplit_once('-')?;
    let is_shard = number.len() == 5 && number.bytes().all(|digit| digit.is_ascii_digit());
    Some(split).filter(|_| is_shard && file.parent().is_some_and(|folder| folder.ends_with("data")))
}

/// Whether the name of a file has `word` in it, with no letter before and after it. Ignores the case of the name.
fn has_word(file: &Path, word: &str) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let is_alone = |(start, _): (usize, &str)| {
        let (before, after) = (&name[..start], &name[start + word.len()..]);
        !before.ends_with(char::is_alphabetic) && !after.starts_with(char::is_alphabetic)
    };
    name.match_indices(word).any(is_alone)
}

/// The digest of files with these digests and weights: that of the file, if there is one of weight 1, else the SHA-256
/// of a line `digest weight` for each of them.
pub(crate) fn combined_digest(files: &[(String, f64)]) -> String {
    if let [(digest, 1.0)] = files {
        return digest.clone();
    }
    let mut whole = Sha256::new();
    for (digest, weight) in files {
        whole.update(format!("{digest} {weight}\n"));
    }
    hexadecimal(&whole.finalize())
}

#[cfg(test)]
mod tests;
