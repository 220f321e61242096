//! Layouts of other tools, and columns named by `data.map`.

use serde_json::json;

use super::super::parse::find_layout;
use super::super::shape::{Content, Record, TextOrMessages};
use super::*;

/// Converts a record for a method with this shape, by the layout that it has. Returns the layout in words.
fn convert(record: &Value, method: &str, has_template: bool) -> (Option<String>, Record) {
    let (text, wanted) = (record.to_string(), Shape::of_method(method).unwrap());
    let (shape, layout) = find_layout(text.as_bytes(), &wanted, &Conversion::default(), has_template).unwrap();
    let conversion = Conversion { layout, ..Conversion::default() };
    let read = Record::parse_converted(text.as_bytes(), &[shape], &conversion).unwrap();
    (conversion.layout.map(|layout| layout.describe()), read)
}

/// The roles and texts of messages.
fn turns(turns: &TextOrMessages) -> Vec<(&str, &str)> {
    let TextOrMessages::Messages(messages) = turns else { panic!("messages") };
    messages.iter().map(|message| (message.role.as_str(), message.content.as_str())).collect()
}

fn text(text: &str) -> TextOrMessages {
    TextOrMessages::Text(text.into())
}

#[test]
fn share_gpt_becomes_messages_with_the_roles_of_its_speakers() {
    let record = json!({ "id": 7, "system": "Be brief.", "conversations": [
        { "from": "human", "value": "Hi" }, { "from": "gpt", "value": "Hello" },
    ]});
    let (layout, read) = convert(&record, "supervised", true);
    assert_eq!(layout.unwrap(), "ShareGPT layout (conversations) read as messages");
    let Content::Messages(messages) = read.content else { panic!("messages") };
    let messages = TextOrMessages::Messages(messages);
    assert_eq!(turns(&messages), [("system", "Be brief."), ("user", "Hi"), ("assistant", "Hello")]);
    // Roles and texts under the usual names, in a column of another name.
    let record = json!({ "conversation": [{ "role": "assistant", "content": "Hello" }] });
    let (layout, _) = convert(&record, "supervised", true);
    assert_eq!(layout.unwrap(), "conversation read as messages");
}

#[test]
fn a_function_call_of_share_gpt_becomes_a_call_of_a_tool() {
    let record = |call: &str| {
        json!({ "tools": r#"[{"name": "weather", "parameters": {}}]"#, "conversations": [
            { "from": "human", "value": "Rain?" },
            { "from": "function_call", "value": call },
            { "from": "observation", "value": "no" },
            { "from": "gpt", "value": "No." },
        ]})
    };
    let call = r#"{"name": "weather", "arguments": {"city": "Ulm"}}"#;
    let function = json!({ "type": "function", "function": { "name": "weather", "arguments": { "city": "Ulm" } } });
    for (call, wanted) in
        [(call.to_owned(), vec![function.clone()]), (format!("[{call}, {call}]"), vec![function.clone(); 2])]
    {
        let (_, read) = convert(&record(&call), "supervised", true);
        let Content::Messages(messages) = read.content else { panic!("messages") };
        assert_eq!((messages[1].role.as_str(), messages[2].role.as_str()), ("assistant", "tool"));
        assert_eq!(messages[1].fields["tool_calls"], json!(wanted));
        let tool = json!([{ "type": "function", "function": { "name": "weather", "parameters": {} } }]);
        assert_eq!(read.tools, Some(tool), "in the form that templates expect");
    }
    for call in ["weather(Ulm)", "[]", r#"{"name": "weather"}"#] {
        let wanted = Shape::of_method("supervised").unwrap();
        let layout = Layout::find(record(call).as_object().unwrap(), &wanted, true);
        let conversion = Conversion { layout, ..Conversion::default() };
        let read = Record::parse_converted(record(call).to_string().as_bytes(), &wanted, &conversion);
        assert_eq!(read.unwrap_err().0.what, "`conversations[1].value` is no call of a function", "{call}");
    }
}

#[test]
fn the_history_of_alpaca_becomes_turns_that_are_learned_as_well() {
    let record = |history: Value| {
        let system = "Be brief.";
        json!({ "instruction": "And", "input": "Hund?", "output": "dog", "system": system, "history": history })
    };
    let pairs = json!([["Katze?", "cat"]]);
    for history in [pairs.clone(), pairs.to_string().into()] {
        let (layout, read) = convert(&record(history), "supervised", true);
        let told = "Alpaca layout (instruction, input, history, output) read as messages";
        assert_eq!(layout.unwrap(), told);
        let Content::Messages(messages) = read.content else { panic!("messages") };
        let wanted = [
            ("system", "Be brief."),
            ("user", "Katze?"),
            ("assistant", "cat"),
            ("user", "And\n\nHund?"),
            ("assistant", "dog"),
        ];
        assert_eq!(turns(&TextOrMessages::Messages(messages)), wanted);
    }
    assert!(
        matches!(convert(&record(json!([])), "supervised", true).1.content, Content::Messages(list) if list.len() == 3)
    );
    // Without a chat template, turns are messages, which a model without one refuses; no turns are text.
    assert!(matches!(convert(&record(pairs), "supervised", false).1.content, Content::Messages(_)));
    let read = convert(&record(Value::Null), "supervised", false).1.content;
    assert_eq!(read, Content::PromptCompletion(text("Be brief.\n\nAnd\n\nHund?\n\n"), text("dog")));
}

#[test]
fn a_history_that_cannot_be_learned_or_read_is_a_fault() {
    let wanted = Shape::of_method("supervised").unwrap();
    let fault = |first: Value, record: Value| {
        let layout = Layout::find(first.as_object().unwrap(), &wanted, true);
        let shape = layout.as_ref().unwrap().shape();
        let conversion = Conversion { layout, ..Conversion::default() };
        Record::parse_converted(record.to_string().as_bytes(), &[shape], &conversion).unwrap_err().0.what
    };
    let record = json!({ "instruction": "a", "output": "b", "history": [["c", "d"]] });
    let told = fault(json!({ "instruction": "a", "output": "b" }), record.clone());
    assert_eq!(told, "the record has a `history`, the first record of the file has none");
    let wrong = json!({ "instruction": "a", "output": "b", "history": ["c", "d"] });
    assert_eq!(
        fault(record.clone(), wrong),
        "`history` is a list, a list of pairs of a question and its answer is wanted"
    );
    let wrong = json!({ "instruction": "a", "output": 7, "history": [] });
    assert_eq!(fault(record, wrong), "`output` is a number, text is wanted");
}

#[test]
fn alpaca_becomes_a_prompt_with_its_completion() {
    let record = json!({ "instruction": "Translate.", "input": "Hund", "output": "dog" });
    let (layout, read) = convert(&record, "supervised", false);
    assert_eq!(layout.unwrap(), "Alpaca layout (instruction, input, output) read as prompt and completion");
    assert_eq!(read.content, Content::PromptCompletion(text("Translate.\n\nHund\n\n"), text("dog")));

    let record = json!({ "instruction": "Count.", "input": "", "output": "1" });
    let (layout, read) = convert(&record, "supervised", true);
    let told = "Alpaca layout (instruction, input, output) read as prompt and completion, as turns of a chat";
    assert_eq!(layout.unwrap(), told);
    let Content::PromptCompletion(prompt, completion) = read.content else { panic!("a pair") };
    assert_eq!((turns(&prompt), turns(&completion)), (vec![("user", "Count.")], vec![("assistant", "1")]));
}

#[test]
fn questions_with_answers_are_read_as_the_method_needs_them() {
    let record = json!({ "question": "2+2?", "answer": "4" });
    let (layout, read) = convert(&record, "supervised", false);
    assert_eq!(layout.unwrap(), "question, answer read as prompt and completion");
    assert_eq!(read.content, Content::PromptCompletion(text("2+2?\n\n"), text("4")));
    let (_, read) = convert(&record, "prompts", true);
    let Content::Prompt(prompt, fields) = read.content else { panic!("a prompt") };
    assert_eq!((turns(&prompt), fields["answer"].as_str()), (vec![("user", "2+2?")], "4"));
    let (layout, _) = convert(&json!({ "prompt": "a", "response": "b" }), "supervised", false);
    assert_eq!(layout.unwrap(), "prompt, response read as prompt and completion");
    let labeled = json!({ "prompt": "a", "response": "b", "label": true });
    let (_, read) = convert(&labeled, "unpaired", false);
    assert_eq!((read.columns["label"], read.content), (1.0, Content::PromptCompletion(text("a\n\n"), text("b"))));
}

#[test]
fn a_conversation_with_a_label_is_a_prompt_and_the_last_answer() {
    let messages = json!([
        { "role": "user", "content": "a" }, { "role": "assistant", "content": "b" },
        { "role": "user", "content": "c" }, { "role": "assistant", "content": "d" },
    ]);
    let share_gpt = json!([{ "from": "human", "value": "c" }, { "from": "gpt", "value": "d" }]);
    for (record, wanted, before) in [
        (json!({ "messages": messages, "label": false }), "messages, label", 3),
        (json!({ "conversations": share_gpt, "kto_tag": 0 }), "ShareGPT layout (conversations, kto_tag)", 1),
    ] {
        let (layout, read) = convert(&record, "unpaired", true);
        assert_eq!(layout.unwrap(), format!("{wanted} read as prompt, completion and label"));
        assert_eq!(read.columns["label"], 0.0);
        let Content::PromptCompletion(prompt, completion) = read.content else { panic!("a pair") };
        assert_eq!((turns(&prompt).len(), turns(&completion)), (before, vec![("assistant", "d")]));
    }
    let record = json!({ "instruction": "a", "output": "b", "kto_tag": true });
    let (layout, read) = convert(&record, "unpaired", false);
    assert_eq!(layout.unwrap(), "Alpaca layout (instruction, output, kto_tag) read as prompt, completion and label");
    assert_eq!(read.columns["label"], 1.0);
    let open = json!({ "messages": [{ "role": "user", "content": "a" }], "label": true }).to_string();
    let wanted = Shape::of_method("unpaired").unwrap();
    let (_, layout) = find_layout(open.as_bytes(), &wanted, &Conversion::default(), true).unwrap();
    let conversion = Conversion { layout, ..Conversion::default() };
    let (fault, _) = Record::parse_converted(open.as_bytes(), &wanted, &conversion).unwrap_err();
    assert_eq!(fault.what, "the last message of `messages` is no answer of the assistant");
}

#[test]
fn a_conversation_with_two_last_answers_is_a_preference() {
    let turn = |from: &str, value: &str| json!({ "from": from, "value": value });
    let record =
        json!({ "conversations": [turn("human", "q")], "chosen": turn("gpt", "good"), "rejected": turn("gpt", "bad") });
    let (layout, read) = convert(&record, "preference", true);
    let told = "ShareGPT layout (conversations, chosen, rejected) read as prompt, chosen and rejected";
    assert_eq!(layout.unwrap(), told);
    let Content::Preference(prompt, chosen, rejected) = read.content else { panic!("a preference") };
    assert_eq!(turns(&prompt), [("user", "q")]);
    assert_eq!((turns(&chosen), turns(&rejected)), (vec![("assistant", "good")], vec![("assistant", "bad")]));
}

#[test]
fn preferences_come_with_a_question_or_repeat_their_prompt() {
    let record = json!({ "system": "", "question": "q", "chosen": "good", "rejected": "bad" });
    let (layout, read) = convert(&record, "preference", true);
    assert_eq!(layout.unwrap(), "question, chosen, rejected read as prompt, chosen and rejected, as turns of a chat");
    let Content::Preference(prompt, chosen, _) = read.content else { panic!("a preference") };
    assert_eq!((turns(&prompt), turns(&chosen)), (vec![("user", "q")], vec![("assistant", "good")]));

    let list = |answer: &str| json!([{ "role": "user", "content": "q" }, { "role": "assistant", "content": answer }]);
    let record = json!({ "prompt": "q", "chosen": list("good"), "rejected": list("bad") });
    let (layout, read) = convert(&record, "preference", true);
    let Content::Preference(prompt, chosen, _) = read.content else { panic!("a preference") };
    assert_eq!((layout, turns(&prompt), turns(&chosen)), (None, vec![("user", "q")], vec![("assistant", "good")]));

    let answer = |answer: &str| json!([{ "role": "assistant", "content": answer }]);
    let record = json!({ "prompt": "q", "chosen": answer("good"), "rejected": answer("bad") });
    let Content::Preference(prompt, ..) = convert(&record, "preference", true).1.content else {
        panic!("a preference")
    };
    assert_eq!(turns(&prompt), [("user", "q")]);
}

#[test]
fn records_with_the_fields_of_a_shape_are_left_as_they_are() {
    let record = json!({ "prompt": "a", "completion": "b", "response": "c" });
    let (layout, read) = convert(&record, "supervised", true);
    assert_eq!((layout, read.content), (None, Content::PromptCompletion(text("a"), text("b"))));
    assert_eq!(convert(&json!({ "prompt": "a", "response": "b" }), "prompts", true).0, None);
}

#[test]
fn a_column_of_the_map_is_read_as_its_field() {
    let map = FieldMap::from([("prompt".into(), "frage".into()), ("completion".into(), "antwort".into())]);
    let conversion = Conversion { map, ..Conversion::default() };
    let parse = |record: Value| {
        let wanted = Shape::of_method("supervised").unwrap();
        Record::parse_converted(record.to_string().as_bytes(), &wanted, &conversion)
    };
    let read = parse(json!({ "frage": "a", "antwort": "b", "prompt": "another" })).unwrap();
    assert_eq!(read.content, Content::PromptCompletion(text("a"), text("b")));
    let (fault, _) = parse(json!({ "frage": "a", "antwrt": "b" })).unwrap_err();
    assert_eq!(fault.what, "`antwort` is missing");
    let why = "`data.map` reads `completion` from it; the record has `frage`, `antwrt`";
    assert_eq!(fault.why.as_deref(), Some(why));
    // A wrong value is pointed at under the name that it has in the file.
    let record = json!({ "frage": "a", "antwort": 7 });
    let (fault, column) = parse(record.clone()).unwrap_err();
    assert_eq!(fault.what, "`antwort` is a number, text or a list of messages is wanted");
    assert_eq!(record.to_string().chars().nth(column - 1), Some('7'));
}

#[test]
fn faults_of_a_converted_record_name_its_own_columns() {
    let wanted = Shape::of_method("supervised").unwrap();
    let alpaca = json!({ "instruction": "a", "output": "b" }).to_string();
    let (shape, layout) = find_layout(alpaca.as_bytes(), &wanted, &Conversion::default(), false).unwrap();
    let conversion = Conversion { layout, ..Conversion::default() };
    let fault = |record: Value| {
        let read = Record::parse_converted(record.to_string().as_bytes(), &[shape], &conversion);
        read.unwrap_err().0
    };
    let missing = fault(json!({ "instruction": "a" }));
    assert_eq!(missing.what, "`output` is missing");
    assert_eq!(missing.why.as_deref(), Some("every record of this file needs `instruction` and `output`"));
    let wrong = fault(json!({ "instruction": 3, "output": "b" }));
    assert_eq!(wrong.what, "`instruction` is a number, text or a list of messages is wanted");

    let share_gpt = json!({ "conversations": [{ "from": "gpt", "value": "b" }] }).to_string();
    let (shape, layout) = find_layout(share_gpt.as_bytes(), &wanted, &Conversion::default(), false).unwrap();
    let conversion = Conversion { layout, ..Conversion::default() };
    let record = json!({ "conversations": [{ "from": "narrator", "value": "b" }] }).to_string();
    let (fault, _) = Record::parse_converted(record.as_bytes(), &[shape], &conversion).unwrap_err();
    assert_eq!(fault.what, "`conversations[0].from` is \"narrator\", a known speaker is wanted");
}

#[test]
fn a_pair_in_the_format_of_open_ai_is_read_with_its_tools() {
    let message = |role: &str, text: &str| json!([{ "role": role, "content": text }]);
    let tools = json!([{ "type": "function", "function": { "name": "weather", "parameters": {} } }]);
    let record = json!({
        "input": { "messages": message("user", "Rain?"), "tools": tools, "parallel_tool_calls": true },
        "preferred_output": message("assistant", "No."),
        "non_preferred_output": message("assistant", "Who knows?"),
    });
    let (layout, read) = convert(&record, "preference", true);
    let words = "OpenAI layout (input, preferred_output, non_preferred_output) read as prompt, chosen and rejected";
    assert_eq!(layout.unwrap(), words);
    let Content::Preference(prompt, chosen, rejected) = &read.content else { panic!("a pair") };
    let all = [prompt, chosen, rejected].map(|side| turns(side)[0]);
    assert_eq!(all, [("user", "Rain?"), ("assistant", "No."), ("assistant", "Who knows?")]);
    assert_eq!(read.tools, Some(tools));
}

#[test]
fn a_conversation_with_two_answers_beside_it_is_a_pair_if_the_method_is_not_known() {
    let record = json!({
        "conversations": [{ "from": "human", "value": "Hi" }],
        "chosen": { "from": "gpt", "value": "Hello" }, "rejected": { "from": "gpt", "value": "What?" },
    });
    let all: Vec<Shape> = Shape::all().collect();
    let found = find_layout(record.to_string().as_bytes(), &all, &Conversion::default(), true);
    assert_eq!(found.unwrap().0, Shape::Preference);
}
