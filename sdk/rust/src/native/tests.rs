//! A host that speaks the connection by a script: what a method asks of it, in order, byte for byte.

mod values;

use std::os::unix::net::UnixStream;
use std::thread;

use super::codec::{Decode, Encode, Reader};
use super::connection::{self, Connected, Ended, Role};
use super::{Declared, Dispatch, Outcome, dispatch_of, frame, serve, serve_calls};
use crate::prelude::*;
use crate::settings::Value;

/// What people may set.
#[derive(Settings)]
pub(crate) struct Options {
    /// How strongly.
    #[setting(default = 0.5)]
    strength: f32,
}

/// A method that uses every kind of value that crosses.
pub(crate) struct Small {
    strength: f32,
    kept: Vec<u8>,
}

impl Method for Small {
    type Settings = Options;

    fn init(options: Options) -> Result<Self> {
        Ok(Self { strength: options.strength, kept: vec![7] })
    }

    fn step(&mut self, batch: &Batch) -> Result<()> {
        let rows = batch.rows("example")?;
        let scores = score_for_learning(&rows, Taps::ENTROPY | Taps::TOP_ONE, 1.0)?;
        let taps = scores.logprob();
        let loss = taps.sum(All);
        backward(&loss)?;
        metric("loss", &loss);
        log("stepped");
        assert!(self.strength < 1.0, "far too strong");
        self.kept.push(8);
        Ok(())
    }

    fn save_state(&self) -> Vec<u8> {
        self.kept.clone()
    }
}

method! { Small, shape: "supervised", metrics: ["loss"] }

/// The other end of a method's connection.
pub(crate) struct Script {
    stream: UnixStream,
}

impl Script {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self { stream }
    }

    /// The next message, whatever it is.
    pub(crate) fn hear(&mut self) -> Vec<u8> {
        connection::receive_from(&mut self.stream).unwrap()
    }

    pub(crate) fn say(&mut self, kind: u8, content: &impl Encode) {
        frame::send(&mut self.stream, &message(&[kind], content), None).unwrap();
    }

    pub(crate) fn call(&mut self, function: u8, arguments: &impl Encode) {
        frame::send(&mut self.stream, &message(&[frame::CALL, function], arguments), None).unwrap();
    }

    /// Expects a request and answers it.
    pub(crate) fn asked(&mut self, function: &str, arguments: &impl Encode, answer: &impl Encode) {
        let heard = self.hear();
        let name = String::decode(&mut Reader::new(heard.get(1..).unwrap()));
        assert_eq!(heard, message(&[frame::REQUEST], &(function, arguments)), "{name:?}");
        self.say(frame::ANSWER, answer);
    }

    /// Expects the end of a call.
    pub(crate) fn returned(&mut self, result: &impl Encode) {
        assert_eq!(self.hear(), message(&[frame::RETURN], result));
    }

    /// What the host does in a step of [`Small`], up to its log line.
    pub(crate) fn step(&mut self) {
        self.call(1, &9_u32);
        self.asked("data/[method]batch.rows", &(9_u32, "example"), &made(1));
        self.asked("model/[constructor]taps", &(), &5_u32);
        self.asked("model/[method]taps.entropy", &5_u32, &());
        self.asked("model/[method]taps.top-one", &5_u32, &());
        self.asked("model/score-for-learning", &(1_u32, Some(5_u32), 1.0_f32), &made(2));
        self.asked("model/[resource-drop]taps", &5_u32, &());
        self.asked("model/[method]scores.logprob", &2_u32, &3_u32);
        self.asked("tensor/[method]tensor.sum", &(3_u32, None::<i32>, false), &made(4));
        self.asked("learn/backward", &4_u32, &Ok::<(), ()>(()));
        self.asked("run/metric-of", &("loss", 4_u32), &Ok::<(), ()>(()));
        self.asked("run/log", &"stepped", &());
    }

    /// What the method gives back when a step ends, in the reverse order of its making.
    pub(crate) fn dropped(&mut self) {
        self.asked("tensor/[resource-drop]tensor", &4_u32, &());
        self.asked("tensor/[resource-drop]tensor", &3_u32, &());
        self.asked("model/[resource-drop]scores", &2_u32, &());
        self.asked("data/[resource-drop]rows", &1_u32, &());
    }
}

/// A handle, given as a call that may be refused gives it.
fn made(handle: u32) -> std::result::Result<u32, ()> {
    Ok(handle)
}

fn message(start: &[u8], content: &impl Encode) -> Vec<u8> {
    let mut bytes = start.to_vec();
    content.encode(&mut bytes);
    bytes
}

/// Runs a script beside something that is connected to it, and gives what that came to.
pub(crate) fn beside<T: Send + 'static>(
    script: impl FnOnce(&mut Script),
    served: impl FnOnce(UnixStream) -> T + Send + 'static,
) -> T {
    let (mine, theirs) = UnixStream::pair().unwrap();
    let other = thread::spawn(move || served(theirs));
    script(&mut Script::new(mine));
    other.join().unwrap()
}

/// The settings of [`Small`] as the host gives them.
pub(crate) fn settings(strength: f64) -> Vec<(String, Value)> {
    vec![("strength".to_owned(), Value::Number(strength))]
}

#[test]
fn a_method_asks_in_order_by_the_names_and_values_of_the_contract() {
    let script = |host: &mut Script| {
        let hello = host.hear();
        assert_eq!(hello, message(&[], &Small::MANIFEST));
        host.call(0, &settings(0.25));
        host.returned(&Ok::<(), String>(()));
        host.step();
        host.dropped();
        host.returned(&Ok::<(), String>(()));
        host.call(3, &());
        host.returned(&vec![7_u8, 8]);
        host.call(4, &vec![1_u8]);
        let refused = "this method keeps no state, but the checkpoint has some";
        host.returned(&Err::<(), String>(refused.to_owned()));
        host.call(2, &());
        host.returned(&Ok::<(), String>(()));
        host.say(frame::END, &());
    };
    let dispatch = dispatch_of::<Small>();
    let served = beside(script, move |stream| serve::greet_and_serve(stream, Small::MANIFEST, dispatch));
    assert_eq!(served, Ok(()));
}

#[test]
fn a_refused_call_is_told_with_its_line() {
    let script = |host: &mut Script| {
        host.call(0, &settings(0.25));
        host.returned(&Ok::<(), String>(()));
        host.call(1, &9_u32);
        // A code and a sentence.
        let refusal = Err::<u32, _>(("invalid-argument", "no such side"));
        host.asked("data/[method]batch.rows", &(9_u32, "example"), &refusal);
        let told = host.hear();
        let told = Result::<(), String>::decode(&mut Reader::new(&told[1..])).unwrap().unwrap_err();
        assert!(told.starts_with("no such side, called at ") && told.contains("tests.rs:"), "{told}");
        host.say(frame::END, &());
    };
    assert!(matches!(beside(script, bench(dispatch_of::<Small>())), Ok(Outcome::End)));
}

#[test]
fn a_panic_is_caught_at_the_call_and_told_with_its_place() {
    let script = |host: &mut Script| {
        host.call(0, &settings(2.0));
        host.returned(&Ok::<(), String>(()));
        host.step();
        host.dropped();
        let told = host.hear();
        let mut told = Reader::new(&told);
        assert_eq!(u8::decode(&mut told), Ok(frame::PANICKED));
        let (message, file, line, column) = <(String, String, u32, u32)>::decode(&mut told).unwrap();
        let line_of =
            |text: &str| include_str!("tests.rs").lines().position(|line| line.contains(text)).unwrap() as u32;
        assert_eq!(message, "far too strong");
        assert!(file.ends_with("native/tests.rs"), "{file}");
        assert_eq!((line, column), (line_of("\"far too strong\"") + 1, 9));
        host.say(frame::STOP, &"stopped after a panic");
    };
    let ended = beside(script, bench(dispatch_of::<Small>())).unwrap_err();
    assert_eq!(ended, Ended::Stopped("stopped after a panic".to_owned()));
}

#[test]
fn a_host_that_stops_or_goes_in_the_middle_of_a_call_ends_it() {
    let begin = |host: &mut Script| {
        host.call(0, &settings(0.25));
        host.returned(&Ok::<(), String>(()));
        host.call(1, &9_u32);
        host.hear();
    };
    let stopping = |host: &mut Script| {
        begin(host);
        host.say(frame::STOP, &"error[sandbox]: too much");
    };
    let ended = beside(stopping, bench(dispatch_of::<Small>())).unwrap_err();
    assert_eq!(ended, Ended::Stopped("error[sandbox]: too much".to_owned()));
    let ended = beside(begin, bench(dispatch_of::<Small>())).unwrap_err();
    assert!(matches!(&ended, Ended::Lost(_)), "{ended}");
    let confusing = |host: &mut Script| {
        begin(host);
        host.say(frame::ANSWER, &Ok::<(u32, u8), ()>((1, 0)));
    };
    let ended = beside(confusing, bench(dispatch_of::<Small>())).unwrap_err();
    assert_eq!(ended, Ended::Unknown("1 bytes follow the last value".into()));
}

#[test]
fn handles_of_a_connection_are_of_no_use_to_the_next() {
    let script = |host: &mut Script| host.asked("tensor/zeros", &(vec![1_u32], 5_u8), &made(6));
    let made = |stream| {
        let _connected = Connected::new(stream, Role::Bench).unwrap();
        crate::tensor::zeros(&[1], crate::tensor::Dtype::F32)
    };
    // Dropped after its connection, and beside another: nothing is sent.
    let (mine, theirs) = UnixStream::pair().unwrap();
    let tensor = {
        let other = thread::spawn(move || script(&mut Script::new(mine)));
        let tensor = made(theirs);
        other.join().unwrap();
        tensor
    };
    let (mut mine, theirs) = UnixStream::pair().unwrap();
    let connected = Connected::new(theirs, Role::Bench).unwrap();
    let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| tensor.shape())).unwrap_err();
    assert!(told.downcast_ref::<&str>().unwrap().contains("of another thread, or to one that has ended"));
    drop(tensor);
    drop(connected);
    assert!(connection::receive_from(&mut mine).is_err());
}

#[test]
fn a_call_without_a_host_says_how_to_get_one() {
    let told = std::panic::catch_unwind(crate::run::position).unwrap_err();
    let told = told.downcast_ref::<String>().unwrap();
    assert!(told.contains("tunebox::bench::Bench"), "{told}");
}

/// Serves calls as a bench does, after its first words.
fn bench(dispatch: Dispatch) -> impl FnOnce(UnixStream) -> std::result::Result<Outcome, Ended> + Send + 'static {
    move |stream| {
        let _connected = Connected::new(stream, Role::Bench)?;
        serve_calls(dispatch)
    }
}
