//! Tests of data sets on a hub.

use super::fake_hub::COMMIT;
use super::*;

/// Two shards of a split, one of another, and what is no data.
fn rivers() -> Server {
    Server::start(&[
        ("README.md", b"Rivers"),
        ("data/test-00000-of-00001.jsonl", b"test"),
        ("data/train-00000-of-00002.jsonl", b"first"),
        ("data/train-00001-of-00002.jsonl", b"second"),
        ("rivers.py", b"import os"),
    ])
}

fn data(path: &str) -> Name {
    Name::parse_data(&format!("hf://datasets/acme/tiny{path}")).unwrap()
}

/// Fetches the files of a data set whose names contain `part`, and returns their content.
fn fetch(server: &Server, cache: &Path, offline: bool, part: &str) -> Result<Vec<String>> {
    let hub = Hub::at(&server.address, cache, offline);
    let found = hub.fetch_data(&data(""), |files| {
        let mut chosen: Vec<&str> = files.iter().copied().filter(|file| file.contains(part)).collect();
        chosen.sort_unstable();
        Ok(chosen)
    })?;
    Ok(found.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect())
}

#[test]
fn chosen_files_come_once_into_the_layout_of_the_cache() {
    let (server, cache) = (rivers(), tempfile::tempdir().unwrap());
    assert_eq!(fetch(&server, cache.path(), false, "/train-").unwrap(), ["first", "second"]);
    let snapshot = cache.path().join("datasets--acme--tiny/snapshots").join(COMMIT);
    assert_eq!(std::fs::read_to_string(snapshot.join("data/train-00001-of-00002.jsonl")).unwrap(), "second");
    assert_eq!(std::fs::read_to_string(cache.path().join("datasets--acme--tiny/refs/main")).unwrap(), COMMIT);
    let asked = server.asked();
    assert!(!asked.iter().any(|path| path.contains("test-") || path.contains(".py")), "{asked:?}");
    assert_eq!(fetch(&server, cache.path(), false, "/train-").unwrap(), ["first", "second"]);
    assert_eq!(server.asked().len(), asked.len() + 1, "only the list of files is asked for again");
}

#[test]
fn a_file_that_another_program_fetched_is_not_fetched_again() {
    let (server, cache) = (rivers(), tempfile::tempdir().unwrap());
    let snapshot = cache.path().join("datasets--acme--tiny/snapshots").join(COMMIT).join("data");
    std::fs::create_dir_all(&snapshot).unwrap();
    std::fs::write(snapshot.join("train-00000-of-00002.jsonl"), "theirs").unwrap();
    assert_eq!(fetch(&server, cache.path(), false, "/train-").unwrap(), ["theirs", "second"]);
    assert!(!server.asked().iter().any(|path| path.contains("train-00000")), "{:?}", server.asked());
    assert_eq!(fetch(&server, cache.path(), true, "/train-").unwrap(), ["theirs", "second"]);
}

#[test]
fn offline_the_files_of_a_split_are_all_in_the_cache_or_it_says_which_is_not() {
    let (server, cache) = (rivers(), tempfile::tempdir().unwrap());
    fetch(&server, cache.path(), false, "/train-").unwrap();
    let asked = server.asked().len();
    assert_eq!(fetch(&server, cache.path(), true, "/train-").unwrap(), ["first", "second"]);
    let why = explained(fetch(&server, cache.path(), true, "/t").unwrap_err()).why.unwrap();
    assert!(why.ends_with("the cache does not hold `data/test-00000-of-00001.jsonl`"), "{why}");
    let empty = tempfile::tempdir().unwrap();
    let Explanation { what, why, .. } = explained(fetch(&server, empty.path(), true, "/t").unwrap_err());
    assert_eq!(what, "data set `hf://datasets/acme/tiny@main` cannot be fetched");
    assert_eq!(why.unwrap(), "nothing is fetched offline, and the cache does not hold it");
    assert_eq!(server.asked().len(), asked);
}

#[test]
fn a_name_is_pinned_to_the_commit_in_the_cache_and_found_by_it() {
    let (server, cache) = (rivers(), tempfile::tempdir().unwrap());
    let hub = Hub::at(&server.address, cache.path(), true);
    assert_eq!(hub.pin(&data("/data")), None);
    fetch(&server, cache.path(), false, "/test-").unwrap();
    let pinned = hub.pin(&data("/data")).unwrap();
    assert_eq!(pinned.to_string(), format!("hf://datasets/acme/tiny@{COMMIT}/data"));
    assert_eq!(Name::parse_data(&pinned.to_string()).as_ref(), Some(&pinned));
    let found = hub.fetch_data(&pinned, |_| Ok(vec!["data/test-00000-of-00001.jsonl"])).unwrap();
    assert_eq!(std::fs::read(&found[0]).unwrap(), b"test");
    assert_eq!(cached_address(&found[0]).unwrap(), format!("{pinned}/test-00000-of-00001.jsonl"));
    assert_eq!(cached_folder(&found[0]).unwrap(), cache.path().join("datasets--acme--tiny"));
    assert_eq!(cached_address(Path::new("/data/snapshots/one/train.jsonl")), None);
}

#[test]
fn names_in_the_list_that_lead_elsewhere_are_neither_asked_for_nor_written() {
    for odd in
        ["../../../train.jsonl", "/tmp/train.jsonl", "data/../../train.jsonl", "train.jsonl?x", "a b/train.jsonl"]
    {
        let (server, cache) = (Server::start(&[(odd, b"odd")]), tempfile::tempdir().unwrap());
        let why = explained(fetch(&server, cache.path(), false, "train").unwrap_err()).why.unwrap();
        assert!(why.starts_with(&format!("it has a file `{odd}`, which is no plain path")), "{why}");
        assert_eq!(server.asked().len(), 1, "{:?}", server.asked());
        assert!(std::fs::read_dir(cache.path()).unwrap().next().is_none(), "{odd}");
    }
}

#[test]
fn a_data_set_that_is_absent_or_gated_says_what_to_do() {
    let (server, cache) = (rivers(), tempfile::tempdir().unwrap());
    let hub = Hub::at(&server.address, cache.path(), false);
    let hint = |address: &str| {
        let name = Name::parse_data(address).unwrap();
        explained(hub.fetch_data(&name, |_| Ok(Vec::new())).unwrap_err()).hint.unwrap()
    };
    assert!(hint("hf://datasets/acme/absent").contains("check owner, name and revision"));
    assert!(hint("hf://datasets/gated/tiny").contains("accept its terms on the hub, then set `HF_TOKEN`"));
}

#[test]
fn addresses_are_those_of_huggingface_hub_and_duckdb() {
    for (address, revision, path) in [
        ("hf://datasets/acme/tiny", "main", ""),
        ("hf://datasets/acme/tiny/", "main", ""),
        ("hf://datasets/acme/tiny/en/train.jsonl", "main", "en/train.jsonl"),
        ("hf://datasets/acme/tiny@v1.0/lang=en", "v1.0", "lang=en"),
        ("hf://datasets/acme/tiny@my%2Fbranch", "my/branch", ""),
        ("hf://datasets/acme/tiny@~parquet/default", "refs/convert/parquet", "default"),
        ("hf://datasets/acme/tiny@refs/convert/parquet/default", "refs/convert/parquet", "default"),
        ("hf://datasets/acme/tiny@refs/pr/7", "refs/pr/7", ""),
    ] {
        let name = Name::parse_data(address).unwrap_or_else(|| panic!("{address}"));
        assert_eq!((name.repository.as_str(), name.revision.as_str(), name.path()), ("acme/tiny", revision, path));
        assert_eq!(Name::parse_data(&name.to_string()), Some(name), "{address}");
    }
    for wrong in [
        "hf://acme/tiny",
        "hf://datasets/tiny",
        "hf://datasets/../tiny",
        "hf://datasets//tiny",
        "hf://datasets/acme/a--b",
        "hf://datasets/acme/tiny@",
        "hf://datasets/acme/tiny@../x",
        "hf://datasets/acme/tiny@..%2Fx",
        "hf://datasets/acme/tiny@refs/pr",
        "hf://datasets/acme/tiny/../../x",
        "hf://datasets/acme/tiny//etc/passwd",
        "hf://datasets/acme/tiny/*.parquet",
        "hf://datasets/acme/tiny/a?b",
        "hf://datasets/acme/tiny/%2e%2e",
        "acme/tiny",
    ] {
        assert_eq!(Name::parse_data(wrong), None, "`{wrong}`");
    }
}
