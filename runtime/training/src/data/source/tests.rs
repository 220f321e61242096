//! Every format, compressed or not, whole or damaged.

use std::io::Write;
use std::path::PathBuf;

use tunebox_foundation::explain::Explain as _;

use super::*;

/// The tables that Hugging Face's libraries wrote, by `tests/golden/data.py`.
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/data");

/// A record: where it begins, and its text, or what is wrong with it.
type Found = (u64, usize, Result<String, String>);

/// Reads a file with this name and content.
fn read(name: &str, bytes: &[u8]) -> Result<(Vec<Found>, FileFacts), Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    read_path(&path)
}

fn read_path(path: &Path) -> Result<(Vec<Found>, FileFacts), Error> {
    let mut found = Vec::new();
    let facts = read_records(path, &mut |_, lines| {
        let text = |line: Line| {
            let text = line.text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            (line.number, line.column, text.map_err(|fault| fault.what))
        };
        found.extend(lines.into_iter().map(text));
        Ok(())
    })?;
    Ok((found, facts))
}

fn records(name: &str, bytes: &[u8]) -> Vec<Found> {
    read(name, bytes).unwrap().0
}

fn error(name: &str, bytes: &[u8]) -> Explanation {
    read(name, bytes).err().unwrap().explanation()
}

fn found(number: u64, column: usize, text: &str) -> Found {
    (number, column, Ok(text.into()))
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::stream::encode_all(bytes, 3).unwrap()
}

#[test]
fn marks_blank_lines_and_windows_ends_are_taken() {
    let lines = records("a.jsonl", b"\xEF\xBB\xBF{\"a\":1}\r\n\r\n  \n{\"b\":2}\n{\"c\":3}");
    assert_eq!(lines, [found(1, 1, "{\"a\":1}"), found(4, 1, "{\"b\":2}"), found(5, 1, "{\"c\":3}")]);
}

#[test]
fn long_records_are_read_a_few_at_a_time() {
    let line = [b"{\"a\": \"".to_vec(), vec![b'a'; 700 << 10], b"\"}\n".to_vec()].concat();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.jsonl");
    std::fs::write(&path, line.repeat(5)).unwrap();
    let mut counts = Vec::new();
    read_records(&path, &mut |_, lines| {
        counts.push(lines.len());
        Ok(())
    })
    .unwrap();
    assert_eq!(counts, [3, 2]);
}

#[test]
fn a_line_of_a_terabyte_is_not_read_to_its_end() {
    let hole = tempfile::NamedTempFile::new().unwrap();
    hole.as_file().set_len(1 << 40).unwrap();
    let error = read_path(hole.path()).err().unwrap();
    assert_eq!(error.why().unwrap(), "line 1 has 16777216 bytes or more");
}

#[test]
fn the_digest_is_that_of_the_whole_file_as_it_is_stored() {
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(read("a.jsonl", b"abc").unwrap().1.digest, abc);
    for (name, bytes) in [("a.json", b"[]  ".to_vec()), ("a.jsonl.gz", gzip(b"{}")), ("a.csv", b"a,b\n".to_vec())] {
        let digest = hexadecimal(&Sha256::digest(&bytes));
        assert_eq!(read(name, &bytes).unwrap().1.digest, digest, "{name}");
    }
}

#[test]
fn an_array_is_read_element_by_element_with_the_place_of_each() {
    let array = "[\n  {\"é\": 1}, {\"a\": 2},\n  {\n    \"b\": 3\n  }\n]\n";
    let wanted = [found(2, 3, "{\"é\": 1}"), found(2, 13, "{\"a\": 2}"), found(3, 3, "{\n    \"b\": 3\n  }")];
    assert_eq!(records("a.json", array.as_bytes()), wanted);
    // By content, whatever the name says.
    assert_eq!(records("a.jsonl", array.as_bytes()), wanted);
    assert_eq!(records("a.json", b"{\"a\":1}\n{\"b\":2}"), [found(1, 1, "{\"a\":1}"), found(2, 1, "{\"b\":2}")]);
}

#[test]
fn an_array_that_is_broken_is_told_with_its_place() {
    let told = |text: &str| {
        let error = error("a.json", text.as_bytes());
        let place = error.location.unwrap();
        (error.what, place.rsplit_once("a.json:").unwrap().1.to_owned())
    };
    assert_eq!(
        told("[{\"a\": 1},\n {\"b\": "),
        ("the file is no JSON array: it ends inside a value".into(), "2:7".into())
    );
    assert_eq!(told("[{\"a\": 1}\n x]").1, "2:2");
    assert_eq!(told("[{\"a\": 1}] {}"), ("the file is no JSON array: trailing characters".into(), "1:12".into()));
}

#[test]
fn an_element_without_end_is_not_read_to_its_end() {
    let endless = [b"[\n{\"a\": \"".to_vec(), vec![b'a'; 17 << 20]].concat();
    assert_eq!(error("a.json", &endless).why.unwrap(), "the record at line 2 has 16777216 bytes or more");
    let deep = [b"[".to_vec(), vec![b'['; 1 << 20]].concat();
    assert!(error("a.json", &deep).what.starts_with("the file is no JSON array: "));
}

#[test]
fn tables_of_text_are_read_by_the_names_of_their_columns() {
    let csv = "prompt,completion,,label\n\"a, \"\"b\"\"\nc\",d,x,1\n\ne,f,,0\n";
    let rows = records("a.csv", csv.as_bytes());
    assert_eq!(rows[0], found(2, 1, r#"{"prompt":"a, \"b\"\nc","completion":"d","label":"1"}"#));
    assert_eq!(rows[1], found(5, 1, r#"{"prompt":"e","completion":"f","label":"0"}"#));
    assert_eq!(records("a.tsv", b"a\tb\n1\t2"), [found(2, 1, r#"{"a":"1","b":"2"}"#)]);
    assert_eq!(records("a.csv", b"\xEF\xBB\xBFa;b\r\n1;2\r\n"), [found(2, 1, r#"{"a":"1","b":"2"}"#)]);
}

#[test]
fn rows_have_the_number_of_the_line_in_which_they_begin() {
    let numbers = |text: &str| records("a.csv", text.as_bytes()).iter().map(|row| row.0).collect::<Vec<_>>();
    for end in ["", "\n"] {
        let text = format!("a,b\n1,2\n\n\n3,\"4\n5\"\n6,7{end}");
        assert_eq!(numbers(&text), [2, 5, 7], "{text:?}");
        assert_eq!(numbers(&text.replace('\n', "\r\n")), [2, 5, 7], "{text:?}");
    }
}

#[test]
fn rows_and_headers_that_fit_no_table_are_told() {
    let rows = records("a.csv", b"a,b\n1\n2,3\n\xFF,4\n");
    assert_eq!(rows[0].2, Err("the row has 1 field, the first row names 2 columns".into()));
    assert!(rows[1].2.is_ok());
    assert_eq!(rows[2].2, Err("`a` is not UTF-8 text".into()));
    assert_eq!(error("a.csv", b"a,a\n1,2").what, "two columns are named `a`");
    let wide = ",x".repeat(1_000);
    assert_eq!(error("a.csv", wide.as_bytes()).what, "the table has 1001 columns, at most 1000 are read");
    let endless = [b"a,b\n1,2\n3,\"".to_vec(), vec![b'a'; 17 << 20]].concat();
    assert_eq!(error("a.csv", &endless).why.unwrap(), "the row at line 3 has 16777216 bytes or more");
}

#[test]
fn a_quote_that_is_not_closed_is_an_error_at_the_line_where_it_begins() {
    for (text, line) in [
        ("a,b\n1,2\n3,\"4\n5,6\n7,8\n", 3),
        ("a,b\n\n\n1,\"2\n2\"\n\"3\n3\",\"4\n5,6", 7),
        ("a,\"b\n1,2\n", 1),
        ("a,b\n1,\"", 2),
    ] {
        for text in [text.to_owned(), text.replace('\n', "\r\n")] {
            let error = error("a.csv", text.as_bytes());
            assert_eq!(error.what, "a quote is not closed", "{text:?}");
            assert!(error.location.as_ref().unwrap().ends_with(&format!("a.csv:{line}")), "{text:?}: {error:?}");
        }
    }
    assert_eq!(records("a.csv", b"a,b\n1,\"2\n\""), [found(2, 1, r#"{"a":"1","b":"2\n"}"#)]);
}

#[test]
fn compressed_files_are_unpacked_by_their_content() {
    let lines = b"{\"a\":1}\n{\"b\":2}\n";
    let wanted = records("a.jsonl", lines);
    assert_eq!(records("a.jsonl.gz", &gzip(lines)), wanted);
    assert_eq!(records("a.jsonl", &gzip(lines)), wanted);
    assert_eq!(records("a.jsonl.zst", &zstd(lines)), wanted);
    // Several members and frames are one text.
    let parts = |pack: fn(&[u8]) -> Vec<u8>| [pack(&lines[..8]), pack(&lines[8..])].concat();
    assert_eq!(records("a.jsonl.gz", &parts(gzip)), wanted);
    assert_eq!(records("a.jsonl.zst", &parts(zstd)), wanted);
    assert_eq!(records("a.csv.gz", &gzip(b"a\n1\n")), [found(2, 1, r#"{"a":"1"}"#)]);
    assert_eq!(records("a.json.zst", &zstd(b"[{}]")), [found(1, 2, "{}")]);
}

#[test]
fn damaged_and_cut_off_archives_end_in_words() {
    let lines = "{\"a\": \"some text that is not short\"}\n".repeat(200);
    for (name, packed) in [("a.jsonl.gz", gzip(lines.as_bytes())), ("a.jsonl.zst", zstd(lines.as_bytes()))] {
        let cut = &packed[..packed.len() - 9];
        assert!(error(name, cut).what.ends_with("cannot be read"), "{name}");
        let mut torn = packed.clone();
        let middle = torn.len() / 2;
        torn[middle] ^= 0xFF;
        // A changed byte may also give other text; it must not be taken silently by both checks of the format.
        if let Ok((found, _)) = read(name, &torn) {
            assert!(found.len() <= 200, "{name}");
        }
    }
}

#[test]
fn an_archive_that_unpacks_to_far_more_than_its_size_is_refused() {
    let blank = vec![b'\n'; 100 << 20];
    for (name, packed) in [("a.jsonl.gz", gzip(&blank)), ("a.jsonl.zst", zstd(&blank))] {
        assert!(packed.len() < 200 << 10, "{name}");
        let why = error(name, &packed).why.unwrap();
        assert!(why.contains("it unpacks to too much: a file may hold 64 MiB and 200 times its own size"), "{why}");
    }
}

#[test]
fn records_that_are_larger_together_than_their_file_explains_are_refused() {
    let mut sink = |_: Format, _: Vec<Line>| -> Result<(), Error> { Ok(()) };
    let (format, lines) = (Format::Parquet, Vec::new());
    let mut chunks = Chunks { name: "a.parquet", format, sink: &mut sink, lines, bytes: 0, left: 100 };
    let row = || Line { number: 1, column: 1, text: Ok(vec![b' '; 60]) };
    chunks.push(row()).unwrap();
    let error = chunks.push(row()).unwrap_err();
    assert_eq!(error.to_string(), "`a.parquet` unpacks to far more than its size explains");
}

fn golden(name: &str) -> PathBuf {
    Path::new(GOLDEN).join(name)
}

#[test]
fn tables_that_hugging_face_writes_are_read_with_every_compression() {
    for compression in ["snappy", "gzip", "zstd", "none"] {
        let (rows, facts) = read_path(&golden(&format!("{compression}.parquet"))).unwrap();
        assert_eq!(facts.lines, 3, "{compression}");
        let first: Value = serde_json::from_str(rows[0].2.as_ref().unwrap()).unwrap();
        let messages = serde_json::json!([
            { "content": "Name a river.", "role": "user" }, { "content": "The Rhine.", "role": "assistant" },
        ]);
        assert_eq!(first["messages"], messages, "{compression}");
        assert_eq!((&first["score"], &first["count"], &first["good"]), (&0.5.into(), &7.into(), &true.into()));
        assert_eq!((first["tags"].clone(), &first["text"]), (serde_json::json!(["a", "b"]), &"ä".into()));
        let last: Value = serde_json::from_str(rows[2].2.as_ref().unwrap()).unwrap();
        assert!(last["text"].is_null() && last["tags"] == serde_json::json!([]), "{last}");
    }
}

#[test]
fn a_damaged_table_never_ends_the_reader() {
    let bytes = std::fs::read(golden("snappy.parquet")).unwrap();
    for length in (4..bytes.len()).step_by(7) {
        assert!(read("a.parquet", &bytes[..length]).is_err(), "cut at {length}");
    }
    for place in 4..bytes.len() {
        let mut torn = bytes.clone();
        torn[place] ^= 0x55;
        // Read or refused, but never a panic.
        if let Err(error) = read("a.parquet", &torn) {
            assert!(error.why().is_some(), "byte {place}");
        }
    }
    assert_eq!(error("a.parquet", b"no table").why.unwrap(), "it does not begin with `PAR1`");
    let long = [b"PAR1".as_slice(), &[0; 8], &u32::MAX.to_le_bytes(), b"PAR1"].concat();
    assert!(error("a.parquet", &long).why.unwrap().starts_with("its description has 4294967295 bytes"));
}

#[test]
fn a_plain_text_is_one_record_and_json_under_its_name_is_json() {
    let text = |name: &str, bytes: &[u8]| records(name, bytes).into_iter().map(|(.., text)| text).collect::<Vec<_>>();
    for name in ["book.txt", "book.md", "book.TXT.gz"] {
        let bytes = "# Rhine\r\n\n[It] {flows}.\n".as_bytes();
        let bytes = if name.ends_with("gz") { gzip(bytes) } else { bytes.to_vec() };
        assert_eq!(text(name, &bytes), [Ok(r##"{"text":"# Rhine\r\n\n[It] {flows}.\n"}"##.to_owned())]);
    }
    assert_eq!(text("a.md", b"[{\"a\": 1}]").len(), 1);
    assert_eq!(text("a.md", b"[{\"a\": 1}]")[0], Ok(r#"{"text":"[{\"a\": 1}]"}"#.to_owned()));
    assert_eq!(
        text("a.txt", b"{\"a\": 1}\n{ \"a\": 2}"),
        ["{\"a\": 1}", "{ \"a\": 2}"].map(|text| Ok(text.to_owned()))
    );
    assert_eq!(text("a.txt", b" [ {\"a\": 1}]"), [Ok("{\"a\": 1}".to_owned())]);
    assert_eq!(text("a.txt", b"[1] {x}").len(), 1);
    assert!(text("a.txt", b" \n\n").is_empty());
    assert_eq!(text("a.txt", b"Rh\xFFne"), [Err("the text is not UTF-8".to_owned())]);
}

#[test]
fn a_plain_text_of_sixteen_mebibytes_is_refused() {
    let problem = error("book.txt", "All work.\n".repeat(1_700_000).as_bytes());
    assert!(problem.why.unwrap().contains("has 16777216 bytes or more"));
    assert!(problem.hint.unwrap().contains("each file is one text"));
}
