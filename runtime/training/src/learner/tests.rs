//! Tests of the train state: its updates, its snapshots, and restoring it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use tunebox_compute::DType;
use tunebox_compute::fused::Tap;
use tunebox_compute::optimizer::{AdamWSettings, LionSettings, MuonSettings, SgdSettings, UpdateRule};
use tunebox_compute::{Device, Tensor};
use tunebox_model::adapter::AdapterSettings;
use tunebox_model::decoder;
use tunebox_model::edit::{Form, Role};
use tunebox_model::stream::{Site, Token};
use tunebox_model::{Model, PolicySettings};
use tunebox_sandbox::Direction;

use super::initial_state::{InitialState, reset};
use super::*;
use crate::checkpoint::{self, Identity, State};

fn student(skip_non_finite: bool) -> TrainState {
    with_dropout(skip_non_finite, 0.0)
}

fn with_dropout(skip_non_finite: bool, dropout: f64) -> TrainState {
    with_optimizer(skip_non_finite, dropout, OptimizerSettings::default())
}

fn with_optimizer(skip_non_finite: bool, dropout: f64, settings: OptimizerSettings) -> TrainState {
    let folder = tempfile::tempdir().unwrap();
    let config = serde_json::json!({
        "model_type": "llama", "vocab_size": 32, "hidden_size": 16, "intermediate_size": 24,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 64, "tie_word_embeddings": true,
    });
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let model = Arc::new(Model::random(folder.path(), 1, &Device::Cpu).unwrap());
    let adapter = AdapterSettings { dropout, ..AdapterSettings::default() };
    let policy = Policy::new(model, &adapter, PolicySettings::default()).unwrap();
    let optimizer = Optimizer::new(settings, policy.parameters()).unwrap();
    let schedule = "linear".parse().unwrap();
    let length = Length { steps: 4, ..Length::default() };
    let rate = LearningRate { peak: 0.5, schedule, warmup: 0, length, clip: 1.0, skip_non_finite };
    TrainState::new(policy, Trainer::new(Some(optimizer), rate, RewardState::default()))
}

fn values(student: &TrainState) -> Vec<f32> {
    student.policy.parameters().values().to_vec1().unwrap()
}

fn request(view: View, learning: bool) -> ScoreRequest {
    ScoreRequest { view, taps: TapRequest::default(), temperature: 1.0, learning }
}

/// Adds a gradient of one value everywhere in the first slot.
fn push(student: &TrainState, value: f32) {
    let parameters = student.policy.parameters();
    let shape = parameters.slots()[0].shape.clone();
    parameters.accumulate(0, &Tensor::full(value, shape, &Device::Cpu).unwrap()).unwrap();
}

#[test]
fn a_gradient_that_is_not_finite_changes_nothing_and_is_an_error() {
    let mut student = student(false);
    let before = values(&student);
    push(&student, f32::NAN);
    begin_step(&mut student, 0);

    assert!(student.update().unwrap_err().to_string().contains("gradient"));
    assert_eq!(student.hooks.non_finite, Some("gradient"));
    assert_eq!((values(&student), student.policy.generation()), (before, 0));
}

#[test]
fn a_run_that_skips_such_updates_goes_on_with_the_next() {
    let mut student = student(true);
    let before = values(&student);
    push(&student, f32::INFINITY);
    begin_step(&mut student, 0);
    student.update().unwrap();
    assert_eq!((values(&student), student.hooks.progress.skipped), (before.clone(), 1));

    push(&student, 1.0);
    begin_step(&mut student, 1);
    student.update().unwrap();
    assert!(values(&student).iter().all(|value| value.is_finite()));
    assert_ne!(values(&student), before);
}

#[test]
fn the_rate_falls_with_the_step_and_not_with_the_updates_within_it() {
    let mut student = student(false);
    begin_step(&mut student, 1);
    let rates: Vec<f64> = (0..2)
        .map(|_| {
            push(&student, 1.0);
            student.update().unwrap();
            student.hooks.learning_rate()
        })
        .collect();

    assert_eq!(rates, [0.375, 0.375]);
    assert_eq!((student.hooks.position(), student.policy.generation()), (1, 2));
}

#[test]
fn directions_read_at_different_places_are_not_published_together() {
    let direction = |layer, site| {
        let (token, vector) = (Token::FromEnd(0), vec![1.0; 16]);
        Direction { layer, site, token, vector, coefficient: 1.0 }
    };
    let mut student = student(false);
    student.publish(direction(0, Site::ResidualAfter)).unwrap();
    student.publish(direction(0, Site::MlpOutput)).unwrap();
    assert!(student.publish(direction(1, Site::ResidualAfter)).unwrap_err().to_string().contains("one site"));
    student.publish(direction(1, Site::MlpOutput)).unwrap();
    assert_eq!(student.published.len(), 2);
}

#[test]
fn a_snapshot_put_back_holds_the_numbers_that_it_was_taken_with() {
    let mut student = student(false);
    push(&student, 1.0);
    student.update().unwrap();
    student.snapshot("old").unwrap();
    let old = values(&student);
    push(&student, 1.0);
    student.update().unwrap();

    let taken = student.snapshots["old"].copy().unwrap();
    student.restore_snapshot("old", taken, Path::new("nowhere")).unwrap();
    assert_eq!(values(&student), old);
}

/// Writes a checkpoint of a train state into a run's folder.
fn saved(student: &TrainState, run: &Path) -> PathBuf {
    let state = State {
        generation: student.policy.generation(),
        snapshots: student.snapshots.keys().cloned().collect(),
        ..State::without_method_state(1, student.hooks.updates(), Identity::default())
    };
    checkpoint::save(run, &state, student, 1).unwrap()
}

/// The files in a checkpoint of a train state: their names and contents.
fn kept(student: &TrainState) -> BTreeMap<String, Vec<u8>> {
    let run = tempfile::tempdir().unwrap();
    let entries = std::fs::read_dir(saved(student, run.path())).unwrap().map(Result::unwrap);
    entries.map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())).collect()
}

#[test]
fn a_student_goes_back_to_all_that_a_checkpoint_keeps() {
    let learns = |student: &mut TrainState, value: f32| {
        push(student, value);
        student.update().unwrap();
    };
    let edits = |student: &mut TrainState| {
        student.policy.add_outer(Role::Linear(decoder::Site::Query), 0, &[1.0; 16], &[1.0; 16], 0.5).unwrap()
    };
    let publishes = |student: &mut TrainState, layer: usize| {
        let (site, token, vector) = (Site::ResidualAfter, Token::FromEnd(0), vec![1.0; 16]);
        student.publish(Direction { layer, site, token, vector, coefficient: 1.0 }).unwrap();
    };
    let mut student = student(false);
    begin_step(&mut student, 0);
    learns(&mut student, 1.0);
    edits(&mut student);
    publishes(&mut student, 0);
    student.snapshot("old").unwrap();
    let (initial, before) = (InitialState::copy_of(&student).unwrap(), kept(&student));
    learns(&mut student, 1.0);
    let (next, straight) = (values(&student), kept(&student));

    edits(&mut student);
    publishes(&mut student, 1);
    student.snapshot("old").unwrap();
    student.snapshot("new").unwrap();
    push(&student, 1.0);
    assert!(kept(&student).iter().filter(|(name, bytes)| before.get(*name) != Some(*bytes)).count() > 4);
    initial.restore(&mut student).unwrap();
    assert!(kept(&student) == before, "a checkpoint is another than before");
    learns(&mut student, 1.0);
    assert!(values(&student) == next && kept(&student) == straight, "it learns something else than before");
}

#[test]
fn a_checkpoint_of_every_optimizer_goes_on_with_the_same_bits_and_another_optimizer_refuses_it() {
    let rules = [
        UpdateRule::AdamW(AdamWSettings::default()),
        UpdateRule::AdamW8Bit(AdamWSettings::default()),
        UpdateRule::Lion(LionSettings::default()),
        UpdateRule::Muon(MuonSettings::default()),
        UpdateRule::Sgd(SgdSettings { momentum: 0.9, nesterov: true, weight_decay: 0.1 }),
    ];
    let students = |rule: UpdateRule| [(); 2].map(|()| with_optimizer(false, 0.0, rule.into()));
    for rule in rules {
        let [mut straight, mut resumed] = students(rule);
        push(&straight, 1.0);
        straight.update().unwrap();
        let run = tempfile::tempdir().unwrap();
        let folder = saved(&straight, run.path());
        let state = State::read(&folder).unwrap();
        checkpoint::restore(&folder, &state, &mut resumed, 0).unwrap();
        for student in [&mut straight, &mut resumed] {
            push(student, -0.5);
            student.update().unwrap();
        }
        assert!(values(&resumed) == values(&straight), "{rule:?}");

        let [mut other, _] = students(UpdateRule::Sgd(SgdSettings::default()));
        let error = checkpoint::restore(&folder, &state, &mut other, 0).unwrap_err().to_string();
        assert!(error.contains("optimizer.safetensors"), "{rule:?}: {error}");
    }
}

#[test]
fn the_factors_b_of_an_adapter_have_a_rate_of_their_own() {
    let moved = |ratio: f64| {
        let settings = OptimizerSettings { b_rate_ratio: ratio, ..UpdateRule::Sgd(SgdSettings::default()).into() };
        let mut student = with_optimizer(false, 0.0, settings);
        let before = values(&student);
        let parameters = student.policy.parameters();
        for (index, slot) in parameters.slots().iter().enumerate() {
            parameters
                .accumulate(index, &Tensor::ones(slot.shape.as_slice(), DType::F32, &Device::Cpu).unwrap())
                .unwrap();
        }
        student.update().unwrap();
        let first = |index: usize| student.policy.parameters().slots()[index].offset;
        [first(0), first(1)].map(|place| values(&student)[place] - before[place])
    };
    let ([a, b], [a_now, b_now]) = (moved(1.0), moved(4.0));
    assert_eq!(a, a_now, "slot 0 is a factor A");
    assert!(a < 0.0 && (b_now / b - 4.0).abs() < 1e-5, "{b} and {b_now}");
}

#[test]
fn a_checkpoint_keeps_what_was_edited_when_each_snapshot_was_taken() {
    let edits = |student: &mut TrainState| {
        student.policy.add_outer(Role::Linear(decoder::Site::Query), 0, &[1.0; 16], &[1.0; 16], 0.5).unwrap()
    };
    let init = |student: &mut TrainState| {
        student.snapshot("before").unwrap();
        edits(student);
    };
    let rows = Arc::new(Rows::new(vec![vec![1, 2, 3, 4]], vec![vec![false, true, true, true]]).unwrap());
    let seen = |student: &mut TrainState, name: &str| -> Vec<Vec<f32>> {
        let view = View::Snapshot(name.to_owned());
        student.score(&rows, &request(view, false)).unwrap().tap(Tap::Logprob).unwrap().to_vec2().unwrap()
    };
    let [mut straight, mut resumed] = [false; 2].map(student);
    init(&mut straight);
    edits(&mut straight);
    straight.snapshot("after").unwrap();
    let run = tempfile::tempdir().unwrap();
    let folder = saved(&straight, run.path());

    init(&mut resumed);
    checkpoint::restore(&folder, &State::read(&folder).unwrap(), &mut resumed, 0).unwrap();
    for name in ["before", "after"] {
        assert_eq!(seen(&mut resumed, name), seen(&mut straight, name), "{name}");
    }
    assert_ne!(seen(&mut straight, "before"), seen(&mut straight, "after"));
    let (one, other) = (kept(&resumed), kept(&straight));
    let differ = |name: &&String| one.get(*name) != other.get(*name);
    let differ: BTreeSet<_> = one.keys().chain(other.keys()).filter(differ).collect();
    // Which names the model's folder, and each student has one of its own.
    assert_eq!(differ.into_iter().collect::<Vec<_>>(), ["adapter_config.json"]);
}

#[test]
fn a_student_that_begins_anew_is_what_it_was_before_init() {
    let mut student = student(false);
    let before = kept(&student);
    student.snapshot("old").unwrap();
    student.policy.add_outer(Role::Linear(decoder::Site::Query), 0, &[1.0; 16], &[1.0; 16], 0.5).unwrap();
    push(&student, 1.0);
    student.update().unwrap();
    push(&student, 1.0);
    assert!(kept(&student) != before);
    reset(&mut student).unwrap();
    assert!(kept(&student) == before, "a checkpoint is another than before");
    assert!(student.policy.parameters().gradient_norm().unwrap() == 0.0, "a gradient is left");
}

#[test]
fn what_init_did_before_is_not_done_again_and_what_it_did_anew_stays() {
    let init = |student: &mut TrainState| {
        begin_step(student, 0);
        student.snapshot("old").unwrap();
        student.policy.add_outer(Role::Linear(decoder::Site::Query), 0, &[1.0; 16], &[1.0; 16], 0.5).unwrap();
        push(student, 1.0);
        student.update().unwrap();
    };
    let mut student = student(false);
    init(&mut student);
    begin_step(&mut student, 0);
    push(&student, 1.0);
    student.update().unwrap();
    let (initial, before) = (InitialState::copy_of(&student).unwrap(), kept(&student));

    init(&mut student);
    assert!(kept(&student) != before);
    initial.restore_after_init(&mut student).unwrap();
    assert!(kept(&student) == before, "a checkpoint is another than before");
    student.snapshot("new").unwrap();
    initial.restore_after_init(&mut student).unwrap();
    assert_eq!(student.snapshots.keys().collect::<Vec<_>>(), ["new", "old"]);

    // Taken down anew, it is where it stands now.
    let initial = InitialState::copy_of(&student).unwrap();
    let before = kept(&student);
    push(&student, 1.0);
    student.update().unwrap();
    initial.restore(&mut student).unwrap();
    assert!(kept(&student) == before, "it did not take down all of it");
}

#[test]
fn edits_of_an_init_stay_where_nothing_was_edited_before() {
    let mut student = student(false);
    let initial = InitialState::copy_of(&student).unwrap();
    student.policy.keep_edits_as(Form::Adapter).unwrap();
    initial.restore_after_init(&mut student).unwrap();
    assert!(student.policy.edits_are_an_adapter());
    student.policy.add_outer(Role::Linear(decoder::Site::Query), 0, &[1.0; 16], &[1.0; 16], 0.5).unwrap();
    initial.restore_after_init(&mut student).unwrap();
    assert!(student.policy.is_edited());
    initial.restore(&mut student).unwrap();
    assert!(!student.policy.is_edited() && !student.policy.edits_are_an_adapter());
}

#[test]
fn a_step_that_is_tried_again_drops_out_the_same_numbers() {
    let mut student = with_dropout(false, 0.5);
    for slot in 0..student.policy.parameters().slots().len() {
        let shape = student.policy.parameters().slots()[slot].shape.clone();
        student.policy.parameters().accumulate(slot, &Tensor::ones(shape, DType::F32, &Device::Cpu).unwrap()).unwrap();
    }
    student.update().unwrap();
    let rows = Arc::new(Rows::new(vec![vec![1, 2, 3, 4]], vec![vec![false, true, true, true]]).unwrap());
    let learns = |student: &mut TrainState, step: u64| -> Vec<Vec<f32>> {
        begin_step(student, step);
        let scored = student.score(&rows, &request(View::Policy, true)).unwrap();
        scored.tap(Tap::Logprob).unwrap().to_vec2().unwrap()
    };
    // No update follows, so that the count of masks would go on.
    let first = learns(&mut student, 0);
    let initial = InitialState::copy_of(&student).unwrap();
    let second = learns(&mut student, 1);
    initial.restore(&mut student).unwrap();
    assert_eq!(learns(&mut student, 1), second);
    let plain = student.score(&rows, &request(View::Policy, false)).unwrap();
    assert_ne!(plain.tap(Tap::Logprob).unwrap().to_vec2::<f32>().unwrap(), first, "nothing is dropped");
}
