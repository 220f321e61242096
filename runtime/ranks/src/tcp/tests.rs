use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::{JoinHandle, sleep, spawn};

use super::greeting::{MAGIC, greeting};
use super::*;
use crate::{Launcher, MAX_MESSAGE};

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(300);

/// A port of this machine that nothing listens at.
fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// Connects a rank.
fn join(port: u16, rank: usize, count: usize, timeout: Duration) -> Result<TcpTransport, RankError> {
    let address = Some(("127.0.0.1".to_owned(), port));
    connect(&Launch { launcher: Launcher::Torchrun, rank, count, address, library: None }, timeout)
}

/// Connects a rank on a thread, and runs `work` there.
fn start<T: Send + 'static>(
    port: u16,
    rank: usize,
    count: usize,
    work: impl FnOnce(TcpTransport) -> T + Send + 'static,
) -> JoinHandle<T> {
    spawn(move || work(join(port, rank, count, LONG).unwrap()))
}

/// Connects to rank 0 as a program would that does not wait for it to answer.
fn stranger(port: u16, bytes: &[u8]) -> TcpStream {
    let mut stream = loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => break stream,
            Err(_) => sleep(Duration::from_millis(5)),
        }
    };
    stream.write_all(bytes).unwrap();
    stream
}

#[test]
fn messages_of_all_lengths_reach_all_ranks() {
    for count in [2, 4] {
        let port = free_port();
        let message = |turn: usize, rank: usize| vec![rank as u8; [rank, 0, 10, (8 << 20) + rank][turn]];
        let ranks: Vec<_> = (0..count)
            .map(|rank| {
                start(port, rank, count, move |mut transport| {
                    for turn in 0..4 {
                        let found = transport.gather(&message(turn, rank), LONG).unwrap();
                        assert!(found == (0..count).map(|rank| message(turn, rank)).collect::<Vec<_>>());
                    }
                    Box::new(transport).close().unwrap();
                })
            })
            .collect();
        ranks.into_iter().for_each(|rank| rank.join().unwrap());
    }
}

#[test]
fn strangers_and_wrong_ranks_are_refused_and_the_run_goes_on() {
    let port = free_port();
    let zero = start(port, 0, 3, |mut transport| transport.gather(b"a", LONG));
    let _other = stranger(port, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    drop(stranger(port, b"TBX"));
    let one = start(port, 1, 3, |mut transport| transport.gather(b"b", LONG));
    sleep(SHORT);
    let refused = |rank, count| match join(port, rank, count, LONG) {
        Err(RankError::Refused { why }) => why,
        other => panic!("{:?}", other.err()),
    };
    assert_eq!(refused(1, 3), "rank 1 is connected already");
    assert_eq!(refused(2, 4), "rank 0 expects 3 ranks, this rank another number");
    assert_eq!(refused(3, 3), "there is no other rank 3");
    let mut old = stranger(port, &[&MAGIC[..8], &[9; 12]].concat());
    let mut answer = String::new();
    old.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("another version of this one"), "{answer}");

    let two = start(port, 2, 3, |mut transport| transport.gather(b"c", LONG));
    for rank in [zero, one, two] {
        assert_eq!(rank.join().unwrap().unwrap(), [b"a", b"b", b"c"]);
    }
}

#[test]
fn ranks_that_do_not_connect_are_named_on_all_ranks() {
    let port = free_port();
    let ranks = [0, 2].map(|rank| spawn(move || join(port, rank, 4, SHORT).err()));
    for rank in ranks {
        assert_eq!(rank.join().unwrap(), Some(RankError::Missing { ranks: vec![1, 3], seconds: 1 }));
    }
    let error = join(free_port(), 1, 2, SHORT).err();
    assert!(matches!(&error, Some(RankError::Address { why, .. }) if why.contains("refused")), "{error:?}");
}

#[test]
fn silent_ranks_are_named_on_all_ranks() {
    let port = free_port();
    let silent = [1, 3].map(|rank| start(port, rank, 5, |transport| (sleep(SHORT * 3), transport).1));
    let ranks = [0, 2, 4].map(|rank| {
        start(port, rank, 5, |mut transport| {
            let error = transport.gather(&vec![0; 1 << 20], SHORT).unwrap_err();
            assert_eq!(transport.gather(b"a", SHORT), Err(RankError::Broken));
            (error, transport)
        })
    });
    let ranks = ranks.map(|rank| rank.join().unwrap());
    for (error, _) in &ranks {
        assert_eq!(*error, RankError::Missing { ranks: vec![1, 3], seconds: 1 });
    }
    // A rank that comes late learns that the others went on without it.
    let [late, _] = silent.map(|rank| rank.join().unwrap());
    let error = { late }.gather(b"late", SHORT).unwrap_err();
    assert_eq!(error, RankError::Missing { ranks: vec![1, 3], seconds: 1 });
}

#[test]
fn a_silent_rank_zero_is_named() {
    let port = free_port();
    let zero = start(port, 0, 2, |transport| (sleep(SHORT * 8), transport).1);
    let one = start(port, 1, 2, |mut transport| transport.gather(b"a", SHORT).unwrap_err());
    assert_eq!(one.join().unwrap(), RankError::Missing { ranks: vec![0], seconds: 1 });
    zero.join().unwrap();
}

#[test]
fn a_rank_that_closes_is_named_on_all_ranks() {
    let port = free_port();
    let one = start(port, 1, 3, |mut transport| transport.abort(1));
    let ranks = [0, 2].map(|rank| {
        start(port, rank, 3, |mut transport| {
            let error = transport.gather(b"a", LONG).unwrap_err();
            // Stays connected until the other one has read the report.
            sleep(SHORT);
            error
        })
    });
    one.join().unwrap();
    for rank in ranks {
        let error = rank.join().unwrap();
        assert_eq!(error, RankError::Lost { rank: 1, why: "the rank closed its connection".to_owned() });
    }
}

#[test]
fn a_length_over_the_limit_is_refused_before_memory_is_allocated() {
    let port = free_port();
    let zero = start(port, 0, 2, |mut transport| {
        assert_eq!(
            transport.gather(&vec![0; MAX_MESSAGE + 1], LONG),
            Err(RankError::TooLong { length: MAX_MESSAGE as u64 + 1 })
        );
        transport.gather(b"a", LONG).unwrap_err()
    });
    let mut one = stranger(port, &greeting(1, 2));
    one.read_exact(&mut [0; frame::HEAD]).unwrap();
    one.write_all(&[1, 0, 0, 0, 1, 0, 0, 4]).unwrap();
    let why = format!("it announced {} bytes, more than {MAX_MESSAGE}", MAX_MESSAGE + 1);
    assert_eq!(zero.join().unwrap(), RankError::Lost { rank: 1, why });
}
