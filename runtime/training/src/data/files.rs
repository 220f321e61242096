//! The files of a data set: one by its path, or those of a split in a folder as Hugging Face lays it out.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use tunebox_foundation::explain::Explanation;
use tunebox_foundation::hexadecimal::hexadecimal;

use super::source::{extension, unpacked_bytes};
use crate::error::Error;

/// Extensions of data files, without that of their compression.
const EXTENSIONS: [&str; 7] = ["csv", "json", "jsonl", "ndjson", "parquet", "tab", "tsv"];

/// Extensions of files that hold more text than they have bytes.
const PACKED: [&str; 4] = ["gz", "zst", "zstd", "parquet"];

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
/// compression. False for `.json`, which most files with that extension are not.
#[must_use]
pub fn has_data_name(path: &Path) -> bool {
    extension(path).is_some_and(|own| own != "json" && EXTENSIONS.contains(&own.as_str()))
}

/// Returns the files of the data at `path`: the file itself, or of a folder the data files of `split` in it, sorted by
/// name. These are the files in the folder and in its folder `data` whose name has `split` as a word, such as
/// `data/train-00000-of-00001.parquet`, and all files in a folder of that name. If no file of the folder is named for
/// any split, all its files are of the split `train`. A path that does not exist is returned as a file.
///
/// # Errors
/// A folder that cannot be read, has no file of the split, or more than 10,000.
pub fn find_files(path: &Path, split: &str) -> Result<Vec<PathBuf>, Error> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let folders = [path.to_owned(), path.join("data")];
    let all: Vec<PathBuf> = folders.iter().flat_map(|folder| list_files(folder)).collect();
    let inside: Vec<PathBuf> = folders.iter().flat_map(|folder| list_files(&folder.join(split))).collect();
    let mut found: Vec<PathBuf> = all.iter().filter(|file| has_word(file, split)).cloned().chain(inside).collect();
    if found.is_empty() && split == "train" && !all.iter().any(|file| SPLITS.iter().any(|word| has_word(file, word))) {
        found.clone_from(&all);
    }
    if found.is_empty() || found.len() > MAX_FILES {
        return Err(wrong_split(path, split, &all, found.len()).into());
    }
    Ok(found)
}

/// Names of splits that Hugging Face knows.
const SPLITS: [&str; 6] = ["train", "validation", "valid", "dev", "test", "eval"];

/// The error about a folder with no files of a split, or too many.
fn wrong_split(path: &Path, split: &str, all: &[PathBuf], count: usize) -> Explanation {
    if count > 0 {
        let what = format!("`{}` has {count} files of the split `{split}`", path.display());
        return Explanation::new("data", what).with_why(format!("at most {MAX_FILES} are read"));
    }
    let problem = Explanation::new("data", format!("`{}` has no data file of the split `{split}`", path.display()));
    if all.is_empty() {
        let why = format!("neither it nor its folder `data` has a file that ends in {}", EXTENSIONS.join(", "));
        return problem.with_why(why).with_hint("name the folder that holds the files");
    }
    let names = all.iter().take(5).filter_map(|file| file.file_name());
    let names: Vec<String> = names.map(|name| format!("`{}`", name.to_string_lossy())).collect();
    problem.with_why(format!("it has {}", names.join(", "))).with_hint("set `data.split`, or name a file")
}

/// The files directly in a folder that have an extension of data files, sorted by name; none if it cannot be read.
/// Leaves out hidden files.
fn list_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_data = |path: &PathBuf| {
        let is_hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        let is_known = extension(path).is_some_and(|own| EXTENSIONS.contains(&own.as_str()));
        is_known && !is_hidden && path.is_file()
    };
    let mut files: Vec<PathBuf> = entries.filter(is_data).collect();
    files.sort();
    files
}

/// Whether the name of a file has `word` as one of its words, which are separated by anything but letters. Ignores the
/// case of the name.
fn has_word(file: &Path, word: &str) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    name.split(|letter: char| !letter.is_alphabetic()).any(|part| part == word)
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
mod tests {
    use tunebox_foundation::explain::Explain as _;

    use super::*;

    /// A folder with these empty files.
    fn folder(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        folder
    }

    fn found(files: &[&str], split: &str) -> Vec<String> {
        let folder = folder(files);
        let found = find_files(folder.path(), split).unwrap();
        found.iter().map(|path| path.strip_prefix(folder.path()).unwrap().display().to_string()).collect()
    }

    #[test]
    fn the_files_of_a_split_are_found_as_hugging_face_lays_them_out() {
        let shards = [
            "data/train-00001-of-00002.parquet",
            "data/train-00000-of-00002.parquet",
            "data/test-00000-of-00001.parquet",
        ];
        assert_eq!(found(&shards, "train"), ["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet"]);
        assert_eq!(found(&shards, "test"), ["data/test-00000-of-00001.parquet"]);
        assert_eq!(found(&["train.jsonl", "test.jsonl", "README.md", ".train.jsonl"], "train"), ["train.jsonl"]);
        assert_eq!(found(&["train/one.csv.gz", "test/two.csv.gz"], "train"), ["train/one.csv.gz"]);
        assert_eq!(found(&["answers.json", "more.json"], "train"), ["answers.json", "more.json"]);
        assert_eq!(found(&["training.json", "my_train.json"], "train"), ["my_train.json"]);
    }

    #[test]
    fn a_folder_without_the_split_says_what_it_has() {
        let folder = folder(&["test.jsonl", "README.md"]);
        let error = find_files(folder.path(), "train").unwrap_err().explanation();
        assert!(error.what.ends_with("has no data file of the split `train`"), "{}", error.what);
        assert_eq!(
            (error.why.unwrap().as_str(), error.hint.unwrap().as_str()),
            ("it has `test.jsonl`", "set `data.split`, or name a file")
        );
    }

    #[test]
    fn one_file_has_its_own_digest_and_several_one_of_their_digests_and_weights() {
        let file = |name: &str, weight| (name.to_owned(), weight);
        assert_eq!(combined_digest(&[file("aa", 1.0)]), "aa");
        let both = combined_digest(&[file("aa", 1.0), file("bb", 2.0)]);
        assert_eq!(both.len(), 64);
        assert_ne!(both, combined_digest(&[file("aa", 2.0), file("bb", 2.0)]));
        assert_ne!(both, combined_digest(&[file("bb", 2.0), file("aa", 1.0)]));
    }
}
