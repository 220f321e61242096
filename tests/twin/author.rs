//! A test of an author's is served by the very host: what it sends and gets is written by hand here.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Output};
use std::time::Duration;

use serde_json::Value;

use super::{text, tunebox};

/// A test of an author's, as the bytes that it sends and gets.
struct Author {
    stream: UnixStream,
    host: Child,
}

const MANIFEST: &str = r#"{"name": "calm", "version": "0.1.0", "description": "Calm", "shape": "supervised",
    "settings": [{"name": "half", "doc": "How calm.", "kind": "number", "default": 0.5, "low": 0.0}],
    "metrics": ["loss"], "interface": "0.2.0"}"#;

impl Author {
    /// Starts the host, hears its greeting, and says what is wanted.
    fn wants(wanted: &str) -> Self {
        let (stream, theirs) = UnixStream::pair().unwrap();
        let host = tunebox(&["host"]).stdin(OwnedFd::from(theirs)).spawn().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut author = Self { stream, host };
        assert_eq!(author.hear(), string("0.2.0"));
        author.say(&[string(MANIFEST), string(wanted)].concat());
        author
    }

    fn say(&mut self, payload: &[u8]) {
        self.stream.write_all(&(payload.len() as u32).to_le_bytes()).unwrap();
        self.stream.write_all(payload).unwrap();
    }

    fn hear(&mut self) -> Vec<u8> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).unwrap();
        let mut payload = vec![0; u32::from_le_bytes(length) as usize];
        self.stream.read_exact(&mut payload).unwrap();
        payload
    }

    /// The call that comes now is this one; it ends well.
    fn is_called(&mut self, export: u8) -> Vec<u8> {
        let call = self.hear();
        assert_eq!(call[..2], [0, export], "{}", text(&call));
        self.say(&[1, 0]);
        call[2..].to_vec()
    }

    /// The report that comes now.
    fn report(&mut self) -> Value {
        let frame = self.hear();
        assert_eq!(frame[0], 4, "{}", text(&frame));
        serde_json::from_slice(&frame[5..]).unwrap()
    }

    /// Goes, and gives what the host ended with.
    fn leave(self) -> Output {
        drop(self.stream);
        self.host.wait_with_output().unwrap()
    }
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
}

#[test]
fn an_authors_test_is_served_without_a_component() {
    let mut author =
        Author::wants(r#"{"settings": {"half": 0.25}, "seed": 3, "rows": 4, "set": {"train.accumulation": 2}}"#);
    let settings = author.is_called(0);
    let wanted = [&1_u32.to_le_bytes()[..], &string("half"), &[2], &0.25_f64.to_le_bytes()].concat();
    assert_eq!(settings, wanted);
    assert_eq!(author.report()["step"], 0);

    // Between two calls a test computes as a method would.
    author.say(&[&[0][..], &string("run/log"), &string("hello")].concat());
    assert_eq!(author.hear(), [1]);
    author.say(&[&[3][..], &string("step")].concat());
    for _ in 0..2 {
        let call = author.hear();
        assert_eq!(call[..2], [0, 1]);
        author.say(&[&[0][..], &string("data/[method]batch.size"), &call[2..]].concat());
        assert_eq!(author.hear(), [&[1][..], &2_u32.to_le_bytes()].concat());
        author.say(&[&[0][..], &string("run/metric"), &string("loss"), &1.5_f32.to_le_bytes()].concat());
        assert_eq!(author.hear(), [1, 0]);
        author.say(&[1, 0]);
    }
    let report = author.report();
    assert_eq!(
        (&report["step"], &report["metrics"]["loss"], &report["log"][0]),
        (&1.into(), &1.5.into(), &"hello".into())
    );
    author.say(&[&[3][..], &string("finish")].concat());
    author.is_called(2);
    author.report();
    let ended = author.leave();
    assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
}

#[test]
fn what_an_authors_test_wants_wrongly_it_is_told_as_a_person_would_be() {
    for (wanted, told) in [
        (r#"{"settings": {"half": -1.0}}"#, "at least 0"),
        (r#"{"settings": {"hafl": 0.5}}"#, "did you mean `half`"),
        (r#"{"sizes": 3}"#, "`sizes`"),
        (r#"{"set": {"train.bacth": 3}}"#, "unknown key `bacth`"),
        (r#"{"records": [{"prompt": "A"}]}"#, "completion"),
    ] {
        let mut author = Author::wants(wanted);
        let frame = author.hear();
        let words = text(&frame);
        assert!(frame[0] == 2 && words.contains("error[") && words.contains(told), "{wanted}: {words}");
        assert!(!words.contains('\u{1b}'), "{words}");
        assert_ne!(author.leave().status.code(), Some(0));
    }
}

#[test]
fn a_host_without_a_test_says_what_it_is_for() {
    let output = tunebox(&["host"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("this command is internal to tunebox"));
}
