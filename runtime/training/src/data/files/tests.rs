//! Tests of finding data files.

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
    let found = find_files(folder.path(), split, true).unwrap();
    found.iter().map(|path| path.strip_prefix(folder.path()).unwrap().display().to_string()).collect()
}

#[test]
fn the_files_of_a_split_are_found_as_hugging_face_lays_them_out() {
    let shards =
        ["data/train-00001-of-00002.parquet", "data/train-00000-of-00002.parquet", "data/test-00000-of-00001.parquet"];
    assert_eq!(found(&shards, "train"), ["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet"]);
    assert_eq!(found(&shards, "test"), ["data/test-00000-of-00001.parquet"]);
    assert_eq!(found(&["train.jsonl", "test.jsonl", "README.md", ".train.jsonl"], "train"), ["train.jsonl"]);
    assert_eq!(found(&["train/one.csv.gz", "test/two.csv.gz"], "train"), ["train/one.csv.gz"]);
    assert_eq!(found(&["answers.json", "more.json"], "train"), ["answers.json", "more.json"]);
    assert_eq!(found(&["b.txt", "a.md", "README.md", "LICENSE.txt"], "train"), ["a.md", "b.txt"]);
    assert_eq!(found(&["notes.txt", "answers.jsonl"], "train"), ["answers.jsonl"]);
    assert_eq!(found(&["training.json", "my_train.json"], "train"), ["my_train.json"]);
}

#[test]
fn other_names_of_a_split_count_where_no_file_has_its_own() {
    assert_eq!(found(&["train.jsonl", "valid.jsonl"], "validation"), ["valid.jsonl"]);
    assert_eq!(found(&["train.jsonl", "val/a.jsonl"], "validation"), ["val/a.jsonl"]);
    assert_eq!(found(&["dev.jsonl", "validation.jsonl"], "validation"), ["validation.jsonl"]);
    assert_eq!(found(&["a.jsonl", "b.jsonl"], "train"), ["a.jsonl", "b.jsonl"]);
}

#[test]
fn a_name_on_the_hub_that_is_no_address_is_told_the_address() {
    let hint = |name: &str| find_files(Path::new(name), "train", true).unwrap_err().explanation().hint.unwrap();
    for name in ["nobody-here/alpaca", "https://huggingface.co/datasets/nobody-here/alpaca/tree/main"] {
        assert!(hint(name).ends_with("such as `hf://datasets/nobody-here/alpaca`"), "{}", hint(name));
    }
    for path in ["nothing", "no-folder/answers.jsonl", "/no-folder/answers", "src/answers"] {
        assert_eq!(find_files(Path::new(path), "train", true).unwrap(), [Path::new(path)]);
    }
}

/// What `datasets.data_files.get_data_patterns` of datasets 5.2 finds.
#[test]
fn shards_are_of_the_split_before_their_number_and_descriptions_are_no_data() {
    let shards = ["data/train_sft-00000-of-00001.parquet", "data/train_prefs-00000-of-00001.parquet"];
    assert_eq!(found(&shards, "train_sft"), ["data/train_sft-00000-of-00001.parquet"]);
    let hashed = ["data/train-00000-of-00001-a09b74b3ef9c3b56.parquet", "extra.parquet"];
    assert_eq!(found(&hashed, "train"), ["data/train-00000-of-00001-a09b74b3ef9c3b56.parquet"]);
    let elsewhere = ["train_sft-00000-of-00001.parquet", "test_sft-00000-of-00001.parquet"];
    assert_eq!(found(&elsewhere, "train"), ["train_sft-00000-of-00001.parquet"]);
    let numbered = ["c4-train.00000-of-00002.json.gz", "c4-validation.00000-of-00001.json.gz"];
    assert_eq!(found(&numbered, "validation"), ["c4-validation.00000-of-00001.json.gz"]);
    assert_eq!(found(&["answers.json", "dataset_infos.json"], "train"), ["answers.json"]);
    let folder = folder(&shards);
    let error = find_files(folder.path(), "train", true).unwrap_err().explanation();
    assert_eq!(error.why.unwrap(), "it has `train_prefs`, `train_sft`");
}

#[test]
fn of_a_list_of_names_the_files_of_one_folder_are_chosen_and_others_are_named_if_it_has_none() {
    let names = ["main/test/0.parquet", "main/train/0.parquet", "images/a.png", "easy/train-0.jsonl", "top.txt"];
    let names = names.map(Path::new);
    let choose = |folder: &str| choose_files(&names, Path::new(folder), "train", folder, "look elsewhere");
    assert_eq!(choose("main").unwrap(), [Path::new("main/train/0.parquet")]);
    assert_eq!(choose("easy").unwrap(), [Path::new("easy/train-0.jsonl")]);
    let hint = choose("").unwrap_err().hint.unwrap();
    assert_eq!(hint, "name a folder of the data set that has some: `easy`, `main/test`, `main/train`");
    let arrow = [Path::new("data-00000-of-00001.arrow")];
    let error = choose_files(&arrow, Path::new(""), "train", "hf://datasets/a/b", "look elsewhere").unwrap_err();
    assert_eq!(error.hint.unwrap(), "look elsewhere");
}

#[test]
fn a_folder_without_the_split_says_what_it_has() {
    let folder = folder(&["test.jsonl", "README.md"]);
    let error = find_files(folder.path(), "train", true).unwrap_err().explanation();
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
