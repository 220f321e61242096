//! A folder with all that a run needs: a tiny random model with a tokenizer of bytes, and data.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use safetensors::SafeTensors;
use serde_json::{Map, Value, json};
use tunebox_sandbox::Compiling;
use tunebox_training::{Comparison, Error, Event, Observer, Plan, Replay, RunSettings, Summary, plan, run, verify};

/// A folder for runs, gone when dropped.
pub(crate) struct Workspace {
    folder: tempfile::TempDir,
}

impl Workspace {
    /// A model, a file of sixteen records, and nothing else.
    pub(crate) fn new() -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap() };
        let model = place.path("model");
        fs::create_dir(&model).unwrap();
        fs::write(model.join("config.json"), configuration().to_string()).unwrap();
        fs::write(model.join("tokenizer.json"), tokenizer().to_string()).unwrap();
        fs::write(model.join("tokenizer_config.json"), tokenizer_settings().to_string()).unwrap();
        place.write("data.jsonl", &records(16));
        place
    }

    /// A path in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file in the folder.
    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Writes records in a file of the folder, one a line.
    pub(crate) fn write_lines(&self, name: &str, records: impl IntoIterator<Item = Value>) {
        self.write(name, &records.into_iter().map(|record| format!("{record}\n")).collect::<String>());
    }

    /// Writes a little data, and validation data that are unlike them; the setting that names those.
    pub(crate) fn write_unlike(&self) -> String {
        let record = |(question, answer)| json!({ "prompt": question, "completion": answer });
        let train = [("What is 1 and 1?", "It is 2."), ("What is 2 and 2?", "It is 4.")];
        let held_out = [("What is 3 and 3?", "It is 6, as you know."), ("Who is there?", "Nobody is here!")];
        self.write_lines("data.jsonl", train.map(record));
        self.write_lines("held-out.jsonl", held_out.map(record));
        self.set("data.validation", "held-out.jsonl")
    }

    /// The settings of a small run, with more on top.
    pub(crate) fn settings(&self, more: &[&str]) -> Result<RunSettings, Error> {
        let mut list = vec![
            format!("model.path={}", self.path("model").display()),
            "method.use=lora".into(),
            format!("run.folder={}", self.path("runs").display()),
            "train.rate=0.01".into(),
        ];
        if !more.iter().any(|text| text.starts_with("model.path")) {
            list.push("model.initialize=random".into());
        }
        if !more.iter().any(|text| text.starts_with("model.adapter")) {
            list.push("train.adapter.rank=4".into());
        }
        if !more.iter().any(|text| text.starts_with("data.files")) {
            list.push(format!("data.path={}", self.path("data.jsonl").display()));
        }
        list.extend(more.iter().map(|text| (*text).to_owned()));
        RunSettings::from_overrides(&list)
    }

    /// The plan of such a run.
    pub(crate) fn plan(&self, name: &str, more: &[&str]) -> Result<Plan, Error> {
        let name = format!("run.name={name}");
        plan(self.settings(&[&[name.as_str()], more].concat())?)
    }

    /// A setting whose value is the path of a file in the folder.
    pub(crate) fn set(&self, key: &str, file: &str) -> String {
        format!("{key}={}", self.path(file).display())
    }

    /// Writes a component, and returns the setting that names its file.
    pub(crate) fn write_component(&self, key: &str, file: &str, bytes: &[u8]) -> String {
        fs::write(self.path(file), bytes).unwrap();
        self.set(key, file)
    }

    /// Carries out such a run.
    pub(crate) fn train(&self, name: &str, more: &[&str]) -> Result<Summary, Error> {
        self.train_with(name, more, &mut TestObserver::new())
    }

    /// Carries out such a run under a watcher.
    pub(crate) fn train_with(&self, name: &str, more: &[&str], watcher: &mut TestObserver) -> Result<Summary, Error> {
        let plan = self.plan(name, more)?;
        let stop = watcher.stop;
        run(plan, watcher, stop)
    }

    /// Carries out such a run until a person stops it after a step.
    pub(crate) fn stop(&self, name: &str, more: &[&str], step: u64) -> Summary {
        self.train_with(name, more, &mut TestObserver { stop_after: Some(step), ..TestObserver::new() }).unwrap()
    }

    /// Carries out such a run until its process dies after a step.
    pub(crate) fn kill(&self, name: &str, more: &[&str], step: u64) {
        let mut watcher = TestObserver { die_after: Some(step), ..TestObserver::new() };
        let died = AssertUnwindSafe(|| self.train_with(name, more, &mut watcher));
        catch_unwind(died).unwrap_err();
    }

    /// Resumes such a run.
    pub(crate) fn resume(&self, name: &str, more: &[&str]) -> Result<Summary, Error> {
        self.resume_with(name, more, &mut TestObserver::new())
    }

    /// Resumes such a run under a watcher.
    pub(crate) fn resume_with(&self, name: &str, more: &[&str], watcher: &mut TestObserver) -> Result<Summary, Error> {
        let name = format!("run.name={name}");
        let mut settings = self.settings(&[&[name.as_str()], more].concat())?;
        settings.resume = true;
        let stop = watcher.stop;
        run(plan(settings)?, watcher, stop)
    }

    /// Verifies and replays a finished run, with `set` as `--set` arguments. Fails if a bit of the replay is another.
    /// Returns the inputs as verification compares them, and the replay.
    pub(crate) fn replay(&self, run: &str, set: &[String]) -> (Vec<Comparison>, Replay) {
        let verification = verify(&self.path("runs").join(run), set, true, Compiling::default()).unwrap();
        let inputs = verification.inputs.clone();
        let replay =
            verification.replay(&std::env::temp_dir(), None, &mut TestObserver::new(), &AtomicBool::new(false));
        let replay = replay.unwrap().unwrap();
        assert!(replay.same(), "{replay:?}");
        (inputs, replay)
    }

    /// The bytes of a file of a run.
    pub(crate) fn bytes(&self, run: &str, file: &str) -> Vec<u8> {
        fs::read(self.path("runs").join(run).join(file)).unwrap()
    }

    /// The text of a file of a run.
    pub(crate) fn text(&self, run: &str, file: &str) -> String {
        String::from_utf8(self.bytes(run, file)).unwrap()
    }

    /// The lines of a run's metrics, without what it used of its limits.
    pub(crate) fn metrics(&self, run: &str) -> Vec<Map<String, Value>> {
        let text = self.text(run, "metrics.jsonl");
        let rows = text.lines().map(|line| serde_json::from_str::<Map<String, Value>>(line).unwrap());
        rows.filter(|row| !row.contains_key("used")).collect()
    }
}

/// The numbers in a file of tensors in f32 whose names hold a text, in the order of the names.
pub(crate) fn numbers(bytes: &[u8], text: &str) -> Vec<f32> {
    let file = SafeTensors::deserialize(bytes).unwrap();
    let mut names = file.names();
    names.retain(|name| name.contains(text));
    names.sort_unstable();
    let number = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
    names.iter().flat_map(|name| file.tensor(name).unwrap().data().chunks(4).map(number).collect::<Vec<_>>()).collect()
}

/// What happens when a checkpoint is on the disk.
pub(crate) type Saved = Box<dyn FnMut(u64, &Path)>;

/// Watches a run, and may end it.
pub(crate) struct TestObserver {
    /// Set to stop the run.
    pub(crate) stop: &'static AtomicBool,
    /// Step after which a person presses Ctrl-C.
    pub(crate) stop_after: Option<u64>,
    /// Step after which the process dies.
    pub(crate) die_after: Option<u64>,
    /// Called when a checkpoint is on the disk.
    pub(crate) saved: Saved,
    /// Steps seen.
    pub(crate) steps: Vec<u64>,
    /// All that was heard.
    pub(crate) events: Vec<Event>,
}

impl TestObserver {
    /// Only watches.
    pub(crate) fn new() -> Self {
        let stop = Box::leak(Box::new(AtomicBool::new(false)));
        let saved: Saved = Box::new(|_, _| {});
        Self { stop, stop_after: None, die_after: None, saved, steps: Vec::new(), events: Vec::new() }
    }
}

impl Observer for TestObserver {
    fn event(&mut self, event: &Event) {
        self.events.push(event.clone());
        match event {
            Event::Step(step) => {
                self.steps.push(step.step);
                if self.stop_after == Some(step.step) {
                    self.stop.store(true, Ordering::Relaxed);
                }
                assert!(self.die_after != Some(step.step), "the process dies here");
            }
            Event::Saved { step, path } => (self.saved)(*step, path),
            _ => {}
        }
    }
}

/// Records of unequal length, so that windows and bins differ.
pub(crate) fn records(count: usize) -> String {
    let record = |number: usize| {
        let question = format!("What is {number} and {number}?{}", " Please.".repeat(number % 4));
        json!({ "messages": [
            { "role": "user", "content": question },
            { "role": "assistant", "content": format!("It is {}.{}", 2 * number, "!".repeat(number % 5)) },
        ]})
    };
    (0..count).map(|number| format!("{}\n", record(number))).collect()
}

fn configuration() -> Value {
    json!({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 260, "hidden_size": 32,
        "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 8, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 256,
        "hidden_act": "silu", "tie_word_embeddings": true, "initializer_range": 0.2, "eos_token_id": 256,
    })
}

/// One token a byte, written as byte-level tokenizers write bytes, and an end of text.
fn tokenizer() -> Value {
    let mut vocabulary = Map::new();
    let mut further = 0;
    for byte in 0..=255_u32 {
        let printable = matches!(byte, 33..=126 | 161..=172 | 174..=255);
        let code = if printable { byte } else { 256 + further };
        further += u32::from(!printable);
        vocabulary.insert(char::from_u32(code).unwrap().to_string(), byte.into());
    }
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
        "added_tokens": [{
            "id": 256, "content": "<|end|>", "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true,
        }],
        "pre_tokenizer": { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false },
        "decoder": { "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true },
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocabulary, "merges": [],
        },
    })
}

fn tokenizer_settings() -> Value {
    json!({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>",
        "chat_template": "{% for m in messages %}{{ m.role }}: {{ m.content }}<|end|>{% endfor %}\
            {% if add_generation_prompt %}assistant: {% endif %}",
    })
}
