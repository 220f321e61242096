//! A run that is divided among ranks: the same bits at any number of them, for every method, over stops and at other
//! sizes; and one error on all ranks when one of them fails.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tunebox_foundation::explain::Explain as _;
use tunebox_ranks::{Launch, Launcher, connect};
use tunebox_training::{Connection, Error, RunSettings, Summary, execute_on_ranks};

use crate::support::tiny_run::{TestObserver, Workspace, records};

/// What a rank returned, and how many events it sent.
type Ended = (Result<Summary, Error>, usize);

/// Executes a run on one rank for each of these settings, in threads, and returns what each of them returned. Rank 0 stops
/// the run after the step `stop_after`.
fn execute(settings: Vec<RunSettings>, stop_after: Option<u64>) -> Vec<Ended> {
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let (count, timeout) = (settings.len(), Duration::from_secs(600));
    std::thread::scope(|scope| {
        let start = |(rank, settings): (usize, RunSettings)| {
            let address = Some(("127.0.0.1".to_owned(), port));
            let launch = Launch { launcher: Launcher::Torchrun, rank, count, address, library: None };
            scope.spawn(move || {
                let connection = Connection::open(connect(&launch, timeout).unwrap(), timeout).unwrap();
                let connection = Arc::new(Mutex::new(connection));
                let mut watcher = TestObserver { stop_after, ..TestObserver::new() };
                let stop = watcher.stop;
                let result = execute_on_ranks(settings, None, &mut watcher, stop, &connection);
                let mut connection = Arc::into_inner(connection).unwrap().into_inner().unwrap();
                let result = connection.finish(result, |error| (error.explanation(), error.exit()));
                connection.close(1);
                (result, watcher.events.len())
            })
        };
        let threads: Vec<_> = settings.into_iter().enumerate().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Executes a run on `count` ranks with the same settings, which must succeed.
fn succeed(settings: &RunSettings, count: usize, stop_after: Option<u64>) -> Summary {
    let mut ended = execute(vec![settings.clone(); count], stop_after);
    for (rank, (result, events)) in ended.iter().enumerate() {
        let summary = result.as_ref().unwrap_or_else(|error| panic!("rank {rank} of {count}: {error}"));
        assert_eq!(summary.interrupted, stop_after.is_some(), "rank {rank} of {count}");
        assert_eq!(*events > 0, rank == 0, "rank {rank} of {count} sent {events} events");
    }
    ended.swap_remove(0).0.unwrap()
}

/// The tensors that a run wrote, by file, and its metrics without times.
fn outputs(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if [".safetensors", ".gguf"].iter().any(|ending| name.ends_with(ending)) {
            found.insert(name, std::fs::read(&path).unwrap());
        }
    }
    assert!(!found.is_empty(), "{} has no weights", folder.display());
    let metrics = std::fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    let rows = metrics.lines().map(|line| serde_json::from_str::<serde_json::Map<_, _>>(line).unwrap());
    let exact = rows.filter(|row| !row.contains_key("used")).map(|mut row| {
        row.retain(|key, _| !["seconds", "tokens-per-second", "peak", "outcome"].contains(&key.as_str()));
        serde_json::Value::from(row).to_string()
    });
    found.insert("metrics".into(), exact.collect::<Vec<_>>().join("\n").into_bytes());
    found
}

/// Trains a method on its sample at 1 to 4 ranks, and compares what the runs wrote.
fn check_method(method: &str, more: &[&str]) {
    let place = Workspace::new();
    let folder = |count: usize| place.path(&format!("runs/{count}"));
    let settings = |count: usize| {
        let own = [
            format!("method.use={method}"),
            place.set("run.folder", "runs"),
            format!("run.name={count}"),
            "run.hourly-price=0".into(),
        ];
        let list: Vec<String> = own.into_iter().chain(more.iter().map(|text| (*text).to_owned())).collect();
        RunSettings::sample(&list).unwrap()
    };
    tunebox_training::execute(settings(1), None, &mut TestObserver::new(), &AtomicBool::new(false)).unwrap();
    let alone = outputs(&folder(1));
    for count in 2..=4 {
        succeed(&settings(count), count, None);
        let found = outputs(&folder(count));
        assert_eq!(found.keys().collect::<Vec<_>>(), alone.keys().collect::<Vec<_>>(), "{method}");
        for (name, bytes) in found {
            assert!(bytes == alone[&name], "`{name}` of `{method}` differs at {count} ranks");
        }
    }
}

macro_rules! methods {
    ($($method:ident: $more:expr;)*) => {$(
        #[test]
        fn $method() {
            check_method(stringify!($method), &$more);
        }
    )*};
}

mod every_method_has_the_same_bits_at_any_number_of_ranks {
    use super::check_method;

    methods! {
        abliterate: [];
        cpo: ["train.steps=3", "train.batch=8"];
        distill: ["train.steps=3", "train.batch=8"];
        dpo: ["train.steps=3", "train.batch=8", "train.compute=bf16"];
        grpo: ["train.steps=3"];
        kto: ["train.steps=3", "train.batch=8", "train.adapter.dropout=0.1"];
        lora: ["train.steps=6", "train.batch=16", "train.accumulation=2", "train.neftune-alpha=5"];
        orpo: ["train.steps=3", "train.batch=8"];
        rlvr: ["train.steps=3"];
        steer: [];
    }
}

/// Settings of a run with dropout and several parts in a batch.
fn settings(place: &Workspace, name: &str, more: &[&str]) -> RunSettings {
    let name = format!("run.name={name}");
    let own = ["train.steps=6", "train.save-every=2", "train.batch=16", "train.adapter.dropout=0.1", "train.keep=9"];
    place.settings(&[&own[..], &[name.as_str()], more].concat()).unwrap()
}

#[test]
fn a_run_that_is_stopped_goes_on_at_other_numbers_of_ranks_and_is_replayed_by_one() {
    let place = Workspace::new();
    place.write("data.jsonl", &records(80));
    succeed(&settings(&place, "whole", &[]), 3, None);
    let mut parts = settings(&place, "parts", &[]);
    succeed(&parts, 4, Some(2));
    parts.resume = true;
    succeed(&parts, 1, Some(4));
    assert_eq!(succeed(&parts, 2, None).step, 6);

    let file = "adapter_model.safetensors";
    assert!(place.bytes("whole", file) == place.bytes("parts", file));
    place.replay("parts", &[]);
}

#[test]
fn a_method_that_is_resumed_knows_the_reference_scores_on_every_rank() {
    let place = Workspace::new();
    let record = |number: usize| {
        let long = format!("The number {number} is even. ").repeat(3);
        serde_json::json!({ "prompt": format!("Is {number} even?"), "chosen": long, "rejected": "No." }).to_string()
    };
    place.write("data.jsonl", &(0..40).map(record).collect::<Vec<_>>().join("\n"));
    let of = |name: &str| settings(&place, name, &["method.use=dpo", "train.cache-reference=true", "train.batch=8"]);
    succeed(&of("whole"), 1, None);
    let mut parts = of("parts");
    succeed(&parts, 2, Some(4));
    parts.resume = true;
    succeed(&parts, 3, None);
    let file = "adapter_model.safetensors";
    assert!(place.bytes("whole", file) == place.bytes("parts", file));
}

/// The error of each rank of a run on ranks with these settings.
fn errors(settings: Vec<RunSettings>) -> Vec<String> {
    execute(settings, None).into_iter().map(|(result, _)| result.unwrap_err().to_string()).collect()
}

#[test]
fn a_rank_with_another_run_is_refused_by_name_before_the_first_step() {
    let place = Workspace::new();
    place.write("other.jsonl", &records(17));
    let other = place.set("data.path", "other.jsonl");
    let cases = [
        (vec![other.as_str()], "the data file is another"),
        (vec!["train.rate=0.02"], "`train.rate` was `0.01`, is `0.02`"),
        (vec!["train.steps=7"], "`train.steps` was `6`, is `7`"),
        (vec!["train.compute=bf16"], "bf16"),
    ];
    for (more, why) in cases {
        let told = errors(vec![settings(&place, "one", &[]), settings(&place, "one", &more)]);
        assert!(told.iter().any(|text| text.contains(why)), "{more:?}: {told:?}");
        assert!(!place.path("runs/one").exists(), "{more:?}");
    }
}

#[test]
fn a_rank_that_cannot_plan_ends_the_others_with_its_words() {
    let place = Workspace::new();
    let missing = place.set("data.path", "absent.jsonl");
    let ended = execute(vec![settings(&place, "one", &[]), settings(&place, "one", &[&missing])], None);
    let first = ended[0].0.as_ref().unwrap_err();
    assert!(first.to_string().starts_with("rank 1 on ") && first.to_string().contains("failed: "), "{first}");
    assert!(first.explanation().why.is_some(), "{first:?}");
    assert!(!place.path("runs/one").exists());
}
