//! TensorBoard event files: the numbers of `metrics.jsonl` again, in the format that TensorBoard reads.
//!
//! A file is a list of records, each with its length and two checksums (the framing of `TFRecord`); a record is an
//! `Event` of `tensorflow/core/util/event.proto` with a `Summary` of simple values. The few fields in use are encoded
//! here.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::{Map, Value};
use tunebox_foundation::files::{self, FileError};

use crate::error::Error;

/// The folder of event files in a run's folder.
pub(super) const FOLDER: &str = "tensorboard";

/// The first event of every file names the version of the format.
const FILE_VERSION: &str = "brain.Event:2";

/// Keys of a row that are no measured numbers: its position.
const NO_METRICS: [&str; 2] = ["step", "epoch"];

/// An event file, open for appending.
#[derive(Debug)]
pub(super) struct EventFile {
    file: File,
    path: PathBuf,
}

impl EventFile {
    /// Creates an event file for the steps after `step` in the run's folder `run`. TensorBoard then leaves out what
    /// older files of the folder hold of these steps, which a resumed run executes again.
    pub(super) fn create(run: &Path, step: u64) -> Result<Self, Error> {
        let folder = run.join(FOLDER);
        files::create_folder(&folder)?;
        // TensorBoard reads the files in the order of their names.
        let path = folder.join(format!("events.out.tfevents.{:.0}.{step:08}", seconds_now() * 1e3));
        let file = File::create_new(&path).map_err(FileError::at("written", &path))?;
        let mut events = Self { file, path };
        events.append(&Event { step: 0, content: Content::Version })?;
        if step > 0 {
            events.append(&Event { step: step + 1, content: Content::Restart })?;
        }
        Ok(events)
    }

    /// Appends the numbers of a row of `metrics.jsonl`, under their names; does nothing if it has none, or no `step`.
    pub(super) fn add_row(&mut self, row: &Map<String, Value>) -> Result<(), Error> {
        let Some(step) = row.get("step").and_then(Value::as_u64) else { return Ok(()) };
        let metrics = row.iter().filter(|(name, _)| !NO_METRICS.contains(&name.as_str()));
        let numbers: Vec<(&str, f32)> =
            metrics.filter_map(|(name, value)| Some((name.as_str(), value.as_f64()? as f32))).collect();
        if numbers.is_empty() { Ok(()) } else { self.append(&Event { step, content: Content::Numbers(numbers) }) }
    }

    /// Appends an event to the file, with the present time.
    fn append(&mut self, event: &Event<'_>) -> Result<(), Error> {
        let written = self.file.write_all(&frame(&event.encode(seconds_now())));
        Ok(written.map_err(FileError::at("written", &self.path))?)
    }
}

/// The seconds since 1970.
fn seconds_now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// What an event of a step says.
enum Content<'a> {
    /// The version of the format.
    Version,
    /// Earlier events of this step and of later ones no longer count.
    Restart,
    /// Numbers by name.
    Numbers(Vec<(&'a str, f32)>),
}

/// An event of the file.
struct Event<'a> {
    step: u64,
    content: Content<'a>,
}

impl Event<'_> {
    /// The event as a protocol buffer; `time` in seconds since 1970. The numbers of the fields are those of
    /// `event.proto` and `summary.proto`.
    fn encode(&self, time: f64) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_key(&mut bytes, 1, Wire::Eight);
        bytes.extend(time.to_le_bytes());
        put_key(&mut bytes, 2, Wire::Integer);
        put_integer(&mut bytes, self.step);
        match &self.content {
            Content::Version => put_bytes(&mut bytes, 3, FILE_VERSION.as_bytes()),
            // A `SessionLog` with the status START.
            Content::Restart => put_bytes(&mut bytes, 7, &[1 << 3, 1]),
            Content::Numbers(numbers) => {
                let mut summary = Vec::new();
                for (name, number) in numbers {
                    let mut value = Vec::new();
                    put_bytes(&mut value, 1, name.as_bytes());
                    put_key(&mut value, 2, Wire::Four);
                    value.extend(number.to_le_bytes());
                    put_bytes(&mut summary, 1, &value);
                }
                put_bytes(&mut bytes, 5, &summary);
            }
        }
        bytes
    }
}

/// How a field of a protocol buffer is stored, with the number of that wire type.
#[derive(Clone, Copy)]
enum Wire {
    Integer = 0,
    Eight = 1,
    Bytes = 2,
    Four = 5,
}

/// Appends the key of a field: its number and how it is stored.
fn put_key(bytes: &mut Vec<u8>, field: u64, wire: Wire) {
    put_integer(bytes, field << 3 | wire as u64);
}

/// Appends an integer, seven bits a byte, the lowest first.
fn put_integer(bytes: &mut Vec<u8>, mut integer: u64) {
    while integer >= 0x80 {
        bytes.push(integer as u8 | 0x80);
        integer >>= 7;
    }
    bytes.push(integer as u8);
}

/// Appends a field of bytes, such as a text or a nested message: key, length, content.
fn put_bytes(bytes: &mut Vec<u8>, field: u64, content: &[u8]) {
    put_key(bytes, field, Wire::Bytes);
    put_integer(bytes, content.len() as u64);
    bytes.extend(content);
}

/// Frames data as a record of the file: the length of the data, its checksum, the data, their checksum.
fn frame(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    [&length[..], &masked_checksum(&length), data, &masked_checksum(data)].concat()
}

/// The CRC-32C of some bytes, rotated and shifted as `TFRecord` has it.
fn masked_checksum(bytes: &[u8]) -> [u8; 4] {
    checksum(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// CRC-32C (Castagnoli), a bit at a time: a row has a few hundred bytes.
fn checksum(bytes: &[u8]) -> u32 {
    let shift = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| shift(crc)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_standard() {
        // RFC 3720, appendix B.4.
        assert_eq!(checksum(&[0; 32]), 0x8a91_36aa);
        assert_eq!(checksum(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(checksum(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn an_event_has_the_bytes_that_tensorflow_writes() {
        let event = Event { step: 300, content: Content::Numbers(vec![("loss", 0.5)]) };
        let wanted = [
            &[0x09][..],
            &1.5_f64.to_le_bytes(),
            &[0x10, 0xac, 0x02],
            &[0x2a, 13, 0x0a, 11, 0x0a, 4],
            b"loss",
            &[0x15, 0, 0, 0, 0x3f],
        ];
        assert_eq!(event.encode(1.5), wanted.concat());
    }

    /// The data of the records of a file, with all checksums checked.
    fn records(bytes: &[u8]) -> Vec<&[u8]> {
        let mut rest = bytes;
        let mut records = Vec::new();
        while let Some((length, after)) = rest.split_at_checked(8) {
            assert_eq!(after[..4], masked_checksum(length));
            let (data, after) = after[4..].split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
            assert_eq!(after[..4], masked_checksum(data));
            records.push(data);
            rest = &after[4..];
        }
        assert!(rest.is_empty());
        records
    }

    #[test]
    fn rows_become_records_and_a_resumed_run_a_file_that_takes_back_later_steps() {
        let run = tempfile::tempdir().unwrap();
        let rows = |step: u64| {
            let mut file = EventFile::create(run.path(), step).unwrap();
            let row = serde_json::json!({ "step": step + 1, "epoch": 0.5, "loss": 2.0, "method": "a", "used": {} });
            file.add_row(row.as_object().unwrap()).unwrap();
            file.add_row(serde_json::json!({ "step": step + 1 }).as_object().unwrap()).unwrap();
            std::fs::read(&file.path).unwrap()
        };
        let first = rows(0);
        let first = records(&first);
        assert_eq!(first.len(), 2, "the version and one row");
        assert!(first[0].ends_with(FILE_VERSION.as_bytes()));
        assert_eq!(first[1].windows(4).filter(|found| found == b"loss").count(), 1);
        assert!(!first[1].windows(5).any(|found| found == b"epoch"));
        let resumed = rows(7);
        let resumed = records(&resumed);
        assert_eq!(resumed[1][9..], [0x10, 8, 0x3a, 2, 0x08, 1], "from step 8 on, earlier events do not count");
        assert_eq!(resumed.len(), 3);
    }
}
