//! Run files, and values that are set over them.

use std::path::PathBuf;

use tunebox_foundation::explain::Explain;
use tunebox_training::RunSettings;
use tunebox_training::configuration::{Document, Underline};

use crate::Target;

pub(super) const TARGET: Target = Target { name: "run_file", run, longest: 4 << 10, quick: 600 };

/// Settings, or an error that can be shown with its place. Lines that begin with `SET` are given as `--set`.
fn run(bytes: &[u8]) {
    let all = String::from_utf8_lossy(bytes);
    let (set, file): (Vec<&str>, Vec<&str>) = all.split('\n').partition(|line| line.starts_with("SET "));
    let text = file.join("\n");
    let Ok(document) = Document::parse("run.toml", &text) else { return };
    let _ = document.location("model.path", Underline::Value);
    let overrides: Vec<String> = set.iter().filter_map(|line| line.strip_prefix("SET ")).map(str::to_owned).collect();
    match RunSettings::from_text("run.toml", &text, PathBuf::new(), &overrides) {
        Ok(settings) => {
            // What is written down is read back as the same settings.
            let again = settings.to_toml("again");
            let read = RunSettings::from_text("again.toml", &again, PathBuf::new(), &[]);
            assert!(read.is_ok(), "{again}\n{:?}", read.err().map(|error| error.explanation()));
        }
        Err(error) => drop(error.explanation()),
    }
}
