//! Chat templates for models that have none, by the names that axolotl gives them.

/// The name of each built-in template and its source.
const TEMPLATES: [(&str, &str); 3] = [
    (
        "chatml",
        "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}\
         {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    ),
    (
        "gemma",
        "{{ bos_token }}{% set has_system = messages[0].role == 'system' %}\
         {% for message in (messages[1:] if has_system else messages) %}\
         <start_of_turn>{{ 'model' if message.role == 'assistant' else message.role }}\n\
         {{ messages[0].content + '\n\n' if has_system and loop.first }}{{ message.content | trim }}<end_of_turn>\n\
         {% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}",
    ),
    (
        "llama3",
        "{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message.role }}<|end_header_id|>\n\n\
         {{ message.content | trim }}<|eot_id|>{% endfor %}\
         {% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
    ),
];

/// The names of the built-in templates.
pub fn builtin_templates() -> impl Iterator<Item = &'static str> {
    TEMPLATES.iter().map(|(name, _)| *name)
}

/// The source of the built-in template with this name; `None` for any other name.
#[must_use]
pub fn builtin_template(name: &str) -> Option<&'static str> {
    TEMPLATES.iter().find(|(known, _)| *known == name).map(|(_, source)| *source)
}
