//! What a run on a quantized base promises: the same bits after any stop, and a base that is kept so wherever the run is taken up.

use crate::support::tiny_run::Workspace;
use serde_json::Value;
use tunebox_compute::precision::Base;
use tunebox_foundation::explain::Explain;
use tunebox_training::base_precision;

const ADAPTER: &str = "adapter_model.safetensors";
const NF4: [&str; 3] = ["model.precision=nf4", "train.steps=6", "train.save-every=2"];

/// A place whose model has rows of whole blocks.
fn workspace() -> Workspace {
    let place = Workspace::new();
    let file = place.path("model/config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    for (key, value) in [("hidden_size", 64), ("intermediate_size", 128), ("head_dim", 16)] {
        config[key] = value.into();
    }
    place.write("model/config.json", &config.to_string());
    place
}

#[test]
fn a_run_on_a_quantized_base_that_was_stopped_resumes_and_replays_to_the_same_bits() {
    resumes_and_replays(&NF4);
    resumes_and_replays(&["model.precision=q8_0", NF4[1], NF4[2]]);
}

/// Checks a run with these settings, of which the first changes its base.
fn resumes_and_replays(settings: &[&str]) {
    let place = workspace();
    place.train("whole", settings).unwrap();
    place.train("plain", &settings[1..]).unwrap();
    place.stop("stopped", settings, 3);
    place.resume("stopped", settings).unwrap();
    assert!(place.bytes("stopped", ADAPTER) == place.bytes("whole", ADAPTER), "the adapters differ");
    let losses = |run| place.metrics(run).iter().map(|row| row["loss"].as_f64().unwrap()).collect::<Vec<f64>>();
    assert_eq!(losses("stopped"), losses("whole"));
    assert!(place.bytes("plain", ADAPTER) != place.bytes("whole", ADAPTER), "nothing was quantized");

    place.replay("stopped", &[]);
}

#[test]
fn a_run_that_goes_on_with_another_precision_is_refused_with_the_difference() {
    let place = workspace();
    place.stop("changed", &NF4, 2);
    let error = place.resume("changed", &NF4[1..]).unwrap_err();
    assert_eq!(error.to_string(), "the run `changed` cannot go on: `model.precision` was `\"nf4\"`, is not set");
}

#[test]
fn a_base_that_is_trained_is_not_quantized() {
    for base in ["model.precision=nf4", "model.precision=q8_0"] {
        let error = workspace().plan("full", &[base, "train.adapter.kind=full"]).err().unwrap().explanation();
        assert!(error.what.contains("trains all of it"), "{}", error.what);
        assert!(error.hint.unwrap().contains("leave one of them out"));
    }
}

#[test]
fn a_finished_run_and_its_checkpoints_say_what_their_base_was_kept_in() {
    let place = workspace();
    place.train("quantized", &[&NF4[..], &["train.keep=3"]].concat()).unwrap();
    place.train("plain", &NF4[1..]).unwrap();
    let base = |folder: &str| base_precision(&place.path(folder)).unwrap();
    assert_eq!((base("runs/quantized"), base("runs/quantized/steps/000004")), (Some(Base::Nf4), Some(Base::Nf4)));
    assert_eq!((base("runs/plain"), base("model")), (Some(Base::Stored), None));

    let card = |run: &str| place.text(run, "README.md");
    assert!(card("quantized").contains("\n| base | ") && card("quantized").contains("bnb_4bit_use_double_quant=True"));
    assert!(!card("plain").contains("\n| base | ") && !card("plain").contains("bnb"));
}

#[test]
fn who_goes_on_from_an_adapter_of_another_base_is_warned() {
    let place = workspace();
    place.train("quantized", &NF4).unwrap();
    let adapter = place.set("model.adapter", "runs/quantized");
    let warnings = |more: &[&str]| place.plan("next", more).unwrap().run.warnings;
    let said = warnings(&[&adapter]);
    assert!(
        said.iter().any(|text| text.contains("trained on a base in nf4, this run has it as in its files")),
        "{said:?}"
    );
    assert!(warnings(&[&adapter, "model.precision=nf4"]).iter().all(|text| !text.contains("trained on a base")));
}

#[test]
fn matrices_that_stay_as_they_are_stored_are_counted_in_what_is_kept() {
    let kept = |place: &Workspace| place.plan("kept", &NF4).unwrap().run.summary.precision[0].1.clone();
    assert_eq!(kept(&workspace()), "nf4");
    assert_eq!(kept(&Workspace::new()), "nf4 (14 of 14 as stored: rows that are not whole blocks of 64)");
}
