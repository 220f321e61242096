//! Built-in templates, against the texts that the models' own templates write.

use super::*;

/// The texts are those of the models' own templates, and of TRL's for ChatML.
#[test]
fn built_in_templates_write_the_turns_of_their_models_and_find_the_answers() {
    let chats = Chats::open();
    let messages = talk(&[("system", "Be brief."), ("user", "Hi"), ("assistant", "Hello")]);
    for (name, opening, wanted) in [
        (
            "chatml",
            "<|im_start|>assistant\n",
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n\
             <|im_start|>assistant\nHello<|im_end|>\n",
        ),
        (
            "gemma",
            "<start_of_turn>model\n",
            "<start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello<end_of_turn>\n",
        ),
        (
            "llama3",
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
            "<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>\
             <|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>\
             <|start_header_id|>assistant<|end_header_id|>\n\nHello<|eot_id|>",
        ),
    ] {
        let template = ChatTemplate::parse(builtin_template(name).unwrap(), &chats.tokenizer).unwrap();
        let bos = chats.tokenizer.special_tokens().find(|(role, _)| *role == "bos_token").map_or("", |(_, text)| text);
        let bos = if name == "chatml" { "" } else { bos };
        assert_eq!(template.render(&messages, false, None).unwrap(), format!("{bos}{wanted}"), "{name}");
        assert_eq!(template.render(&messages, true, None).unwrap(), format!("{bos}{wanted}{opening}"), "{name}");
        let conversation = Conversation::new(&messages);
        let row = encode_conversation(&chats.tokenizer, &template, &conversation, Answers::All).unwrap();
        let learned: Vec<u32> = row.ids.iter().zip(&row.targets).filter(|(_, on)| **on).map(|(id, _)| *id).collect();
        assert!(chats.tokenizer.decode(&learned, false).unwrap().starts_with("Hello"), "{name}");
    }
    assert_eq!(builtin_template("mistral"), None);
}
