//! Data files of others: archives that unpack without end, tables that lie, records without end.

use std::io::Write;
use std::process::Command;

use super::Stranger;

/// The Parquet table of `tests/golden/data.py`.
const TABLE: &[u8] = include_bytes!("../golden/data/snappy.parquet");

/// The ways to read a data file.
fn reading(file: &str) -> [String; 3] {
    [
        format!("data {file}"),
        format!("check run.toml --set data.path={file} --set data.skip-bad=true"),
        format!("train run.toml --set data.path={file} --set train.steps=1"),
    ]
}

/// Reads a file with this content in every way, and asserts that each error contains `wanted`.
fn refuse(name: &str, bytes: &[u8], wanted: &str) {
    let place = Stranger::new();
    std::fs::write(place.0.path(name), bytes).unwrap();
    let commands = reading(name);
    for told in place.refuse(&commands.each_ref().map(String::as_str)) {
        assert!(told.contains("error[data]: ") && told.contains(wanted), "{name}: {told}");
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    Command::new("gzip").args(["--fast", "--stdout"]).arg(file.path()).output().unwrap().stdout
}

#[test]
fn an_archive_that_unpacks_without_end_is_refused() {
    let blank = gzip(&vec![b'\n'; 8 << 20]);
    refuse("bomb.jsonl.gz", &blank.repeat(64), "it unpacks to too much: a file may hold 64 MiB");
    let endless = gzip(&[b"{\"text\": \"".to_vec(), vec![b'a'; 20 << 20]].concat());
    refuse("endless.jsonl.gz", &endless, "line 1 has 16777216 bytes or more");
}

#[test]
fn records_without_end_and_without_a_bottom_are_refused() {
    refuse("deep.json", &vec![b'['; 1 << 20], "the file is no JSON array: ");
    let deep = format!("[{{\"text\": {}", "[".repeat(1 << 20));
    refuse("deep-inside.json", deep.as_bytes(), "the file is no JSON array: ");
    let nested = format!("[{{\"text\": {}{}}}]", "[".repeat(100_000), "]".repeat(100_000));
    refuse("nested.json", nested.as_bytes(), "");
    let commas = [b"prompt,completion\n".to_vec(), vec![b','; 17 << 20]].concat();
    refuse("commas.csv", &commas, "the row at line 2 has 16777216 bytes or more");
    let open = [b"prompt,completion\na,\"".to_vec(), vec![b'\n'; 17 << 20]].concat();
    refuse("open.csv", &open, "the row at line 2 has 16777216 bytes or more");
}

#[test]
fn tables_that_are_cut_off_or_lie_are_refused() {
    refuse("cut.parquet", &TABLE[..TABLE.len() / 2], "it does not end with `PAR1`: it is cut off");
    refuse("text.parquet", b"prompt,completion\n", "it does not begin with `PAR1`");
    let end = TABLE.len();
    let mut lies = TABLE.to_vec();
    lies[end - 8..end - 4].copy_from_slice(&(1_u32 << 20).to_le_bytes());
    refuse("lies.parquet", &lies, "cannot be read as Parquet");
    let mut torn = TABLE.to_vec();
    torn[end - 200..end - 100].fill(0xFF);
    refuse("torn.parquet", &torn, "cannot be read as Parquet");
}

#[test]
fn text_of_a_data_file_does_not_act_on_the_terminal() {
    let place = Stranger::new();
    let record = r#"{"prompt": "\u001b[2JName a river.", "completion": "\u001b]0;x\u0007The Rhine."}"#;
    std::fs::write(place.0.path("acts.jsonl"), record).unwrap();
    let output = place.command("data acts.jsonl --model model").output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains("\\u{1b}[2JName a river."), "{told}");
    assert!(told.contains("⟦") && !told.contains('\u{1b}') && !told.contains('\u{7}'), "{told}");
}
