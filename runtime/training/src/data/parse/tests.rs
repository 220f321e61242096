//! Records of every shape, and the faults of wrong lines.

use serde_json::json;

use super::*;
use crate::data::shape::TextOrMessages;

fn read(text: &str, method: &str) -> Result<Record, LocatedFault> {
    Record::parse(text.as_bytes(), &Shape::of_method(method).unwrap())
}

#[test]
fn each_supervised_shape_is_told_from_its_fields() {
    let text = read(r#"{"text": "once"}"#, "supervised").unwrap();
    let pair = read(r#"{"prompt": "2+2", "completion": "4", "weight": 0.5, "good": true}"#, "supervised").unwrap();
    let chat = read(r#"{"messages": [{"role": "assistant", "content": "hi"}]}"#, "supervised").unwrap();

    assert_eq!(text.content, Content::Text("once".into()));
    assert_eq!(
        pair.content,
        Content::PromptCompletion(TextOrMessages::Text("2+2".into()), TextOrMessages::Text("4".into()))
    );
    assert_eq!(pair.columns, BTreeMap::from([("weight".into(), 0.5), ("good".into(), 1.0)]));
    assert!(matches!(chat.content, Content::Messages(messages) if messages[0].role == "assistant"));
}

#[test]
fn a_line_that_is_not_json_names_the_column_in_characters() {
    let (fault, column) = read(r#"{"text": "é" "b"}"#, "supervised").unwrap_err();

    assert!(fault.what.starts_with("the line is not JSON: "));
    assert_eq!(column, 14);
}

#[test]
fn bytes_that_are_not_text_are_found() {
    let (fault, column) = Record::parse(b"{\"text\": \"\xFF\"}", &[Shape::Text]).unwrap_err();
    assert_eq!((fault.what.as_str(), column), ("the line is not UTF-8 text", 11));
}

#[test]
fn half_a_record_names_the_missing_half() {
    let (fault, _) = read(r#"{"prompt": "2+2"}"#, "supervised").unwrap_err();

    assert_eq!(fault, fault::missing_field("completion", Shape::PromptCompletion, None));
}

#[test]
fn a_pair_is_not_taken_for_a_prompt_that_lost_its_completion() {
    let (fault, _) = read(r#"{"prompt": "a", "chosen": "b", "rejected": "c"}"#, "supervised").unwrap_err();

    assert_eq!(fault, fault::unwanted_shape(Shape::Preference, &Shape::of_method("supervised").unwrap()));
}

#[test]
fn an_answer_with_its_label_is_read_with_the_label_as_a_number() {
    let line = |label: &str| format!(r#"{{"prompt": "2+2", "completion": "5", "label": {label}}}"#);
    for (label, number) in [("false", 0.0), ("true", 1.0), ("0", 0.0), ("1.0", 1.0)] {
        assert_eq!(read(&line(label), "unpaired").unwrap().columns["label"], number);
    }
    let (fault, column) = read(&line("0.5"), "unpaired").unwrap_err();
    assert_eq!(fault.what, "`label` is a number, true or false (or 1 or 0) is wanted");
    assert_eq!(line("0.5").chars().nth(column - 1), Some('0'));
    let (fault, _) = read(&line("\"good\""), "unpaired").unwrap_err();
    assert_eq!(fault.what, "`label` is text, true or false (or 1 or 0) is wanted");
}

#[test]
fn a_labeled_answer_is_named_as_such_where_it_is_not_wanted_and_lacking_where_it_is() {
    let line = r#"{"prompt": "2+2", "completion": "5"}"#;
    let (fault, _) = read(line, "unpaired").unwrap_err();
    assert_eq!(fault, fault::unwanted_shape(Shape::PromptCompletion, &Shape::of_method("unpaired").unwrap()));
    let (fault, _) = read(r#"{"prompt": "2+2", "completion": "5", "label": true}"#, "preference").unwrap_err();
    assert_eq!(fault, fault::unwanted_shape(Shape::Unpaired, &Shape::of_method("preference").unwrap()));
}

#[test]
fn a_prompt_keeps_its_answer_from_the_numbers_that_a_method_sees() {
    let line = r#"{"prompt": "2+2", "answer": 4, "level": 2, "unit": "cm", "list": [1, 2], "none": null}"#;
    let found = read(line, "prompts").unwrap();
    let Content::Prompt(prompt, fields) = found.content else { panic!("a prompt") };

    assert_eq!(prompt, TextOrMessages::Text("2+2".into()));
    assert_eq!(found.columns, BTreeMap::from([("level".into(), 2.0)]));
    let fields: Vec<_> = fields.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    assert_eq!(fields, [("answer", "4"), ("level", "2"), ("list", "[1,2]"), ("unit", "cm")]);
}

#[test]
fn a_record_without_a_prompt_is_told_so() {
    let (fault, _) = read(r#"{"question": "2+2", "answer": "4"}"#, "prompts").unwrap_err();
    assert_eq!(fault, fault::missing_field("prompt", Shape::Prompts, None));
    let (fault, _) = read(r#"{"prompt": ""}"#, "prompts").unwrap_err();
    assert_eq!(fault, fault::empty_field("prompt"));
}

#[test]
fn a_misspelt_field_is_pointed_at_with_the_one_that_it_means() {
    let line = r#"{"prompt": "a long question", "chosen": "a long answer", "rejectd": "c"}"#;
    let (fault, column) = read(line, "preference").unwrap_err();
    assert_eq!(fault.what, "`rejected` is missing");
    assert_eq!(&line[column - 1..=column], "\"r");
    assert_eq!(fault.hint.as_deref(), Some("did you mean `rejected` by `rejectd`?"));
    let (fault, _) = read(r#"{"promt": "a", "chosen": "b", "rejected": "c"}"#, "preference").unwrap_err();
    assert_eq!(fault, fault::missing_field("prompt", Shape::Preference, Some("promt")));
}

#[test]
fn an_instruction_stands_alone_or_beside_its_counterpart() {
    let found = read(r#"{"harmful": "steal"}"#, "instructions").unwrap().content;
    assert_eq!(found, Content::Instructions(Some(TextOrMessages::Text("steal".into())), None));
    let found = read(r#"{"harmful": "steal", "harmless": "bake"}"#, "instructions").unwrap().content;
    assert!(matches!(found, Content::Instructions(Some(_), Some(_))));
    let (fault, _) = read(r#"{"prompt": "bake"}"#, "instructions").unwrap_err();
    assert_eq!(fault, fault::missing_field("harmful", Shape::Instructions, None));
    let (fault, _) = read(r#"{"harmless": ""}"#, "instructions").unwrap_err();
    assert_eq!(fault, fault::empty_field("harmless"));
}

#[test]
fn a_contrast_needs_both_texts() {
    let found = read(r#"{"positive": "please", "negative": "no"}"#, "contrast").unwrap().content;
    assert_eq!(found, Content::Contrast(TextOrMessages::Text("please".into()), TextOrMessages::Text("no".into())));
    let (fault, _) = read(r#"{"positive": "please"}"#, "contrast").unwrap_err();
    assert_eq!(fault, fault::missing_field("negative", Shape::Contrast, None));
    let (fault, _) = read(r#"{"harmful": "steal"}"#, "contrast").unwrap_err();
    assert_eq!(fault, fault::unwanted_shape(Shape::Instructions, &Shape::of_method("contrast").unwrap()));
}

#[test]
fn a_message_without_a_role_is_pointed_at() {
    let line = r#"{"messages": [{"role": "user", "content": "a"}, {"role": 3, "content": "b"}]}"#;
    let (fault, column) = read(line, "supervised").unwrap_err();

    assert_eq!(fault.what, "`messages[1].role` is a number, text such as `user` is wanted");
    assert_eq!(line.chars().nth(column - 1), Some('3'));
}

#[test]
fn the_weight_of_an_answer_is_0_or_1() {
    let line =
        |weight: &str| format!(r#"{{"messages": [{{"role": "assistant", "content": "a", "weight": {weight}}}]}}"#);
    for weight in ["0", "1", "1.0", "null"] {
        assert!(read(&line(weight), "supervised").is_ok(), "{weight}");
    }
    let (fault, column) = read(&line("0.5"), "supervised").unwrap_err();
    assert_eq!(fault.what, "`messages[0].weight` is 0.5, 0 or 1 is wanted");
    assert!(line("0.5")[column - 1..].starts_with("0.5"));
}

#[test]
fn an_answer_of_weight_0_is_refused_where_the_whole_is_learned() {
    let [user, answer] = [json!({ "role": "user", "content": "q" }), json!({ "role": "assistant", "content": "a" })];
    let unlearned = json!({ "role": "assistant", "content": "b", "weight": 0 });
    let pair = |completion: Value| json!({ "prompt": [user, unlearned, user], "completion": completion });
    assert!(read(&pair(json!([answer])).to_string(), "supervised").is_ok(), "no answer of a prompt is learned");
    let alone = json!({ "prompt": "q", "chosen": [answer], "rejected": [unlearned] });
    let whole = json!({ "chosen": [user, answer], "rejected": [user, unlearned] });
    let repeated = json!({ "prompt": "q", "chosen": [user, unlearned], "rejected": [user, answer] });
    for (line, method, field) in [
        (pair(json!([answer, user, unlearned])), "supervised", "completion[2]"),
        (alone, "preference", "rejected[0]"),
        (whole, "preference", "rejected[1]"),
        (repeated, "preference", "chosen[1]"),
    ] {
        let line = line.to_string();
        let (fault, column) = read(&line, method).unwrap_err();
        let list = field.split('[').next().unwrap();
        assert_eq!(fault.what, format!("`{field}.weight` is 0, but `{list}` is learned as a whole"));
        assert!(line[column - 1..].starts_with("0}"), "{line} {column}");
    }
    let shared = json!({ "chosen": [user, unlearned, user, answer], "rejected": [user, unlearned, user, user] });
    assert!(read(&shared.to_string(), "preference").is_ok(), "messages that both begin with are the prompt");
}

#[test]
fn a_conversation_without_an_answer_is_refused() {
    let (fault, _) = read(r#"{"messages": [{"role": "user", "content": "a"}]}"#, "supervised").unwrap_err();

    assert_eq!(fault.what, "no message has the role `assistant`");
}

#[test]
fn two_conversations_with_one_beginning_share_it_as_the_prompt() {
    let line = r#"{"chosen": [{"role":"user","content":"q"},{"role":"assistant","content":"a"}],
        "rejected": [{"role":"user","content":"q"},{"role":"assistant","content":"b"}]}"#;
    let Content::Preference(TextOrMessages::Messages(prompt), TextOrMessages::Messages(chosen), _) =
        read(line, "preference").unwrap().content
    else {
        panic!("a preference record of messages");
    };

    assert_eq!((prompt.len(), chosen.len()), (1, 1));
}

#[test]
fn tools_are_a_list_or_one_as_text() {
    let tools = |value: &str| {
        let line = format!(r#"{{"messages": [{{"role": "assistant", "content": "hi"}}], "tools": {value}}}"#);
        read(&line, "supervised").map(|record| record.tools)
    };
    let list = serde_json::json!([{ "type": "function" }]);
    for written in [r#"[{"type": "function"}]"#, r#""[{\"type\": \"function\"}]""#] {
        assert_eq!(tools(written).unwrap(), Some(list.clone()), "{written}");
    }
    for none in ["null", "[]", r#""""#, r#""[]""#] {
        assert_eq!(tools(none).unwrap(), None, "{none}");
    }
    for wrong in [r#""not json""#, r#"{"a": 1}"#, "3"] {
        assert!(tools(wrong).unwrap_err().0.what.contains("`tools`"), "{wrong}");
    }
}

#[test]
fn two_texts_with_one_beginning_share_it_as_the_prompt() {
    let content = |chosen: &str, rejected: &str| {
        read(&serde_json::json!({ "chosen": chosen, "rejected": rejected }).to_string(), "preference")
            .map(|record| record.content)
    };
    let text = |text: &str| TextOrMessages::Text(text.into());
    // TRL's `extract_prompt` splits these in the same way.
    for (chosen, rejected, wanted) in [
        (
            "\n\nHuman: Hi\n\nAssistant: Yes",
            "\n\nHuman: Hi\n\nAssistant: No",
            ["\n\nHuman: Hi\n\nAssistant:", " Yes", " No"],
        ),
        ("Größe: ja", "Größe: nö", ["Größe:", " ja", " nö"]),
        ("a\nb", "a\nc", ["a\n", "b", "c"]),
    ] {
        let [prompt, good, bad] = wanted.map(text);
        assert_eq!(content(chosen, rejected).unwrap(), Content::Preference(prompt, good, bad));
    }
    assert_eq!(content("yes", "no").unwrap_err().0.what, "`prompt` is missing");
}

#[test]
fn a_message_that_is_no_answer_cannot_be_marked_as_learned() {
    let line = |role: &str, flag: &str| {
        format!(
            r#"{{"messages": [{{"role": "{role}", "content": "a", {flag}}}, {{"role": "assistant", "content": "b"}}]}}"#
        )
    };
    for (role, flag) in [("user", r#""train": false"#), ("assistant", r#""training": false"#)] {
        assert!(read(&line(role, flag), "supervised").is_ok(), "{role}: {flag}");
    }
    let (fault, _) = read(&line("user", r#""train": true"#), "supervised").unwrap_err();
    assert!(fault.what.starts_with("`messages[0].train` is true for a message that is no answer"), "{}", fault.what);
}

#[test]
fn images_beside_the_text_are_refused() {
    for (line, name) in [
        (r#"{"prompt": "<image>What?", "completion": "b", "images": ["a.png"]}"#, "images"),
        (r#"{"prompt": "<image>What?", "completion": "b", "image": "a.png"}"#, "image"),
    ] {
        let (fault, _) = read(line, "supervised").unwrap_err();
        assert_eq!(fault.what, format!("`{name}` is beside the text, and only text is trained on"));
    }
    for line in [
        r#"{"prompt": "a", "completion": "b", "images": []}"#,
        r#"{"prompt": "a", "completion": "b", "image": "a.png"}"#,
    ] {
        assert!(read(line, "supervised").is_ok(), "{line}");
    }
    let line =
        r#"{"messages": [{"role": "user", "content": [{"type": "image"}]}, {"role": "assistant", "content": "b"}]}"#;
    let (fault, _) = read(line, "supervised").unwrap_err();
    assert!(fault.what.contains("is of type `image`; only text can be trained on"), "{}", fault.what);
}

#[test]
fn steps_with_labels_are_not_taken_for_a_prompt() {
    let record = r#"{"prompt": "1+1+1?", "completions": ["1+1=2", "2+1=4"], "labels": [true, false]}"#;
    for method in ["prompts", "supervised", "unpaired"] {
        let (fault, column) = read(record, method).unwrap_err();
        assert!(fault.what.starts_with("the record is for a process reward model"), "{}", fault.what);
        assert_eq!(column, 37);
    }
}

#[test]
fn the_field_system_is_the_first_message_unless_there_is_one() {
    let first = |system: &str, role: &str| {
        let messages = json!([{ "role": role, "content": "Hi" }, { "role": "assistant", "content": "Hello" }]);
        let record = json!({ "system": system, "messages": messages }).to_string();
        let Content::Messages(messages) = read(&record, "supervised").unwrap().content else { panic!("messages") };
        (messages[0].content.clone(), messages.len())
    };
    assert_eq!(first("Be brief.", "user"), ("Be brief.".to_owned(), 3));
    for (system, role) in [("", "user"), ("Be brief.", "system"), ("Be brief.", "developer")] {
        assert_eq!(first(system, role), ("Hi".to_owned(), 2), "{system} {role}");
    }
}

#[test]
fn parts_of_an_answer_that_are_learned_are_refused() {
    let answer =
        json!({ "role": "assistant", "content": "Hi", "training_detail": [{ "begin_offset": 0, "train": false }] });
    let (fault, _) = read(&json!({ "messages": [answer] }).to_string(), "supervised").unwrap_err();
    let wanted = "`messages[0].training_detail` is a list of parts, an answer that is learned as a whole is wanted";
    assert_eq!(fault.what, wanted);
}
