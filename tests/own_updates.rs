//! Methods that update the parameters themselves: their optimizers agree with the host's, their state is saved, and what would
//! be lost is refused. The method is in `own_updates/method`; the examples Muon and MeZO train too.

use safetensors::SafeTensors;
use tunebox_foundation::explain::Explain;
use tunebox_sandbox::Compiling;
use tunebox_training::{Event, verify};

use crate::support::built::built;
use crate::support::tiny_run::{TestObserver, Workspace, numbers};

/// The method of this test.
const METHOD: &str = "tests/own_updates/method";

/// Trains six steps of two micro-batches; returns the adapter's numbers.
fn adapter(place: &Workspace, name: &str, more: &[&str]) -> Vec<f32> {
    let steps = ["train.steps=6", "train.batch=2", "train.accumulation=2", "train.warmup=2"];
    place.train(name, &[&steps, more].concat()).unwrap();
    numbers(&place.bytes(name, "adapter_model.safetensors"), "")
}

/// The largest distance between numbers, as a share of the largest number.
fn distance(one: &[f32], other: &[f32]) -> f32 {
    assert_eq!(one.len(), other.len());
    let largest = one.iter().fold(0_f32, |most, value| most.max(value.abs()));
    one.iter().zip(other).fold(0_f32, |most, (a, b)| most.max((a - b).abs())) / largest
}

#[test]
fn adamw_in_the_method_agrees_with_the_hosts() {
    let (place, own) = (Workspace::new(), built(METHOD));
    let host = adapter(&place, "host", &["train.clip=0"]);
    // The SDK computes in another order; six steps apart, that is a few units of the last place.
    for (name, at_once) in [("flat", "true"), ("each", "false")] {
        let method = adapter(&place, name, &[&own, &format!("method.at-once={at_once}")]);
        assert!(distance(&host, &method) < 2e-6, "{name}: {}", distance(&host, &method));
    }
    let clipped = adapter(&place, "clipped", &["train.clip=0.05"]);
    let method = adapter(&place, "clipped-too", &[&own, "method.clip=0.05"]);
    assert!(distance(&clipped, &method) < 2e-6, "{}", distance(&clipped, &method));
    assert!(distance(&clipped, &host) > 1e-3, "the limit of the norm changes the run");
}

#[test]
fn the_hosts_other_optimizers_agree_with_those_of_the_sdk() {
    let (place, own) = (Workspace::new(), built(METHOD));
    for (name, more, tolerance) in
        [("lion", &[][..], 2e-6), ("muon", &[], 1e-4), ("sgd", &["train.momentum=0.9"], 2e-6)]
    {
        let optimizer = format!("train.optimizer={name}");
        let host = adapter(&place, name, &[&["train.clip=0", &optimizer], more].concat());
        let by = format!("method.by={name}");
        let method = adapter(&place, &format!("{name}-too"), &[&own, &by, "method.at-once=false"]);
        assert!(distance(&host, &method) < tolerance, "{name}: {}", distance(&host, &method));
    }
}

#[test]
fn every_optimizer_of_the_sdk_resumes_to_the_same_bits() {
    let (place, own) = (Workspace::new(), built(METHOD));
    let mut trained = Vec::new();
    for by in ["adamw", "lion", "muon", "sgd", "sam"] {
        let by_setting = format!("method.by={by}");
        let settings = [own.as_str(), &by_setting, "method.at-once=false"];
        let whole = adapter(&place, by, &settings);
        let halved = format!("{by}-halved");
        let steps = ["train.steps=6", "train.batch=2", "train.accumulation=2", "train.warmup=2"];
        let all = [&steps, &settings[..]].concat();
        place.stop(&halved, &all, 3);
        place.resume(&halved, &all).unwrap();
        assert_eq!(numbers(&place.bytes(&halved, "adapter_model.safetensors"), ""), whole, "{by}");
        let extra = |run: &str| place.bytes(run, "extra_parameters.safetensors");
        assert_eq!(extra(&halved), extra(by), "{by}");
        trained.push(whole);
    }
    for (index, one) in trained.iter().enumerate() {
        assert!(trained[..index].iter().all(|other| distance(one, other) > 1e-3), "two optimizers are one");
    }
}

#[test]
fn an_extra_parameter_is_trained_and_saved() {
    let (place, own) = (Workspace::new(), built(METHOD));
    adapter(&place, "extra", &[&own]);
    let offsets = offsets(&place, "extra");
    // w ← w − 0.1 · 2(w − 1), from 0.5.
    let wanted = (1..=6).map(|step| 1.0 - 0.5 * 0.8_f64.powi(step));
    assert!(offsets.iter().zip(wanted).all(|(one, two)| (one - two).abs() < 1e-6), "{offsets:?}");
    let bytes = place.bytes("extra", "extra_parameters.safetensors");
    assert_eq!(SafeTensors::deserialize(&bytes).unwrap().tensor("offset").unwrap().shape(), [2]);
    let lock = place.text("extra", "run.lock");
    assert!(lock.contains("extra_parameters.safetensors"), "{lock}");
    let norms = place.metrics("extra").iter().map(|row| row["norm"] == row["gradient-norm"]).collect::<Vec<_>>();
    assert_eq!(norms, [true; 6], "the run reports the norm that `done` returned");
}

/// The offsets that a run reported.
fn offsets(place: &Workspace, run: &str) -> Vec<f64> {
    place.metrics(run).iter().map(|row| row["offset"].as_f64().unwrap()).collect()
}

#[test]
fn a_run_that_continues_an_adapter_begins_with_its_extra_parameters() {
    let (place, own) = (Workspace::new(), built(METHOD));
    place.train("first", &[&own, "train.steps=6", "train.keep=9", "train.save-every=2"]).unwrap();
    for (from, steps) in [("runs/first", 6), ("runs/first/steps/000002", 2)] {
        let (name, adapter) = (format!("after-{steps}"), place.set("model.adapter", from));
        let settings = [own.as_str(), &adapter, "train.steps=4"];
        let mut observer = TestObserver::new();
        place.train_with(&name, &settings, &mut observer).unwrap();
        let wanted = (1..=4).map(|step| 1.0 - 0.5 * 0.8_f64.powi(steps + step));
        let found = offsets(&place, &name);
        assert!(found.iter().zip(wanted).all(|(one, two)| (one - two).abs() < 1e-6), "{from} {found:?}");
        let line = format!("extra parameters that began with their values in {}: `offset`", place.path(from).display());
        assert!(observer.events.contains(&Event::Log { step: 1, line }), "{:?}", observer.events);

        place.stop("halved", &settings, 2);
        place.resume("halved", &settings).unwrap();
        for file in ["adapter_model.safetensors", "extra_parameters.safetensors"] {
            assert!(place.bytes("halved", file) == place.bytes(&name, file), "{from}: {file}");
        }
        std::fs::remove_dir_all(place.path("runs/halved")).unwrap();
        place.replay(&name, std::slice::from_ref(&own));
    }
    // Without its extra parameters, it is another start.
    let parameters = place.path("runs/first/extra_parameters.safetensors");
    std::fs::rename(&parameters, place.path("aside")).unwrap();
    let verification = verify(&place.path("runs/after-6"), &[own], true, Compiling::default()).unwrap();
    let differing = verification.inputs.iter().filter(|input| !input.is_same()).map(|input| &input.what);
    assert_eq!(differing.collect::<Vec<_>>(), ["model.adapter"]);
}

#[test]
fn a_run_that_continues_a_trained_model_begins_with_its_extra_parameters() {
    let (place, own) = (Workspace::new(), built(METHOD));
    let full = [own.as_str(), "train.adapter.kind=full", "train.rate=0.001"];
    place.train("first", &[&full[..], &["train.steps=6"]].concat()).unwrap();
    let model = place.set("model.path", "runs/first");
    let settings = [&full[..], &[&model, "train.steps=4"]].concat();
    place.train("second", &settings).unwrap();
    let wanted = (1..=4).map(|step| 1.0 - 0.5 * 0.8_f64.powi(6 + step));
    let found = offsets(&place, "second");
    assert!(found.iter().zip(wanted).all(|(one, two)| (one - two).abs() < 1e-6), "{found:?}");
    place.replay("second", std::slice::from_ref(&own));
    // Without its extra parameters, it is another start.
    std::fs::remove_file(place.path("runs/first/extra_parameters.safetensors")).unwrap();
    let verification = verify(&place.path("runs/second"), &[own], true, Compiling::default()).unwrap();
    let differing = verification.inputs.iter().filter(|input| !input.is_same()).map(|input| &input.what);
    assert_eq!(differing.collect::<Vec<_>>(), ["model.sha256"]);
}

#[test]
fn extra_parameters_of_another_shape_or_that_nothing_asks_for_are_told() {
    let (place, own) = (Workspace::new(), built(METHOD));
    place.train("first", &[&own, "train.steps=1"]).unwrap();
    let adapter = place.set("model.adapter", "runs/first");
    let error = place.train("longer", &[&own, &adapter, "method.length=3"]).unwrap_err();
    assert!(error.to_string().contains("`offset` has the shape [3], and [2] beside what the run continues"), "{error}");
    assert!(error.hint().unwrap().contains("set the method as in that run"));
    assert!(!place.path("runs/longer").exists());
    let mut observer = TestObserver::new();
    place.train_with("other", &[&adapter, "train.steps=2"], &mut observer).unwrap();
    let text = format!(
        "{} has extra parameters that `lora` has not asked for, and that this run does not use: `offset`",
        place.path("runs/first").display()
    );
    let warned = observer.events.iter().filter(|event| **event == Event::Warning { text: text.clone() });
    assert_eq!(warned.count(), 1, "{:?}", observer.events);
}

#[test]
fn a_metric_that_is_not_a_number_is_told_once() {
    let (place, own) = (Workspace::new(), built(METHOD));
    let mut observer = TestObserver::new();
    place.train_with("nan", &[&own, "train.steps=3", "method.hides-norm=true"], &mut observer).unwrap();
    let warnings = observer.events.iter().filter_map(|event| match event {
        Event::Warning { text } => text.split_once("not a finite number: "),
        _ => None,
    });
    let wanted =
        ("at step 1 the method reported a metric that is ", "`norm` is NaN; `metrics.jsonl` has `null` for it");
    assert_eq!(warnings.collect::<Vec<_>>(), [wanted]);
}

#[test]
fn the_extra_parameter_of_the_best_validation_ships_with_its_adapter() {
    let (place, own) = (Workspace::new(), built(METHOD));
    let held_out = place.write_unlike();
    let settings = [own.as_str(), &held_out, "method.clip=1", "train.steps=40", "train.validate-every=5"];
    let settings = [&settings[..], &["train.batch=2", "train.rate=0.02", "train.schedule=constant"]].concat();
    let summary = place.train("best", &settings).unwrap();
    let shipped = summary.outcome.unwrap().shipped;
    assert!(shipped < 40, "{shipped}");
    let rows = place.metrics("best");
    let offset = |step: u64| {
        rows.iter().find(|row| row["step"] == step && row.contains_key("offset")).unwrap()["offset"].as_f64().unwrap()
    };
    let found = numbers(&place.bytes("best", "extra_parameters.safetensors"), "offset")[0];
    assert!((f64::from(found) - offset(shipped)).abs() < 1e-6, "{found} {}", offset(shipped));
    assert!((f64::from(found) - offset(40)).abs() > 1e-6, "{found} {}", offset(40));
    place.replay("best", &[own]);
}

#[test]
fn a_gradient_that_no_update_used_ends_the_run() {
    let place = Workspace::new();
    let own = built(METHOD);
    for (run, forgets) in [("all", "method.forgets=true"), ("extra", "method.forgets-extra=true")] {
        let error = place.train(run, &[&own, forgets]).unwrap_err();
        assert_eq!(error.to_string(), "`own-updates` made no update of the gradient that it computed in step 1");
        assert!(error.hint().unwrap().contains("`optimizer.done`"));
    }
}

#[test]
fn settings_of_the_hosts_optimizer_are_refused_where_it_has_none() {
    let place = Workspace::new();
    let own = built(METHOD);
    for key in ["train.clip=1", "train.weight-decay=0.1", "train.optimizer=lion", "train.momentum=0.9"] {
        let error = place.plan("unused", &[&own, key]).err().unwrap();
        let name = key.split('=').next().unwrap();
        let wanted = format!("`own-updates` updates the parameters itself, so `{name}` has no effect");
        assert_eq!(error.to_string(), wanted);
    }
}

#[test]
fn the_example_muon_learns() {
    let place = Workspace::new();
    let own = built("examples/13-muon");
    place.train("muon", &[&own, "train.steps=8", "train.rate=0.02"]).unwrap();
    let losses: Vec<f64> = place.metrics("muon").iter().map(|row| row["loss"].as_f64().unwrap()).collect();
    assert!(losses[7] < losses[0] - 0.05, "{losses:?}");
}

#[test]
fn the_example_mezo_learns_without_a_gradient_and_replays() {
    let place = Workspace::new();
    let own = built("examples/14-mezo");
    let settings = [own.as_str(), "train.steps=60", "train.batch=16", "train.rate=0.002", "train.schedule=constant"];
    place.train("mezo", &settings).unwrap();
    let losses: Vec<f64> = place.metrics("mezo").iter().map(|row| row["loss"].as_f64().unwrap()).collect();
    assert!(losses[59] < losses[0], "{losses:?}");
    place.replay("mezo", &[own]);
}
