//! A bench over a host by a script.

use serde_json::Value;

use super::{Bench, Error, json};
use crate::native::tests::{Script, Small, beside, settings};
use crate::native::{Declared, Decode, Reader};

/// What a script host reports.
const REPORT: u8 = 4;
const STOP: u8 = 2;
const END: u8 = 3;

/// The first words of a bench: the manifest, and what it wants.
fn wanted(host: &mut Script) -> Value {
    let heard = host.hear();
    let (manifest, wanted) = <(String, String)>::decode(&mut Reader::new(&heard)).unwrap();
    assert_eq!(manifest, Small::MANIFEST);
    serde_json::from_str(&wanted).unwrap()
}

/// Expects the bench to ask for the next thing.
fn next(host: &mut Script, what: &str) {
    let heard = host.hear();
    assert_eq!(heard[0], 3);
    assert_eq!(String::decode(&mut Reader::new(&heard[1..])), Ok(what.to_owned()));
}

#[test]
fn a_bench_says_what_it_wants_and_shows_what_the_host_reports() {
    let script = |host: &mut Script| {
        let expected = json!({
            "seed": 3, "records": [{ "text": "a" }], "state": "00ff", "settings": { "strength": 0.25 },
            "set": { "train.accumulation": 2 },
        });
        assert_eq!(wanted(host), expected);
        host.call(0, &settings(0.25));
        host.returned(&Ok::<(), String>(()));
        host.say(REPORT, &r#"{"step": 0, "metrics": {}}"#);

        next(host, "step");
        host.step();
        host.dropped();
        host.returned(&Ok::<(), String>(()));
        host.say(
            REPORT,
            &r#"{"step":1,"metrics":{"loss":0.5,"odd":null},"log":["stepped"],"gradient_norm":2,"rate":1}"#,
        );

        // A test may call the host between two steps.
        host.asked("run/position", &(), &1_u32);
        next(host, "save-state");
        host.call(3, &());
        host.returned(&vec![7_u8, 8]);
        host.say(REPORT, &r#"{"step": 1, "metrics": {}}"#);
    };
    let (report, position, state) = beside(script, |stream| {
        let bench = Bench::<Small>::new().seed(3).records([json!({ "text": "a" })]).resume(&[0, 255]);
        let bench = bench.setting("strength", 0.25).set("train.accumulation", 2);
        let mut run = bench.over(stream, None).unwrap();
        let report = run.step().unwrap().clone();
        (report, crate::run::position(), run.state().unwrap())
    });
    assert_eq!((report.step, report.metric("loss"), report.gradient_norm, report.rate), (1, 0.5, Some(2.0), Some(1.0)));
    assert!(report.metric("odd").is_nan());
    assert_eq!((report.log, position, state), (vec!["stepped".to_owned()], 1, vec![7, 8]));
}

#[test]
fn a_host_that_refuses_is_told_in_its_own_words() {
    let script = |host: &mut Script| {
        wanted(host);
        // The method is done, and the test hears why.
        host.say(END, &());
        host.say(STOP, &"error[config]: `strength` is at most 1\n");
    };
    let error = beside(script, |stream| Bench::<Small>::new().over(stream, None).unwrap_err().to_string());
    assert_eq!(error, "error[config]: `strength` is at most 1");
}

#[test]
fn a_metric_that_was_not_reported_is_named_beside_those_that_were() {
    let report = super::Report::read(r#"{"step": 2, "metrics": {"loss": 1, "margin": 2}}"#).unwrap();
    let told = std::panic::catch_unwind(|| report.metric("los")).unwrap_err();
    let told = told.downcast_ref::<String>().unwrap();
    assert_eq!(told, "`los` was not reported at step 2; reported were: loss, margin");
}

#[test]
fn a_missing_program_is_an_error_that_says_how_to_name_it() {
    let missing = Error::not_started("tunebox", &std::io::ErrorKind::NotFound.into());
    assert!(missing.to_string().contains("TUNEBOX=/path/to/tunebox"), "{missing}");
}
