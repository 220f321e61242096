//! Compares completions, preference pairs, lengths and messages with TRL.

use serde_json::json;

use super::*;

#[test]
fn completions_and_texts_are_split_as_trl_splits_them() {
    let examples = read("examples.json");
    for name in ["bytes", "pieces-gemma"] {
        let [_, tokenizer] = tiny(name);
        for row in examples[name].as_array().unwrap() {
            let (prompt, completion) = (row["prompt"].as_str().unwrap(), row["completion"].as_str().unwrap());
            let example = encode_prompt_completion(&tokenizer, &Example::Text { prompt, completion }).unwrap();
            assert_eq!(example.ids, ids(&row["ids"]), "{row}");
            assert_eq!(example.targets, mask(&row["mask"]), "{row}");
            assert_eq!(example.merged, row["merged"].as_bool().unwrap(), "{row}");

            let whole = encode_text(&tokenizer, &format!("{prompt}{completion}")).unwrap();
            assert_eq!(whole.ids, ids(&row["text"]), "{row}");
            assert_eq!(whole.target_count(), whole.ids.len() - 1);
        }
    }
}

#[test]
fn conversational_completions_are_split_as_trl_splits_them() {
    let chats = Chats::open();
    for row in read("examples.json")["conversations"].as_array().unwrap() {
        let template = &chats.template(row["template"].as_str().unwrap());
        let messages = chats.messages(row["chat"].as_str().unwrap());
        let (prompt, completion) = messages.split_at(messages.len() - 1);
        let example = Example::Messages { template, prompt: Conversation::new(prompt), completion };
        let example = encode_prompt_completion(&chats.tokenizer, &example).unwrap();
        assert_eq!(example.ids, ids(&row["ids"]), "{row}");
        assert_eq!(example.targets, mask(&row["mask"]), "{row}");
        assert_eq!(example.merged, row["merged"].as_bool().unwrap(), "{row}");
    }
}

#[test]
fn both_completions_of_a_pair_begin_at_the_same_place() {
    let [tokenizer, _] = tiny("bytes");
    let side = |completion| Example::Text { prompt: "The ri", completion };
    let (chosen, rejected) = encode_preference(&tokenizer, &side("ver runs"), &side("?")).unwrap();
    let first = |example: &Encoded| example.targets.iter().position(|target| *target).unwrap();
    assert_eq!(first(&chosen), first(&rejected));
    assert_eq!(chosen.ids[..first(&chosen)], rejected.ids[..first(&rejected)]);
    assert!(chosen.merged && rejected.merged);
}

#[test]
fn messages_keep_unknown_fields_and_join_text_parts() {
    let record = json!({"role": "user", "content": [{"type": "text", "text": "a"}, {"text": "b"}], "name": "Ann"});
    let message: Message = serde_json::from_value(record).unwrap();
    assert_eq!((message.content.as_str(), message.fields["name"].as_str()), ("ab", Some("Ann")));

    let picture = json!({"role": "user", "content": [{"type": "image", "url": "x"}]});
    let error = serde_json::from_value::<Message>(picture).unwrap_err();
    assert!(error.to_string().contains("`image`"));
}
