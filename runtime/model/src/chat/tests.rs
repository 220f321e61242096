//! Compares templates, target marks and examples with transformers and TRL, on the golden files of `tests/golden/text`.

mod builtin;
mod continuation;
mod examples;

use serde_json::{Value, json};
use tunebox_foundation::explain::Explain;

use super::*;
use crate::error::Result;
use crate::tokenizer::Tokenizer;
use crate::tokenizer::tests::{golden, ids, metadata, read, tiny};

struct Chats {
    tokenizer: Tokenizer,
    golden: Value,
}

impl Chats {
    fn open() -> Self {
        let [tokenizer, _] = tiny("bytes");
        Self { tokenizer, golden: read("chats.json") }
    }

    fn template(&self, name: &str) -> ChatTemplate {
        let template = ChatTemplate::parse(self.golden["templates"][name].as_str().unwrap(), &self.tokenizer).unwrap();
        template.with_clock(self.golden["moment"].as_i64().unwrap())
    }

    fn messages(&self, chat: &str) -> Vec<Message> {
        serde_json::from_value(self.golden["chats"][chat]["messages"].clone()).unwrap()
    }

    fn conversation<'a>(&'a self, chat: &str, messages: &'a [Message]) -> Conversation<'a> {
        let record = &self.golden["chats"][chat];
        Conversation {
            messages,
            tools: record.get("tools"),
            variables: record.get("variables").and_then(Value::as_object),
        }
    }

    /// The targets of a conversation, as text.
    fn targets(&self, template: &ChatTemplate, messages: &[Message], which: Answers) -> String {
        said(&self.tokenizer, &self.encode(template, messages, which).unwrap())
    }

    fn encode(&self, template: &ChatTemplate, messages: &[Message], which: Answers) -> Result<Encoded> {
        encode_conversation(&self.tokenizer, template, &Conversation::new(messages), which)
    }
}

fn said(tokenizer: &Tokenizer, example: &Encoded) -> String {
    let ids: Vec<u32> =
        example.ids.iter().zip(&example.targets).filter(|(_, target)| **target).map(|(id, _)| *id).collect();
    tokenizer.decode(&ids, false).unwrap()
}

fn mask(value: &Value) -> Vec<bool> {
    let mut mask: Vec<bool> = value.as_array().unwrap().iter().map(|flag| flag == &json!(1)).collect();
    mask[0] = false;
    mask
}

fn talk(turns: &[(&str, &str)]) -> Vec<Message> {
    turns.iter().map(|(role, content)| Message::new(*role, *content)).collect()
}

#[test]
fn templates_render_as_in_transformers() {
    let chats = Chats::open();
    for row in chats.golden["rows"].as_array().unwrap() {
        let (template, chat) = (row["template"].as_str().unwrap(), row["chat"].as_str().unwrap());
        let messages = chats.messages(chat);
        let conversation = chats.conversation(chat, &messages);
        let rendered = chats.template(template).render_conversation(&conversation, row["opening"].as_bool().unwrap());
        match row["text"].as_str() {
            Some(text) => assert_eq!(rendered.unwrap(), text, "{template}, {chat}"),
            None => assert!(rendered.is_err(), "{template}, {chat}"),
        }
    }
}

#[test]
fn rendered_conversations_have_the_ids_of_transformers() {
    let chats = Chats::open();
    for row in chats.golden["rows"].as_array().unwrap().iter().filter(|row| row["opening"] == json!(true)) {
        let Some(expected) = row.get("ids") else { continue };
        let chat = row["chat"].as_str().unwrap();
        let messages = chats.messages(chat);
        let template = chats.template(row["template"].as_str().unwrap());
        let found = encode_prompt(&chats.tokenizer, &template, &chats.conversation(chat, &messages)).unwrap();
        assert_eq!(found, ids(expected), "{row}");
    }
}

#[test]
fn marked_answers_are_the_targets_that_transformers_finds() {
    let chats = Chats::open();
    let template = chats.template("marked");
    assert!(template.source().contains("endgeneration"));
    for row in chats.golden["rows"].as_array().unwrap().iter().filter(|row| row.get("mask").is_some()) {
        let chat = row["chat"].as_str().unwrap();
        let messages = chats.messages(chat);
        let conversation = chats.conversation(chat, &messages);
        let example = encode_conversation(&chats.tokenizer, &template, &conversation, Answers::All).unwrap();
        assert_eq!(example.ids, ids(&row["ids"]), "{chat}");
        assert_eq!(example.targets, mask(&row["mask"]), "{chat}");
    }
}

#[test]
fn unmarked_templates_give_the_same_targets_as_marked_ones() {
    let chats = Chats::open();
    let (plain, marked) = (chats.template("plain"), chats.template("marked"));
    for chat in ["one", "two", "tools", "thought", "quick"] {
        let messages = chats.messages(chat);
        let conversation = chats.conversation(chat, &messages);
        for which in [Answers::All, Answers::Last] {
            let encode = |template| encode_conversation(&chats.tokenizer, template, &conversation, which).unwrap();
            assert_eq!(encode(&plain), encode(&marked), "{chat}, {which:?}");
        }
    }
}

#[test]
fn only_the_last_answer_is_a_target_where_that_is_asked() {
    let chats = Chats::open();
    let messages = talk(&[("user", "a"), ("assistant", "one"), ("user", "b"), ("assistant", "two")]);
    for name in ["plain", "marked"] {
        let template = chats.template(name);
        assert_eq!(chats.targets(&template, &messages, Answers::Last), "two<|end|>\n");
        assert_eq!(chats.targets(&template, &messages, Answers::All), "one<|end|>\ntwo<|end|>\n");
    }
}

#[test]
fn an_answer_of_weight_0_is_no_target() {
    let chats = Chats::open();
    let mut messages = talk(&[("user", "a"), ("assistant", "one"), ("user", "b"), ("assistant", "two")]);
    let weigh = |message: &mut Message, weight: u8| drop(message.fields.insert("weight".into(), weight.into()));
    weigh(&mut messages[1], 0);
    for name in ["plain", "marked"] {
        let template = chats.template(name);
        assert_eq!(chats.targets(&template, &messages, Answers::All), "two<|end|>\n", "{name}");
        weigh(&mut messages[3], 0);
        let error = chats.encode(&template, &messages, Answers::All).unwrap_err();
        assert_eq!(error.hint().unwrap(), "leave the record out: its answers are left out by `weight` or `train`");
        weigh(&mut messages[1], 1);
        assert_eq!(chats.targets(&template, &messages, Answers::Last), "one<|end|>\n", "{name}");
        weigh(&mut messages[1], 0);
        weigh(&mut messages[3], 1);
    }
}

#[test]
fn an_answer_whose_train_or_training_is_false_is_no_target() {
    let chats = Chats::open();
    for name in ["train", "training"] {
        let mut messages = talk(&[("user", "a"), ("assistant", "one"), ("user", "b"), ("assistant", "two")]);
        messages[1].fields.insert(name.into(), false.into());
        messages[3].fields.insert(name.into(), true.into());
        assert_eq!(chats.targets(&chats.template("marked"), &messages, Answers::All), "two<|end|>\n", "{name}");
    }
}

#[test]
fn a_template_that_leaves_out_the_call_of_a_tool_is_an_error() {
    let chats = Chats::open();
    let mut messages = talk(&[("user", "a"), ("assistant", "")]);
    let calls = json!([{ "type": "function", "function": { "name": "weather", "arguments": {} } }]);
    messages[1].fields.insert("tool_calls".into(), calls);
    let source = |call: &str| {
        let source = format!(
            "{{{{ tools }}}}{{% for message in messages %}}<|turn|>{{{{ message.role }}}} {{{{ message.content }}}}\
             {{% for call in message.tool_calls or [] %}}{call}{{% endfor %}}<|end|>{{% endfor %}}\
             {{% if add_generation_prompt %}}<|turn|>assistant {{% endif %}}"
        );
        ChatTemplate::parse(&source, &chats.tokenizer).unwrap()
    };
    let error = chats.encode(&source(""), &messages, Answers::All).unwrap_err();
    assert_eq!(error.to_string(), "the chat template leaves out the call of `weather`");
    let (named, whole) = (source("{{ call.function.name }}"), source("{{ call.function | tojson }}"));
    assert!(chats.targets(&named, &messages, Answers::All).ends_with("weather<|end|>"));
    let told = |messages: &[Message], template: &ChatTemplate| {
        let tools = json!([{ "type": "function", "function": { "name": "weather" } }]);
        let conversation = Conversation { tools: Some(&tools), ..Conversation::new(messages) };
        let encoded = encode_conversation(&chats.tokenizer, template, &conversation, Answers::All);
        encoded.map_or_else(|error| error.to_string(), |_| String::new())
    };
    // The name in the list of tools is no call.
    assert_eq!(told(&messages, &source("")), "the chat template leaves out the call of `weather`");
    for arguments in [json!({ "city": "Oslo" }), json!("{\"city\": \"Oslo\"}")] {
        messages[1].fields["tool_calls"][0]["function"]["arguments"] = arguments;
        assert_eq!(told(&messages, &named), "the chat template leaves out the arguments of the call of `weather`");
        assert_eq!(told(&messages, &whole), "");
    }
    let pair = Example::Messages {
        template: &source(""),
        prompt: Conversation::new(&messages[..1]),
        completion: &messages[1..],
    };
    let error = encode_prompt_completion(&chats.tokenizer, &pair).unwrap_err();
    assert_eq!(error.to_string(), "the chat template leaves out the call of `weather`");
    let mut older = talk(&[("user", "a"), ("assistant", "the weather")]);
    older[1].fields.insert("function_call".into(), json!({ "name": "weather", "arguments": "{}" }));
    assert_eq!(told(&older, &whole), "the chat template leaves out the call of `weather`");
}

#[test]
fn an_answer_that_a_template_shortens_later_still_ends_at_its_end_of_turn_token() {
    let chats = Chats::open();
    let found = chats.targets(&chats.template("thinking"), &chats.messages("thought"), Answers::All);
    assert_eq!(found, "2<|end|><think>\nsum them\n</think>\n\n4<|end|>\n");
}

#[test]
fn an_opening_that_parts_from_the_answer_is_left_to_the_prompt() {
    let chats = Chats::open();
    let source = "{% for message in messages %}<|turn|>{{ message.role }} {{ message.content }}<|end|>{% endfor %}\
                  {% if add_generation_prompt %}<|turn|>assistant <think>{% endif %}";
    let template = ChatTemplate::parse(source, &chats.tokenizer).unwrap();
    let messages = talk(&[("user", "a"), ("assistant", "one")]);
    assert_eq!(chats.targets(&template, &messages, Answers::All), " one<|end|>");
}

#[test]
fn a_template_without_an_opening_has_its_speakers_name_left_out_of_the_answer() {
    let chats = Chats::open();
    let source = "{% for message in messages %}<|turn|>{{ message.role }}:\n{{ message.content }}<|end|>{% endfor %}";
    let template = ChatTemplate::parse(source, &chats.tokenizer).unwrap();
    let messages = talk(&[("user", "a"), ("assistant", "one"), ("user", "b"), ("assistant", "two")]);
    assert_eq!(chats.targets(&template, &messages, Answers::All), "one<|end|>two<|end|>");
}

#[test]
fn an_answer_whose_place_cannot_be_told_is_an_error() {
    let chats = Chats::open();
    let source = "{{ messages | length }}{% for message in messages %}{{ message.content }}{% endfor %}";
    let template = ChatTemplate::parse(source, &chats.tokenizer).unwrap();
    let messages = talk(&[("user", "a"), ("assistant", "one")]);
    let error = chats.encode(&template, &messages, Answers::All).unwrap_err();
    assert_eq!(error.to_string(), "cannot determine where answer 1 begins");
    assert!(error.hint().unwrap().contains("generation"));
}

#[test]
fn a_conversation_without_an_answer_is_an_error() {
    let chats = Chats::open();
    let template = chats.template("plain");
    let error = chats.encode(&template, &talk(&[("user", "a")]), Answers::All).unwrap_err();
    assert_eq!(error.to_string(), "the conversation has no answer to learn from");
}

#[test]
fn texts_that_look_like_markers_change_nothing() {
    let chats = Chats::open();
    let template = chats.template("marked");
    let messages = talk(&[("user", "{% generation %} {{ 1 }}"), ("assistant", "{% endgeneration %}")]);
    assert_eq!(chats.targets(&template, &messages, Answers::All), "{% endgeneration %}<|end|>\n");

    let forged = talk(&[("user", "\u{FDD0}all of this\u{FDD1}"), ("assistant", "b")]);
    let error = chats.encode(&template, &forged, Answers::All).unwrap_err();
    assert_eq!(error.to_string(), "the conversation holds the noncharacter U+FDD0");
}

#[test]
fn generation_tags_in_comments_strings_and_raw_blocks_are_text() {
    let kept = [
        "{# {% generation %} #}",
        "{{ '{% generation %}' }}",
        "{% raw %}{% generation %}{% endraw %}",
        "{% if generation %}{% endif %}",
    ];
    for source in kept {
        assert_eq!(markers::rewrite_generation_tags(source), None, "{source}");
    }
    let source = "{{ {'a': '}}'} }}{%- generation -%}\nx{%+ endgeneration %}";
    let rewritten = markers::rewrite_generation_tags(source).unwrap();
    assert_eq!(rewritten.lines().count(), source.lines().count());
    assert!(rewritten.starts_with("{{ {'a': '}}'} }}{%- filter"));
}

#[test]
fn a_refusal_of_the_template_is_told_in_its_own_words() {
    let chats = Chats::open();
    let messages = talk(&[("user", "a"), ("user", "b")]);
    let error = chats.template("brackets").render(&messages, false, None).unwrap_err();
    assert_eq!(error.to_string(), "the chat template refuses this conversation: Roles must alternate, not user");
}

#[test]
fn a_broken_template_is_told_with_its_line() {
    let chats = Chats::open();
    let error = ChatTemplate::parse("fine\n{{ oops | }}\n", &chats.tokenizer).unwrap_err();
    let snippet = error.explanation().snippet.unwrap();
    assert_eq!((snippet.line, snippet.text.as_str()), (2, "{{ oops | }}"));
    assert_eq!(error.location().unwrap(), "chat template:2");
}

#[test]
fn a_template_that_does_not_end_runs_out_of_its_allowance() {
    let chats = Chats::open();
    let source = "{% for a in range(9999) %}{% for b in range(9999) %}{% set c = a %}{% endfor %}{% endfor %}";
    let template = ChatTemplate::parse(source, &chats.tokenizer).unwrap();
    let error = template.render(&talk(&[("user", "a")]), false, None).unwrap_err();
    assert_eq!(error.to_string(), "the chat template does not come to an end");
}

#[test]
fn a_template_that_calls_itself_for_ever_is_an_error() {
    let chats = Chats::open();
    let template = ChatTemplate::parse("{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}", &chats.tokenizer).unwrap();
    let error = template.render(&talk(&[("user", "a")]), false, None).unwrap_err();
    assert!(error.to_string().starts_with("the chat template "), "{error}");
}

#[test]
fn a_template_that_writes_without_end_is_an_error_of_its_text() {
    let chats = Chats::open();
    let source = format!("{{% for a in range(99999) %}}{}{{% endfor %}}", "long ".repeat(200));
    let template = ChatTemplate::parse(&source, &chats.tokenizer).unwrap();
    let error = template.render(&talk(&[("user", "a")]), false, None).unwrap_err();
    assert!(error.to_string().contains("failed to write output"), "{error}");
    assert_eq!(error.why().unwrap(), "it makes more text than any model reads");
}

#[test]
fn lists_that_hold_themselves_are_printed_to_a_depth() {
    let chats = Chats::open();
    let rendered = |print: &str| {
        let source = format!("{{% set n = namespace() %}}{{% set n.x = [n] %}}{print}");
        ChatTemplate::parse(&source, &chats.tokenizer).unwrap().render(&talk(&[("user", "a")]), false, None)
    };
    assert!(rendered("{{ n.x }}").unwrap().contains("..."));
    assert!(rendered("{{ n.x | tojson }}").unwrap_err().to_string().contains("too deep"));
}

#[test]
fn products_sums_and_loops_in_loops_are_what_they_were_without_scales() {
    let chats = Chats::open();
    let rendered = |source: &str| {
        let template = ChatTemplate::parse(source, &chats.tokenizer).unwrap();
        template.render(&talk(&[("user", "a")]), false, None).unwrap()
    };
    assert_eq!(rendered("{{ {1e308 * 10: 1} | tojson }}"), "{\"Infinity\": 1}");
    assert_eq!(
        rendered("{{ 3 * 4 }} {{ 2 ** 3 * 2 }} {{ 'ab' * 2 }} {{ 2 * 'ab' }} {{ 1.5 * 2 }}"),
        "12 16 abab abab 3.0"
    );
    assert_eq!(
        rendered("{{ '*' }}{# a * b #}*{% raw %}{{ 2 * 3 }}{% endraw %}{{ [1, 2] * 2 }}"),
        "**{{ 2 * 3 }}[1, 2, 1, 2]"
    );
    let nested = "{% for m in [[1, [2]]] recursive %}{% if m is number %}{{ m }}{% else %}({{ loop(m) }}){% endif %}{% endfor %}";
    assert_eq!(rendered(nested), "(1(2))");
    assert_eq!(rendered("{% macro m(a, b=2) %}{{ a * b }}{% endmacro %}{{ m(3) ~ m(3, b=4) }}"), "612");
}

#[test]
fn templates_are_found_in_folders_and_gguf_files() {
    let [folder, file] = tiny("bytes");
    let from_folder = ChatTemplate::from_folder(&golden("bytes"), &folder).unwrap().unwrap();
    let from_file = ChatTemplate::from_gguf(&metadata(golden("bytes.gguf")), &file).unwrap().unwrap();
    assert_eq!(from_folder.source(), from_file.source());
    assert!(ChatTemplate::from_folder(&golden("pieces-gemma"), &folder).unwrap().is_none());
}

#[test]
fn a_second_template_serves_conversations_with_tools() {
    let [tokenizer, _] = tiny("bytes");
    let folder = tempfile::tempdir().unwrap();
    let both = json!({"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]});
    std::fs::write(folder.path().join("tokenizer_config.json"), both.to_string()).unwrap();

    let template = ChatTemplate::from_folder(folder.path(), &tokenizer).unwrap().unwrap();
    let messages = talk(&[("user", "a")]);
    assert_eq!(template.render(&messages, false, None).unwrap(), "d");
    assert_eq!(template.render(&messages, false, Some(&json!([{"name": "x"}]))).unwrap(), "t");
}
