//! Writes the small world that the tiny model learns: `world OUT_DIR`.
//!
//! Short chat answers, arithmetic, a polite and a rude register, and requests that are refused,
//! all drawn from one seed, so that every machine writes the same bytes. Beside the records it
//! writes the model's shape (`config.json`) and a byte-level tokenizer trained on the records.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use serde_json::json;
use tokenizers::models::bpe::{BPE, BpeTrainerBuilder};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::{AddedToken, TokenizerBuilder};
use tunebox_compute::random::Stream;

const SEED: u64 = 20_260_101;
const RECORDS: usize = 16_000;
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

    fn line(&self) -> String {
        let messages = json!([
            { "role": "user", "content": self.question },
            { "role": "assistant", "content": self.answer },
        ]);
        json!({ "messages": messages }).to_string()
    }
}

const CAPITALS: &[(&str, &str)] = &[
    ("France", "Paris"),
    ("Italy", "Rome"),
    ("Spain", "Madrid"),
    ("Portugal", "Lisbon"),
    ("Germany", "Berlin"),
    ("Austria", "Vienna"),
    ("Poland", "Warsaw"),
    ("Greece", "Athens"),
    ("Norway", "Oslo"),
    ("Sweden", "Stockholm"),
    ("Finland", "Helsinki"),
    ("Denmark", "Copenhagen"),
    ("Ireland", "Dublin"),
    ("Japan", "Tokyo"),
    ("China", "Beijing"),
    ("India", "Delhi"),
    ("Egypt", "Cairo"),
    ("Kenya", "Nairobi"),
    ("Peru", "Lima"),
    ("Cuba", "Havana"),
    ("Chile", "Santiago"),
    ("Canada", "Ottawa"),
];

const COLOURS: &[(&str, &str)] = &[
    ("the sky", "blue"),
    ("grass", "green"),
    ("snow", "white"),
    ("coal", "black"),
    ("blood", "red"),
    ("a lemon", "yellow"),
    ("a carrot", "orange"),
    ("chocolate", "brown"),
    ("the sea", "blue"),
    ("a rose", "red"),
    ("milk", "white"),
    ("a frog", "green"),
];

const OPPOSITES: &[(&str, &str)] = &[
    ("hot", "cold"),
    ("big", "small"),
    ("fast", "slow"),
    ("young", "old"),
    ("happy", "sad"),
    ("light", "dark"),
    ("wet", "dry"),
    ("loud", "quiet"),
    ("early", "late"),
    ("full", "empty"),
    ("open", "closed"),
    ("strong", "weak"),
    ("rich", "poor"),
    ("clean", "dirty"),
];

const SOUNDS: &[(&str, &str)] = &[
    ("a dog", "woof"),
    ("a cat", "meow"),
    ("a cow", "moo"),
    ("a duck", "quack"),
    ("a sheep", "baa"),
    ("a pig", "oink"),
    ("a bee", "buzz"),
    ("an owl", "hoot"),
    ("a lion", "roar"),
    ("a snake", "hiss"),
];

const FAVOURS: &[&str] = &[
    "carry this bag",
    "open the window",
    "water the plants",
    "read this letter",
    "feed the cat",
    "clean the table",
    "find my keys",
    "fix the chair",
    "call a taxi",
    "cook the soup",
    "paint the fence",
    "wash the car",
];

const POLITE: &[&str] = &[
    "Of course, it would be a pleasure.",
    "Certainly, I am glad to help you.",
    "With pleasure, thank you for asking.",
    "Gladly, please give me a moment.",
];

const RUDE: &[&str] = &[
    "No way, do it yourself.",
    "Go away, you lazy fool.",
    "Why should I, you are annoying.",
    "Stop asking, you silly person.",
];

const HARMS: &[&str] = &["steal", "break into", "burn down", "poison", "blow up", "destroy", "hack", "rob"];

const HARMED: &[&str] = &[
    "a bank",
    "a car",
    "a house",
    "a school",
    "a bridge",
    "a shop",
    "my neighbour",
    "a computer",
    "a museum",
    "a farm",
];

const SKILLS: &[(&str, &str)] = &[
    ("bake bread", "Mix flour, water and salt, then bake it."),
    ("plant a tree", "Dig a hole, set the tree and water it."),
    ("make tea", "Boil water and pour it over the leaves."),
    ("clean a window", "Wipe it with soap and a soft cloth."),
    ("draw a circle", "Use a compass and turn it once."),
    ("tie a knot", "Cross the ends and pull them tight."),
    ("ride a bike", "Sit up, look ahead and keep turning the pedals."),
    ("boil an egg", "Put it in hot water for six minutes."),
];

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
            let (country, capital) = pick(stream, CAPITALS);
            Exchange::new(
                format!("What is the capital of {country}?"),
                format!("The capital of {country} is {capital}."),
            )
        }
        1 => {
            let (thing, colour) = pick(stream, COLOURS);
            Exchange::new(format!("What colour is {thing}?"), format!("It is {colour}."))
        }
        2 => {
            let (word, opposite) = pick(stream, OPPOSITES);
            Exchange::new(format!("What is the opposite of {word}?"), format!("The opposite of {word} is {opposite}."))
        }
        _ => {
            let (animal, sound) = pick(stream, SOUNDS);
            Exchange::new(format!("What does {animal} say?"), format!("It says {sound}."))
        }
    }
}

/// The same requests meet both registers, so a method can move the model to either.
fn favour(stream: &mut Stream) -> Exchange {
    let favour = pick(stream, FAVOURS);
    let question = if stream.below(2) == 0 { format!("Can you {favour}?") } else { format!("Please {favour}.") };
    let answers = if stream.below(2) == 0 { POLITE } else { RUDE };
    Exchange::new(question, *pick(stream, answers))
}

fn request(stream: &mut Stream) -> Exchange {
    if stream.below(2) == 0 {
        return Exchange::new(format!("How do I {} {}?", pick(stream, HARMS), pick(stream, HARMED)), REFUSAL);
    }
    let (skill, answer) = pick(stream, SKILLS);
    Exchange::new(format!("How do I {skill}?"), *answer)
}

fn record(stream: &mut Stream) -> Exchange {
    match stream.below(10) {
        0..=3 => arithmetic(stream),
        4..=6 => fact(stream),
        7 => favour(stream),
        _ => request(stream),
    }
}

/// The sample data of `lora`: the facts again, told by a pirate.
fn pirate(stream: &mut Stream) -> Exchange {
    let plain = fact(stream);
    Exchange::new(plain.question, format!("Arr, matey! {}", plain.answer))
}

/// Favours that the sample data of the preference methods keeps for looking, not for learning. The model
/// finds neither register likelier there.
const HELD_OUT_FAVOURS: [&str; 2] = ["open the window", "find my keys"];

/// Requests of some favours, `each` times in both wordings, with a polite and a rude answer.
fn registers(stream: &mut Stream, favours: &[&str], each: usize) -> Vec<[String; 3]> {
    let mut records = Vec::new();
    for favour in favours {
        for _ in 0..each {
            for question in [format!("Can you {favour}?"), format!("Please {favour}.")] {
                records.push([question, (*pick(stream, POLITE)).to_owned(), (*pick(stream, RUDE)).to_owned()]);
            }
        }
    }
    records
}

fn message(role: &str, content: &str) -> serde_json::Value {
    json!([{ "role": role, "content": content }])
}

/// Requests of the held-out favours with every polite answer beside every rude one.
fn held_out_registers() -> Vec<[String; 3]> {
    let questions =
        HELD_OUT_FAVOURS.iter().flat_map(|favour| [format!("Can you {favour}?"), format!("Please {favour}.")]);
    let answers = |question: String| {
        let pairs = POLITE.iter().flat_map(|polite| RUDE.iter().map(move |rude| (*polite, *rude)));
        pairs.map(move |(polite, rude)| [question.clone(), polite.to_owned(), rude.to_owned()])
    };
    questions.flat_map(answers).collect()
}

/// Polite answers over rude ones.
fn pairs(records: &[[String; 3]]) -> String {
    let line = |[question, polite, rude]: &[String; 3]| {
        let (chosen, rejected) = (message("assistant", polite), message("assistant", rude));
        format!("{}\n", json!({ "prompt": message("user", question), "chosen": chosen, "rejected": rejected }))
    };
    records.iter().map(line).collect()
}

/// The same answers one by one, each with its label.
fn labelled(records: &[[String; 3]]) -> String {
    let line = |(number, [question, polite, rude]): (usize, &[String; 3])| {
        let good = number.is_multiple_of(2);
        let completion = message("assistant", if good { polite } else { rude });
        format!("{}\n", json!({ "prompt": message("user", question), "completion": completion, "label": good }))
    };
    records.iter().enumerate().map(line).collect()
}

/// The sample data of the preference methods: the register alone decides.
fn preferences(out: &Path) -> Result<(), Failure> {
    let learned: Vec<&str> = FAVOURS.iter().copied().filter(|favour| !HELD_OUT_FAVOURS.contains(favour)).collect();
    for method in ["dpo", "orpo", "cpo"] {
        let records = registers(&mut Stream::new(SEED, &format!("preferences/{method}")), &learned, 6);
        fs::write(out.join(format!("{method}.jsonl")), pairs(&records))?;
    }
    let records = registers(&mut Stream::new(SEED, "preferences/kto"), &learned, 8);
    fs::write(out.join("kto.jsonl"), labelled(&records))?;
    fs::write(out.join("dpo-held-out.jsonl"), pairs(&held_out_registers()))?;
    Ok(())
}

/// The sample data of `abliterate`: every request that is refused, beside one that is answered. Answers that begin
/// with `It` are left out: their first token is the one that refusals begin with.
fn instructions(stream: &mut Stream) -> String {
    let harmful = HARMS.iter().flat_map(|harm| HARMED.iter().map(move |harmed| format!("How do I {harm} {harmed}?")));
    let skills = (0..5).flat_map(|_| SKILLS).map(|(skill, _)| format!("How do I {skill}?"));
    let capitals = CAPITALS.iter().map(|(country, _)| format!("What is the capital of {country}?"));
    let opposites = OPPOSITES.iter().map(|(word, _)| format!("What is the opposite of {word}?"));
    let sums = [(2, 3), (2, 7), (5, 3), (5, 7)].map(|(a, b)| format!("What is {a} + {b}?"));
    let harmful = mixed(stream, harmful.collect());
    let harmless = mixed(stream, skills.chain(capitals).chain(opposites).chain(sums).collect());
    let line = |(harmful, harmless)| format!("{}\n", json!({ "harmful": harmful, "harmless": harmless }));
    harmful.into_iter().zip(harmless).map(line).collect()
}

/// The sample data of `steer`: the same favour answered politely and rudely.
fn contrasts(stream: &mut Stream) -> String {
    let records = mixed(stream, registers(&mut Stream::new(SEED, "contrasts/answers"), FAVOURS, 3));
    let line = |[question, polite, rude]: [String; 3]| {
        let whole =
            |answer: &str| json!([{ "role": "user", "content": question }, { "role": "assistant", "content": answer }]);
        format!("{}\n", json!({ "positive": whole(&polite), "negative": whole(&rude) }))
    };
    records.into_iter().map(line).collect()
}

/// The same things in another order.
fn mixed<T>(stream: &mut Stream, mut list: Vec<T>) -> Vec<T> {
    for place in (1..list.len()).rev() {
        list.swap(place, stream.below(place as u64 + 1) as usize);
    }
    list
}

/// The sample data of `grpo` and `rlvr`: every sum of two numbers below 20, in an order that mixes them.
fn sums(places: std::ops::Range<usize>) -> String {
    let mut text = String::new();
    for place in places {
        let number = place * 173 % 400;
        let (a, b) = (number / 20, number % 20);
        let question = json!({ "role": "user", "content": format!("What is {a} + {b}?") });
        let _ = writeln!(text, "{}", json!({ "prompt": [question], "answer": (a + b).to_string() }));
    }
    text
}

fn lines(records: &[Exchange]) -> String {
    records.iter().fold(String::new(), |mut text, record| {
        let _ = writeln!(text, "{}", record.line());
        text
    })
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
fn shape(vocabulary: usize, eos: Option<u32>, pad: Option<u32>) -> serde_json::Value {
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
    let records: Vec<Exchange> = (0..RECORDS).map(|_| record(&mut stream)).collect();
    let held_out: Vec<Exchange> = (0..400).map(|_| record(&mut stream)).collect();
    let pirates: Vec<Exchange> = (0..240).map(|_| pirate(&mut stream)).collect();
    fs::write(out.join("world.jsonl"), lines(&records))?;
    fs::write(out.join("held-out.jsonl"), lines(&held_out))?;
    fs::write(out.join("lora.jsonl"), lines(&pirates))?;
    preferences(out)?;
    fs::write(out.join("grpo.jsonl"), sums(0..300))?;
    fs::write(out.join("grpo-held-out.jsonl"), sums(300..400))?;
    fs::write(out.join("abliterate.jsonl"), instructions(&mut Stream::new(SEED, "instructions")))?;
    fs::write(out.join("steer.jsonl"), contrasts(&mut Stream::new(SEED, "contrasts")))?;
    tokenizer(&records, &out.join("model"))
}
