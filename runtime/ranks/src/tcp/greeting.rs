//! Connecting ranks by TCP: rank 0 listens, the other ranks greet it with their number and the count of ranks.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::thread::sleep;
use std::time::Duration;

use super::frame::{Failure, Kind, read_bytes, read_frame, write_frame};
use super::report::{read_report, send_report};
use crate::{Deadline, RankError};

/// The beginning of a greeting: eight letters and the version of the protocol.
pub(super) const MAGIC: &[u8; 12] = b"TBXRANKS\x01\0\0\0";
/// The length of a greeting: [`MAGIC`], the number of the rank and the count of ranks, 4 bytes each, low byte first.
const GREETING: usize = MAGIC.len() + 8;
/// How long rank 0 waits for the greeting of a connection before it turns to the next one.
const GREETING_TIME: Duration = Duration::from_secs(2);
/// How long an attempt to connect takes at most.
const ATTEMPT_TIME: Duration = Duration::from_secs(5);
/// The time between attempts to connect.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(100);
/// The time between attempts to accept a connection.
const PAUSE: Duration = Duration::from_millis(10);

/// Returns the bytes that rank `rank` sends first: [`MAGIC`], its number and the `count` of ranks that it expects.
pub(super) fn greeting(rank: usize, count: usize) -> Vec<u8> {
    let numbers = [rank, count].map(|number| u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
    [&MAGIC[..], numbers.as_flattened()].concat()
}

/// Listens at the address and accepts the connections of ranks 1 to `count - 1`, which are returned in this order.
/// Refuses connections with a wrong greeting, and a second one of the same rank. Welcomes all ranks once they are
/// connected.
///
/// # Errors
/// - [`RankError::Address`] if the address cannot be listened at.
/// - [`RankError::Missing`] if ranks did not connect in time; this is also reported to the connected ranks.
/// - [`RankError::Lost`] if a rank closed its connection before all were connected.
pub(super) fn accept_ranks(
    host: &str,
    port: u16,
    count: usize,
    deadline: Deadline,
) -> Result<Vec<TcpStream>, RankError> {
    let unusable =
        |error: std::io::Error| RankError::Address { address: format!("{host}:{port}"), why: error.to_string() };
    let listener = listen(host, port).map_err(unusable)?;
    listener.set_nonblocking(true).map_err(unusable)?;
    let mut peers: Vec<Option<TcpStream>> = (1..count).map(|_| None).collect();
    while peers.iter().any(Option::is_none) {
        match listener.accept() {
            Ok((stream, _)) => accept_connection(stream, count, &mut peers, deadline),
            // No connection is waiting, or one ended before it was accepted, which is ignored.
            Err(_) => sleep(PAUSE.min(deadline.remaining())),
        }
        if deadline.remaining().is_zero() {
            let missing: Vec<usize> = (1..count).filter(|rank| peers[rank - 1].is_none()).collect();
            if !missing.is_empty() {
                let error = deadline.missing(missing);
                send_report(&error, peers.iter().flatten());
                return Err(error);
            }
        }
    }
    let peers: Vec<TcpStream> = peers.into_iter().flatten().collect();
    for (peer, rank) in peers.iter().zip(1..) {
        write_frame(peer, Kind::Welcome, &[], Deadline::after(GREETING_TIME))
            .map_err(|failure| failure.error(rank, deadline))
            .inspect_err(|error| send_report(error, peers.iter()))?;
    }
    Ok(peers)
}

/// Opens the port at the addresses of `host`. A host name that means only this machine itself, as Debian writes it to
/// `/etc/hosts`, would be out of reach for other machines: then opens the port at all addresses, except for
/// `localhost`.
fn listen(host: &str, port: u16) -> std::io::Result<TcpListener> {
    let addresses: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    let is_name = host.parse::<IpAddr>().is_err() && host != "localhost";
    if is_name && addresses.iter().all(|address| address.ip().is_loopback()) {
        return TcpListener::bind((Ipv4Addr::UNSPECIFIED, port));
    }
    TcpListener::bind(&addresses[..])
}

/// Reads the greeting of a connection and, if it is that of a rank that is missing, adds the connection to `peers`,
/// where index 0 is rank 1. Waits for the greeting at most [`GREETING_TIME`], then closes the connection without an
/// answer. If the greeting is wrong or the rank is connected already, sends the reason and closes the connection.
fn accept_connection(stream: TcpStream, count: usize, peers: &mut [Option<TcpStream>], deadline: Deadline) {
    let time = Deadline::after(GREETING_TIME.min(deadline.remaining()));
    let mut bytes = [0; GREETING];
    // On some systems an accepted connection inherits the non-blocking mode of its listener.
    let ready = stream.set_nonblocking(false).and_then(|()| stream.set_nodelay(true));
    if ready.is_err() || read_bytes(&stream, &mut bytes, time).is_err() {
        return;
    }
    let refusal = match check_greeting(&bytes, count) {
        Err(why) => why,
        Ok(rank) if peers[rank - 1].is_some() => format!("rank {rank} is connected already"),
        Ok(rank) => {
            peers[rank - 1] = Some(stream);
            return;
        }
    };
    // The other side may be gone.
    let _ = write_frame(&stream, Kind::Refused, refusal.as_bytes(), time);
}

/// Checks a greeting and returns the number of its rank, from 1 to `count - 1`.
///
/// # Errors
/// What is wrong with the greeting.
fn check_greeting(bytes: &[u8; GREETING], count: usize) -> Result<usize, String> {
    let Some((rank, theirs)) = bytes.strip_prefix(MAGIC).and_then(|rest| rest.split_first_chunk::<4>()) else {
        return Err("it runs another program, or another version of this one".to_owned());
    };
    let rank = u32::from_le_bytes(*rank) as usize;
    if *theirs != u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes() {
        return Err(format!("rank 0 expects {count} ranks, this rank another number"));
    }
    if rank == 0 || rank >= count { Err(format!("there is no other rank {rank}")) } else { Ok(rank) }
}

/// Connects to rank 0, which may begin to listen later, greets it, and waits for its welcome.
///
/// # Errors
/// - [`RankError::Address`] if no connection was possible in time.
/// - [`RankError::Refused`] if rank 0 does not accept this rank.
/// - [`RankError::Missing`] if other ranks did not connect in time.
/// - [`RankError::Lost`] if the connection ended.
pub(super) fn join_ranks(
    host: &str,
    port: u16,
    (rank, count): (usize, usize),
    deadline: Deadline,
) -> Result<TcpStream, RankError> {
    let stream = loop {
        match try_addresses(host, port, deadline) {
            Ok(stream) => break stream,
            Err(error) if deadline.remaining().is_zero() => {
                return Err(RankError::Address { address: format!("{host}:{port}"), why: error.to_string() });
            }
            Err(_) => sleep(ATTEMPT_PAUSE.min(deadline.remaining())),
        }
    };
    let lost = |failure: Failure| failure.error(0, deadline);
    std::io::Write::write_all(&mut &stream, &greeting(rank, count))
        .map_err(|error| lost(Failure::Closed(error.to_string())))?;
    match read_frame(&stream, deadline.extended(super::REPORT_DELAY)).map_err(lost)? {
        (Kind::Welcome, _) => Ok(stream),
        (kind, content) => Err(read_report(kind, &content)),
    }
}

/// Tries the addresses of `host` once each, in order, and returns the first connection. A connection of this process to
/// itself does not count: the system makes one if nothing listens at the port and it chose that port for this side.
/// Fails with the error of the last address.
fn try_addresses(host: &str, port: u16, deadline: Deadline) -> std::io::Result<TcpStream> {
    let mut last = ErrorKind::NotFound.into();
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, ATTEMPT_TIME.min(deadline.remaining()).max(PAUSE)) {
            Ok(stream) if stream.local_addr()? == stream.peer_addr()? => last = ErrorKind::ConnectionRefused.into(),
            Ok(stream) => return stream.set_nodelay(true).map(|()| stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
