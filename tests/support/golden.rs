//! Files that are generated and compared: a test fails where they differ, `BLESS=1` rewrites them.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compares a file of the repository with what it should hold, or writes it under `BLESS=1`.
pub(crate) fn assert_file(path: &str, wanted: &str) {
    let file = root().join(path);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&file, wanted).unwrap();
        return;
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    let line = found
        .lines()
        .zip(wanted.lines())
        .position(|(a, b)| a != b)
        .unwrap_or(found.lines().count().min(wanted.lines().count()));
    assert!(
        found == wanted,
        "`{path}` is out of date from line {}:\n  found  {:?}\n  wanted {:?}\n`BLESS=1 cargo test --release --workspace` rewrites it",
        line + 1,
        found.lines().nth(line),
        wanted.lines().nth(line),
    );
}

/// Compares what stands between the marks `name` of a page with what it should be, or writes it under `BLESS=1`. One test at a
/// time: several write the same page.
pub(crate) fn assert_section(path: &str, name: &str, wanted: &str) {
    static PAGES: Mutex<()> = Mutex::new(());
    let _alone = PAGES.lock().unwrap_or_else(PoisonError::into_inner);
    let page = std::fs::read_to_string(root().join(path)).unwrap();
    let (begin, end) = (format!("<!-- {name}:begin -->\n"), format!("<!-- {name}:end -->"));
    let start = page.find(&begin).unwrap_or_else(|| panic!("{path} has no mark `{name}`")) + begin.len();
    let stop = page.find(&end).unwrap_or_else(|| panic!("{path} has no end mark `{name}`"));
    assert_file(path, &format!("{}{wanted}{}", &page[..start], &page[stop..]));
}
