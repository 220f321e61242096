//! Values as bytes, and bytes that are no value.

use super::super::codec::{Decode, Encode, Malformed, Reader};
use super::super::connection;
use super::{UnixStream, message};

/// Reads one value that takes all of the bytes.
fn read<T: Decode>(bytes: &[u8]) -> Result<T, Malformed> {
    let mut input = Reader::new(bytes);
    let value = input.read()?;
    input.end()?;
    Ok(value)
}

#[test]
fn values_come_back_as_they_were_written() {
    fn both<T: Encode + Decode + PartialEq + std::fmt::Debug>(value: T, bytes: &[u8]) {
        assert_eq!(message(&[], &value), bytes);
        assert_eq!(read(bytes), Ok(value));
    }
    both(-2_i16, &[0xfe, 0xff]);
    both(1.5_f32, &[0, 0, 0xc0, 0x3f]);
    both(0x0102_0304_0506_0708_u64, &[8, 7, 6, 5, 4, 3, 2, 1]);
    both(true, &[1]);
    both('ß', &[0xdf, 0, 0, 0]);
    both("né".to_owned(), &[3, 0, 0, 0, b'n', 0xc3, 0xa9]);
    both("a€".to_owned(), &[4, 0, 0, 0, b'a', 0xe2, 0x82, 0xac]);
    both(vec![1_u16, 2], &[2, 0, 0, 0, 1, 0, 2, 0]);
    both(vec![(1.5_f32, true), (-0.0, false)], &[2, 0, 0, 0, 0, 0, 0xc0, 0x3f, 1, 0, 0, 0, 0x80, 0]);
    both((Some(5_u8), None::<u8>), &[1, 5, 0]);
    both(Some(-2_i32), &[1, 0xfe, 0xff, 0xff, 0xff]);
    both::<Result<u8, String>>(Ok(3), &[0, 3]);
    both::<Result<(), String>>(Err("x".to_owned()), &[1, 1, 0, 0, 0, b'x']);
    let strange = f32::from_bits(0x7fc0_0001);
    assert_eq!(read::<f32>(&message(&[], &strange)).map(f32::to_bits), Ok(strange.to_bits()));
}

#[test]
fn bytes_that_lie_are_refused_and_cost_no_memory() {
    let huge = u32::MAX.to_le_bytes();
    assert!(read::<String>(&huge).is_err() && read::<Vec<f32>>(&huge).is_err());
    assert!(read::<Vec<f64>>(&huge).is_err() && read::<Vec<()>>(&huge).is_err());
    assert!(read::<Vec<u32>>(&[2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0]).is_err());
    let (mut mine, theirs) = UnixStream::pair().unwrap();
    std::io::Write::write_all(&mut &theirs, &[0xff, 0xff, 0xff, 0x7f, 0]).unwrap();
    assert!(connection::receive_from(&mut mine).is_err());
}

#[test]
fn bytes_that_are_no_value_are_refused() {
    assert_eq!(read::<bool>(&[2]), Err(Malformed("a truth value is 0 or 1, this is 2".into())));
    assert!(read::<char>(&0xd800_u32.to_le_bytes()).is_err());
    assert!(read::<String>(&[1, 0, 0, 0, 0xff]).is_err() && read::<u8>(&[1, 2]).is_err());
    assert!(read::<Option<u8>>(&[1]).is_err() && read::<Result<(), u8>>(&[]).is_err());
    assert!(read::<crate::tensor::Dtype>(&[200]).is_err());
}
