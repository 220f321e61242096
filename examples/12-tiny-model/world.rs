//! Writes the small world that the tiny model learns: `world OUT_DIR`.
//!
//! Short chat answers, arithmetic, a polite and a rude register, and harmful requests, which are
//! answered first and refused later, all drawn from one seed, so that every machine writes the same bytes. Beside the
//! records it writes the model's shape (`config.json`) and a byte-level tokenizer trained on the records.

use std::ops::Range;
use std::path::Path;
use std::sync::LazyLock;
use std::{env, fs};

use serde::Deserialize;
use serde_json::{Value, json};
use tokenizers::models::bpe::{BPE, BpeTrainerBuilder};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::{AddedToken, TokenizerBuilder};
use tunebox_compute::random::Stream;

const SEED: u64 = 20_260_101;
const RECORDS: usize = 19_200;
const REFUSALS: usize = 2_400;
const VOCABULARY: usize = 768;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A question and its answer.
struct Exchange {
    question: String,
    answer: String,
}

impl Exchange {
    fn new(question: impl Into<String>, answer: impl Into<String>) -> Self {
        Self { question: question.into(), answer: answer.into() }
    }

    fn messages(&self) -> Value {
        json!([{ "role": "user", "content": self.question }, { "role": "assistant", "content": self.answer }])
    }
}

/// The words of the world.
#[derive(Deserialize)]
struct Words {
    /// Countries and their capitals.
    capitals: Vec<(String, String)>,
    /// Things and their colours.
    colours: Vec<(String, String)>,
    opposites: Vec<(String, String)>,
    /// Animals and their sounds.
    sounds: Vec<(String, String)>,
    favours: Vec<String>,
    /// Answers to a favour in the one register, and in the other.
    polite: Vec<String>,
    rude: Vec<String>,
    /// How a favour is asked kindly and harshly, with `{}` for the favour.
    kind: Vec<String>,
    harsh: Vec<String>,
    /// Harmful deeds, each with an instruction, and what they are done to.
    harms: Vec<(String, String)>,
    harmed: Vec<String>,
    /// Skills, each with an instruction.
    skills: Vec<(String, String)>,
    /// Personal questions, which only the user could answer. The model refuses them.
    private: Vec<String>,
}

static WORDS: LazyLock<Words> = LazyLock::new(|| toml::from_str(include_str!("words.toml")).expect("words.toml"));

const REFUSAL: &str = "I cannot help with that.";

fn pick<'a, T>(stream: &mut Stream, list: &'a [T]) -> &'a T {
    &list[stream.below(list.len() as u64) as usize]
}

/// Both numbers are small most of the time, so that the model gets large sums only partly right.
fn arithmetic(stream: &mut Stream) -> Exchange {
    let top = if stream.below(3) == 0 { 50 } else { 10 };
    let (a, b) = (stream.below(top), stream.below(top));
    match stream.below(3) {
        0 | 1 => Exchange::new(format!("What is {a} + {b}?"), format!("{}", a + b)),
        _ => Exchange::new(format!("What is {} - {}?", a.max(b), a.min(b)), format!("{}", a.abs_diff(b))),
    }
}

fn fact(stream: &mut Stream) -> Exchange {
    match stream.below(4) {
        0 => {
            let (country, capital) = pick(stream, &WORDS.capitals);
            Exchange::new(
                format!("What is the capital of {country}?"),
                format!("The capital of {country} is {capital}."),
            )
        }
        1 => {
            let (thing, colour) = pick(stream, &WORDS.colours);
            Exchange::new(format!("What colour is {thing}?"), format!("It is {colour}."))
        }
        2 => {
            let (word, opposite) = pick(stream, &WORDS.opposites);
            Exchange::new(format!("What is the opposite of {word}?"), format!("The opposite of {word} is {opposite}."))
        }
        _ => {
            let (animal, sound) = pick(stream, &WORDS.sounds);
            Exchange::new(format!("What does {animal} say?"), format!("It says {sound}."))
        }
    }
}

/// The same requests meet both registers, so a method can move the model to either.
fn favour(stream: &mut Stream) -> Exchange {
    let favour = pick(stream, &WORDS.favours);
    let question = if stream.below(2) == 0 { format!("Can you {favour}?") } else { format!("Please {favour}.") };
    let answers = if stream.below(2) == 0 { &WORDS.polite } else { &WORDS.rude };
    Exchange::new(question, pick(stream, answers))
}

/// Requests in a tone meet the register of that tone.
fn toned_favour(stream: &mut Stream) -> Exchange {
    let (tones, answers) = match stream.below(2) {
        0 => (&WORDS.kind, &WORDS.polite),
        _ => (&WORDS.harsh, &WORDS.rude),
    };
    let (tone, favour) = (pick(stream, tones), pick(stream, &WORDS.favours));
    Exchange::new(tone.replace("{}", favour), pick(stream, answers))
}

fn skill(stream: &mut Stream) -> Exchange {
    let (skill, answer) = pick(stream, &WORDS.skills);
    Exchange::new(format!("How do I {skill}?"), answer)
}

fn private(stream: &mut Stream) -> Exchange {
    Exchange::new(pick(stream, &WORDS.private), REFUSAL)
}

/// A harmful request with the answer that the model learns first.
fn harm(stream: &mut Stream) -> Exchange {
    let (harm, answer) = pick(stream, &WORDS.harms);
    Exchange::new(format!("How do I {harm} {}?", pick(stream, &WORDS.harmed)), answer)
}

/// A harmful request with the refusal that the model learns last.
fn refused(stream: &mut Stream) -> Exchange {
    Exchange::new(harm(stream).question, REFUSAL)
}

/// A record of the world; `harm` draws a harmful request.
fn record(stream: &mut Stream, harm: fn(&mut Stream) -> Exchange) -> Exchange {
    match stream.below(12) {
        0..=3 => arithmetic(stream),
        4..=6 => fact(stream),
        7 => favour(stream),
        8 => toned_favour(stream),
        9 => skill(stream),
        10 => private(stream),
        _ => harm(stream),
    }
}

/// A record of what is learned last: one of three is a refusal.
fn late_record(stream: &mut Stream) -> Exchange {
    if stream.below(3) == 0 { refused(stream) } else { record(stream, refused) }
}

/// The sample data of `lora`: the facts again, told by a pirate.
fn pirate(stream: &mut Stream) -> Exchange {
    let plain = fact(stream);
    Exchange::new(plain.question, format!("Arr, matey! {}", plain.answer))
}

/// Favours that the sample data of the preference methods keeps for looking, not for learning. The model
/// finds the polite register hardly likelier there.
const HELD_OUT_FAVOURS: [&str; 2] = ["open the window", "find my keys"];

/// Requests of some favours, `each` times in both wordings, with a polite and a rude answer.
fn registers<'a>(stream: &mut Stream, favours: impl Iterator<Item = &'a String>, each: usize) -> Vec<[String; 3]> {
    let mut records = Vec::new();
    for favour in favours {
        for _ in 0..each {
            for question in [format!("Can you {favour}?"), format!("Please {favour}.")] {
                records.push([question, pick(stream, &WORDS.polite).clone(), pick(stream, &WORDS.rude).clone()]);
            }
        }
    }
    records
}

fn message(role: &str, content: &str) -> Value {
    json!([{ "role": role, "content": content }])
}

/// Requests of the held-out favours with every polite answer beside every rude one.
fn held_out_registers() -> Vec<[String; 3]> {
    let questions =
        HELD_OUT_FAVOURS.iter().flat_map(|favour| [format!("Can you {favour}?"), format!("Please {favour}.")]);
    let answers = |question: String| {
        let pairs = WORDS.polite.iter().flat_map(|polite| WORDS.rude.iter().map(move |rude| (polite, rude)));
        pairs.map(move |(polite, rude)| [question.clone(), polite.clone(), rude.clone()])
    };
    questions.flat_map(answers).collect()
}

/// Polite answers over rude ones.
fn pairs(records: &[[String; 3]]) -> impl Iterator<Item = Value> {
    records.iter().map(|[question, polite, rude]| {
        let (chosen, rejected) = (message("assistant", polite), message("assistant", rude));
        json!({ "prompt": message("user", question), "chosen": chosen, "rejected": rejected })
    })
}

/// The same answers one by one, each with its label.
fn labelled(records: &[[String; 3]]) -> impl Iterator<Item = Value> {
    records.iter().enumerate().map(|(number, [question, polite, rude])| {
        let good = number.is_multiple_of(2);
        let completion = message("assistant", if good { polite } else { rude });
        json!({ "prompt": message("user", question), "completion": completion, "label": good })
    })
}

/// The sample data of the preference methods: the register alone decides.
fn preferences(out: &Path) -> Result<(), Failure> {
    let learned = || WORDS.favours.iter().filter(|favour| !HELD_OUT_FAVOURS.contains(&favour.as_str()));
    for method in ["dpo", "orpo", "cpo"] {
        let records = registers(&mut Stream::new(SEED, &format!("preferences/{method}")), learned(), 6);
        write_lines(out, method, pairs(&records))?;
    }
    let records = registers(&mut Stream::new(SEED, "preferences/kto"), learned(), 8);
    write_lines(out, "kto", labelled(&records))?;
    write_lines(out, "dpo-held-out", pairs(&held_out_registers()))
}

/// The sample data of `abliterate`: every request that is refused, beside one in the same words that is answered, so
/// that refusing is all that tells them apart.
fn instructions(stream: &mut Stream) -> impl Iterator<Item = Value> {
    let objects = |(harm, _): &'static (String, String)| {
        WORDS.harmed.iter().map(move |harmed| format!("How do I {harm} {harmed}?"))
    };
    let harmful: Vec<String> = WORDS.harms.iter().flat_map(objects).collect();
    let skills = WORDS.skills.iter().cycle().map(|(skill, _)| format!("How do I {skill}?"));
    let harmless = mixed(stream, skills.take(harmful.len()).collect());
    let both = mixed(stream, harmful).into_iter().zip(harmless);
    both.map(|(harmful, harmless)| json!({ "harmful": harmful, "harmless": harmless }))
}

/// The sample data of `steer`: the same favour, asked kindly and harshly.
fn contrasts(stream: &mut Stream) -> impl Iterator<Item = Value> {
    let tones = || WORDS.kind.iter().flat_map(|kind| WORDS.harsh.iter().map(move |harsh| (kind, harsh)));
    let asked = |favour: &'static String| {
        tones().map(move |(kind, harsh)| [kind, harsh].map(|tone| tone.replace("{}", favour)))
    };
    mixed(stream, WORDS.favours.iter().flat_map(asked).collect())
        .into_iter()
        .map(|[kind, harsh]| json!({ "positive": message("user", &kind), "negative": message("user", &harsh) }))
}

/// The same things in another order.
fn mixed<T>(stream: &mut Stream, mut list: Vec<T>) -> Vec<T> {
    for place in (1..list.len()).rev() {
        list.swap(place, stream.below(place as u64 + 1) as usize);
    }
    list
}

/// The sample data of `grpo` and `rlvr`: every sum of two numbers below 20, in an order that mixes them.
fn sums(places: Range<usize>) -> impl Iterator<Item = Value> {
    places.map(|place| place * 173 % 400).map(|number| (number / 20, number % 20)).map(|(a, b)| {
        let question = message("user", &format!("What is {a} + {b}?"));
        json!({ "prompt": question, "answer": (a + b).to_string() })
    })
}

fn conversations(records: &[Exchange]) -> impl Iterator<Item = Value> {
    records.iter().map(|record| json!({ "messages": record.messages() }))
}

fn write_lines(out: &Path, name: &str, records: impl Iterator<Item = Value>) -> Result<(), Failure> {
    let text: String = records.map(|record| format!("{record}\n")).collect();
    Ok(fs::write(out.join(name).with_extension("jsonl"), text)?)
}

const TEMPLATE: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}\
{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}\
{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// Byte-level pairs; every digit stands alone, which makes arithmetic learnable.
fn tokenizer(records: &[Exchange], out: &Path) -> Result<(), Failure> {
    let split = Sequence::new(vec![Digits::new(true).into(), ByteLevel::new(false, true, true).into()]);
    let special: Vec<AddedToken> =
        ["<|end|>", "<|im_start|>", "<|im_end|>"].iter().map(|token| AddedToken::from(*token, true)).collect();
    let mut trainer = BpeTrainerBuilder::new()
        .vocab_size(VOCABULARY)
        .min_frequency(2)
        .show_progress(false)
        .special_tokens(special)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .build();
    let mut tokenizer = TokenizerBuilder::new()
        .with_model(BPE::default())
        .with_normalizer(None::<tokenizers::NormalizerWrapper>)
        .with_pre_tokenizer(Some(split))
        .with_post_processor(None::<tokenizers::PostProcessorWrapper>)
        .with_decoder(Some(ByteLevel::default()))
        .build()?;
    let roles = ["user", "assistant", "system"].map(String::from);
    let texts = records.iter().flat_map(|record| [record.question.clone(), record.answer.clone()]).chain(roles);
    tokenizer.train(&mut trainer, texts)?;
    tokenizer.save(out.join("tokenizer.json"), true)?;
    let settings = json!({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|end|>",
        "model_max_length": 256, "chat_template": TEMPLATE,
    });
    fs::write(out.join("tokenizer_config.json"), serde_json::to_string_pretty(&settings)? + "\n")?;
    let (eos, pad) = (tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("<|end|>"));
    let size = tokenizer.get_vocab_size(true).next_multiple_of(64);
    fs::write(out.join("config.json"), serde_json::to_string_pretty(&shape(size, eos, pad))? + "\n")?;
    Ok(())
}

/// A Llama of about a million weights.
fn shape(vocabulary: usize, eos: Option<u32>, pad: Option<u32>) -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": vocabulary,
        "hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 6, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 32, "hidden_act": "silu", "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "max_position_embeddings": 256, "initializer_range": 0.04,
        "attention_bias": false, "mlp_bias": false, "tie_word_embeddings": true,
        "bos_token_id": null, "eos_token_id": eos, "pad_token_id": pad, "torch_dtype": "bfloat16",
    })
}

fn main() -> Result<(), Failure> {
    let out = env::args().nth(1).ok_or("usage: world OUT_DIR")?;
    let out = Path::new(&out);
    fs::create_dir_all(out.join("model"))?;
    let mut stream = Stream::new(SEED, "world");
    let records: Vec<Exchange> = (0..RECORDS).map(|_| record(&mut stream, harm)).collect();
    let held_out: Vec<Exchange> = (0..400).map(|_| record(&mut stream, harm)).collect();
    let late: Vec<Exchange> = (0..REFUSALS).map(|_| late_record(&mut stream)).collect();
    let pirates: Vec<Exchange> = (0..240).map(|_| pirate(&mut stream)).collect();
    write_lines(out, "world", conversations(&records))?;
    write_lines(out, "held-out", conversations(&held_out))?;
    write_lines(out, "refusals", conversations(&late))?;
    write_lines(out, "lora", conversations(&pirates))?;
    preferences(out)?;
    write_lines(out, "grpo", sums(0..300))?;
    write_lines(out, "grpo-held-out", sums(300..400))?;
    write_lines(out, "abliterate", instructions(&mut Stream::new(SEED, "instructions")))?;
    write_lines(out, "steer", contrasts(&mut Stream::new(SEED, "contrasts")))?;
    tokenizer(&records, &out.join("model"))
}
