//! Sessions whose method is a thread with a socket, which encodes its messages by hand, as another program would.

mod slow;

use std::thread::JoinHandle;
use std::time::Instant;

use tunebox_foundation::explain::Explain as _;

use super::*;
use crate::engine::Method;
use crate::error::Error;
use crate::limits::Limits;
use crate::native::{Arrival, TwinListener, every_interface};
use crate::run_hooks::RunHooks;
use crate::session::{Session, Value};
use crate::settings::SessionSettings;
use crate::train_state::tests::{NoRun, tiny};
use slow::Slow;

/// The method's end of the connection.
struct Peer(UnixStream);

impl Peer {
    /// Receives the next message of the host; `None` when the host is gone.
    fn hear(&mut self) -> Option<Vec<u8>> {
        frame::receive(&mut self.0, LARGEST, after(Some(Duration::from_secs(10)))).unwrap_or(None)
    }

    fn say(&mut self, payload: &[u8]) {
        // A host that has had enough closes the connection.
        let _ = frame::send(&mut self.0, payload, None);
    }

    /// Requests a host function with the arguments that `write` encodes, and returns the bytes of the answer.
    fn ask(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) -> Option<Vec<u8>> {
        let mut payload = vec![REQUEST];
        name.encode(&mut payload);
        write(&mut payload);
        self.say(&payload);
        let answer = self.hear()?;
        assert_eq!(answer[0], ANSWER);
        Some(answer[1..].to_vec())
    }

    /// Returns from a call without an error.
    fn done(&mut self) {
        self.say(&[RETURN, 0]);
    }
}

/// Starts a session whose method is `method`, and returns it with the thread that runs the method.
fn session<T: Send + 'static>(
    imports: &[String],
    patience: Option<Duration>,
    method: impl FnOnce(&mut Peer) -> T + Send + 'static,
) -> (Session<NoRun>, JoinHandle<T>) {
    session_over(NoRun, imports, patience, method)
}

/// Starts a session with these hooks whose method is `method`, and returns it with the thread that runs the method.
fn session_over<H: RunHooks, T: Send + 'static>(
    hooks: H,
    imports: &[String],
    patience: Option<Duration>,
    method: impl FnOnce(&mut Peer) -> T + Send + 'static,
) -> (Session<H>, JoinHandle<T>) {
    let listener = TwinListener::open().unwrap();
    let address = listener.address();
    let thread = std::thread::spawn(move || {
        let mut stream = UnixStream::connect(address).unwrap();
        let mut hello = Vec::new();
        "{}".encode(&mut hello);
        frame::send(&mut stream, &hello, None).unwrap();
        method(&mut Peer(stream))
    });
    let Arrival::Connected(twin) = listener.wait(Some(Duration::from_secs(10)), patience, || false).unwrap() else {
        panic!("the method did not come")
    };
    let limits = Limits { transfer_bytes: 64 << 10, ..Limits::default() };
    let settings = SessionSettings { limits, metric_names: vec!["loss".into()], ..SessionSettings::default() };
    let method = Method::native("calm", imports.to_vec(), twin);
    (Session::start(&method, tiny(hooks), settings).unwrap(), thread)
}

/// Returns the error of `init` with a method that receives the call and then does what `method` does.
fn end_of(method: impl FnOnce(&mut Peer) + Send + 'static) -> Error {
    let (mut session, thread) = session(&every_interface(), None, |peer| {
        peer.hear();
        method(peer);
    });
    let error = session.init(&[]).unwrap_err();
    assert!(!session.is_alive());
    thread.join().unwrap();
    error
}

#[test]
fn a_call_asks_is_answered_and_returns() {
    let (mut session, thread) = session(&every_interface(), None, |peer| {
        let call = peer.hear().unwrap();
        assert_eq!(peer.ask("run/log", |to| "hello".encode(to)), Some(Vec::new()));
        let reported = peer.ask("run/metric", |to| {
            "loss".encode(to);
            0.5_f32.encode(to);
        });
        assert_eq!(reported, Some(vec![0]));
        peer.done();
        let step = peer.hear().unwrap();
        let batch = step[2..].to_vec();
        assert_eq!(peer.ask("data/[method]batch.size", |to| to.extend(batch)), Some(7_u32.to_le_bytes().to_vec()));
        peer.done();
        assert_eq!(peer.hear(), Some(vec![END]));
        (call, step)
    });
    let report = session.init(&[("beta".into(), Value::Number(0.5))]).unwrap();
    assert_eq!((report.log, report.host_calls), (vec!["hello".to_owned()], 2));
    assert_eq!(report.metrics[0].1, 0.5);
    session.step(Batch { size: 7, ..Batch::default() }).unwrap();
    drop(session);

    let (call, step) = thread.join().unwrap();
    let mut wanted = vec![CALL, 0, 1, 0, 0, 0];
    "beta".encode(&mut wanted);
    wanted.push(2);
    0.5_f64.encode(&mut wanted);
    assert_eq!(call, wanted);
    assert_eq!(step[..2], [CALL, 1]);
}

#[test]
fn words_of_refusal_are_no_end() {
    let (mut session, thread) = session(&every_interface(), None, |peer| {
        peer.hear();
        let mut refusal = vec![RETURN, 1];
        "no".encode(&mut refusal);
        peer.say(&refusal);
        peer.hear();
        peer.say(&[RETURN, 2, 0, 0, 0, 8, 9]);
    });
    assert!(matches!(session.init(&[]).unwrap_err(), Error::Refused { message, .. } if message == "no"));
    assert_eq!(session.save_state().unwrap(), [8, 9]);
    drop(session);
    thread.join().unwrap();
}

#[test]
fn an_error_of_the_host_that_a_method_ends_with_is_told_with_its_line_and_who_said_it() {
    let (mut session, thread) = session(&every_interface(), None, |peer| {
        peer.hear();
        let refused = peer.ask("learn/update", |_| {}).unwrap();
        assert_eq!(refused[0], 1, "there is nothing to update");
        let mut refusal = vec![RETURN, 1];
        "no gradient has accumulated since the last update, called at src/lib.rs:38:9".encode(&mut refusal);
        peer.say(&refusal);
        peer.hear();
    });
    let error = session.init(&[]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the host refused `learn.update` to `calm` in `init`: no gradient has accumulated since the last update"
    );
    assert_eq!(error.location().unwrap(), "src/lib.rs:38:9, in `init`");
    drop(session);
    thread.join().unwrap();
}

#[test]
fn a_panic_is_told_with_its_place() {
    let error = end_of(|peer| {
        let mut panicked = vec![PANICKED];
        "index 3 of 2".encode(&mut panicked);
        "src/lib.rs".encode(&mut panicked);
        (38_u32, 9_u32).encode(&mut panicked);
        peer.say(&panicked);
    });
    assert_eq!(error.to_string(), "`calm` panicked in `init`: index 3 of 2");
    assert!(error.location().unwrap().starts_with("src/lib.rs:38:9"), "{:?}", error.location());
}

#[test]
fn what_the_component_does_not_import_is_not_answered() {
    let imports = ["tunebox:method/run@0.2.0".to_owned()];
    let (mut session, thread) = session(&imports, None, |peer| {
        peer.hear();
        peer.ask("text/encode", |to| "a".encode(to))
    });
    let error = session.init(&[]).unwrap_err();
    assert!(error.to_string().contains("`text/encode`, which its component does not import"), "{error}");
    drop(session);
    assert_eq!(thread.join().unwrap(), None);
}

#[test]
fn a_method_that_hangs_or_goes_is_not_waited_for() {
    let begun = Instant::now();
    let (mut session, thread) = session(&every_interface(), Some(Duration::from_millis(50)), |peer| {
        peer.hear();
        peer.hear()
    });
    let error = session.init(&[]).unwrap_err();
    assert!(error.to_string().contains("did not come back"), "{error}");
    drop(session);
    assert_eq!(thread.join().unwrap(), None);
    assert!(begun.elapsed() < Duration::from_secs(5));

    assert!(end_of(|_| {}).to_string().contains("its process ended"));
}

#[test]
fn what_the_host_takes_for_its_answers_is_not_the_methods_time() {
    let patience = Some(Duration::from_secs(1));
    let (mut session, thread) = session_over(Slow, &every_interface(), patience, |peer| {
        peer.hear();
        for _ in 0..2 {
            assert_eq!(peer.ask("learn/rate", |_| {}), Some(0.25_f64.to_le_bytes().to_vec()));
        }
        peer.done();
    });
    session.init(&[]).unwrap();
    drop(session);
    thread.join().unwrap();
}

#[test]
fn bytes_that_mean_nothing_end_the_method_and_not_the_host() {
    let mut request = vec![REQUEST];
    "tensor/from-list".encode(&mut request);
    vec![1.0_f32; 4].encode(&mut request);
    vec![4_u32].encode(&mut request);
    let cut = (0..request.len()).map(|length| request[..length].to_vec());
    let turned = (0..request.len()).map(|place| {
        let mut turned = request.clone();
        turned[place] ^= 0x80;
        turned
    });
    let large = {
        let mut large = vec![REQUEST];
        "run/log".encode(&mut large);
        "a".repeat(128 << 10).encode(&mut large);
        large
    };
    for payload in cut.chain(turned).chain([large, vec![RETURN, 7], vec![9], vec![NEXT, 0, 0, 0, 0]]) {
        let said = payload.clone();
        let (mut session, thread) = session(&every_interface(), None, move |peer| {
            peer.hear();
            peer.say(&said);
            // Bytes that mean something else are answered, and nothing that follows is.
            peer.hear();
        });
        let error = session.init(&[]).unwrap_err();
        drop(session);
        thread.join().unwrap();
        let Error::Stopped(stop) = &error else { panic!("{error} for {payload:?}") };
        assert!(!stop.is_host_fault(), "{error} for {payload:?}");
    }
}

#[test]
fn between_two_calls_a_test_is_answered_until_it_wants_something() {
    let (mut session, thread) = session(&every_interface(), None, |peer| {
        assert_eq!(peer.ask("run/log", |to| "aside".encode(to)), Some(Vec::new()));
        let mut next = vec![NEXT];
        "step".encode(&mut next);
        peer.say(&next);
    });
    let (order, report) = session.wait().unwrap();
    assert_eq!((order.as_deref(), report.log), (Some("step"), vec!["aside".to_owned()]));
    thread.join().unwrap();
    assert_eq!(session.wait().unwrap().0, None);
}
