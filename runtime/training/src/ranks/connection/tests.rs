//! Ranks in threads: which failures end a run, and which rank they name.

use std::net::TcpListener;

use tunebox_ranks::{Launch, Launcher, connect};

use super::*;

/// Runs `work` on each rank of a group of threads, and returns the results.
fn on_ranks<T: Send>(count: usize, work: impl Fn(Connection) -> T + Sync) -> Vec<T> {
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let minute = Duration::from_secs(60);
    std::thread::scope(|scope| {
        let start = |rank: usize| {
            let (work, address) = (&work, Some(("127.0.0.1".to_owned(), port)));
            let launch = Launch { launcher: Launcher::Torchrun, rank, count, address, library: None };
            scope.spawn(move || work(Connection::open(connect(&launch, minute).unwrap(), minute).unwrap()))
        };
        let threads: Vec<_> = (0..count).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn ranks_that_fail_alike_go_on_and_others_do_not() {
    let told = on_ranks(3, |mut connection| {
        let rank = connection.rank();
        let alike = connection.gather("score", Err("no token 99".into())).unwrap_err().what;
        assert!(alike.ends_with("failed: no token 99"), "{alike}");
        let all = connection.gather("score", Ok(vec![rank as u8])).unwrap();
        assert_eq!(all, [[0], [1], [2]]);
        let message = if rank == 1 { Err("out of memory".to_owned()) } else { Ok(Vec::new()) };
        let first = connection.gather("score", message).unwrap_err().what;
        assert_eq!(connection.gather("score", Ok(Vec::new())).unwrap_err().what, first, "nothing goes on after that");
        first
    });
    assert!(told.iter().all(|text| text.starts_with("rank 1") && text.ends_with("failed: out of memory")), "{told:?}");
}

#[test]
fn ranks_at_different_exchanges_end_the_run() {
    let told = on_ranks(2, |mut connection| {
        let purpose = if connection.rank() == 0 { "score" } else { "generate" };
        connection.gather(purpose, Ok(Vec::new())).unwrap_err().why.unwrap()
    });
    assert!(told[0].contains("this rank is at `score`, rank 1") && told[0].ends_with("at `generate`"), "{told:?}");
    assert!(told[1].contains("this rank is at `generate`, rank 0"), "{told:?}");
}

#[test]
fn a_rank_that_ended_with_an_error_is_named_wherever_the_others_are() {
    let told = on_ranks(2, |mut connection| match connection.rank() {
        1 => {
            let failure = Error::from(Explanation::new("model", "a weight is missing"));
            connection.finish(Err::<(), _>(failure), |failure| (failure.explanation(), Exit::Usage)).is_err()
        }
        _ => {
            let failure = connection.gather("score", Ok(Vec::new())).unwrap_err().what;
            assert!(failure.ends_with("failed: a weight is missing"), "{failure}");
            assert_eq!(connection.other_exit(), Some(Exit::Usage));
            let ended =
                connection.finish(Ok::<(), Error>(()), |failure| (failure.explanation(), failure.exit())).unwrap_err();
            ended.to_string() == failure
        }
    });
    assert_eq!(told, [true, true]);
}

#[test]
fn a_message_that_is_cut_is_no_message() {
    let header = Header { number: 3, purpose: "score".into(), failed: None };
    let message = encode(&header, b"content").unwrap();
    for length in 0..message.len() - b"content".len() {
        assert!(decode(message[..length].to_vec()).is_none(), "{length}");
    }
    assert_eq!(decode(message).unwrap(), (header, b"content".to_vec()));
}
