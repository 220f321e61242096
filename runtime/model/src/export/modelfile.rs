//! Writes the `Modelfile` of a folder for Ollama. Ollama renders conversations by a template of its own language, which
//! is derived from what the model's chat template renders, and then compared with it.

use std::fmt::Write as _;

use tunebox_foundation::explain::Explanation;

use crate::Model;
use crate::chat::{ChatTemplate, Message};
use crate::error::Result;

/// A text that no template contains, for each place of a conversation.
const SYSTEM: &str = "system-text-0";
const TURNS: [&str; 5] = ["user-text-1", "answer-text-2", "user-text-3", "answer-text-4", "user-text-5"];

/// The fixed texts between the messages of a conversation that ends with a question.
#[derive(Debug, PartialEq)]
struct Pieces {
    /// What comes first in a conversation without a system message.
    opening: String,
    /// What is before and after the text of a system message; `None` if the template takes none.
    system: Option<(String, String)>,
    /// What is before a question.
    user: String,
    /// What is after a question, including the opening of an answer.
    question_end: String,
    /// What is after an answer.
    answer_end: String,
}

/// Writes the text of the `Modelfile` for a model whose GGUF file is called `file`, beside it: the file, the template
/// and the stop texts, which are the end tokens of the configuration. Leaves out end tokens with a quotation mark, a
/// backslash or a line break. A model without a chat template gets one that shows only the prompt.
///
/// # Errors
/// When the model has no tokenizer, or its chat template renders conversations in a way that a template of Ollama
/// cannot.
pub(super) fn text(model: &Model, file: &str) -> Result<String> {
    let mut text = format!("FROM ./{file}\n");
    let template = match &model.template {
        // A base model continues the text.
        None => "{{ .Prompt }}".to_owned(),
        Some(template) => {
            let opening = model.tokenizer()?.special_tokens().find(|(role, _)| *role == "bos_token");
            template_of(template, opening.map_or("", |(_, text)| text)).ok_or_else(refusal)?
        }
    };
    let _ = writeln!(text, "TEMPLATE \"\"\"{template}\"\"\"");
    let tokenizer = model.tokenizer()?;
    let ends = model.configuration.eos.iter().filter_map(|id| tokenizer.token(*id));
    for end in ends.filter(|end| !end.contains(['"', '\\', '\n'])) {
        let _ = writeln!(text, "PARAMETER stop \"{end}\"");
    }
    Ok(text)
}

/// The error for a chat template that cannot be written for Ollama.
fn refusal() -> crate::Error {
    let what = "the model's chat template cannot be written for Ollama";
    let why = "it does not put the same text around each message";
    let hint = "export with `--to gguf` and write a `Modelfile` with your own `TEMPLATE`";
    Explanation::new("export", what).with_why(why).with_hint(hint).into()
}

/// The template in Ollama's language that renders conversations as `template` does, without the beginning-of-text
/// token `bos`, which Ollama adds by itself. `None` if the fixed texts around messages cannot be found, if
/// conversations of 1, 3 or 5 turns, with or without a system message, are rendered otherwise, or if a fixed text
/// would end Ollama's template.
fn template_of(template: &ChatTemplate, bos: &str) -> Option<String> {
    let render = |system: Option<&str>, turns: &[&str]| {
        let text = template.render(&messages(system, turns), true, None).ok()?;
        Some(text.strip_prefix(bos).map_or(text.clone(), str::to_owned))
    };
    let pieces = find_pieces(render)?;
    for length in [1, 3, 5] {
        let turns = &TURNS[..length];
        let systems = [None, pieces.system.as_ref().map(|_| SYSTEM)];
        for system in systems {
            if compose(&pieces, system, turns) != render(system, turns)? {
                return None;
            }
        }
    }
    let all = [&pieces.opening, &pieces.user, &pieces.question_end, &pieces.answer_end];
    let around = pieces.system.iter().flat_map(|(before, after)| [before, after]);
    // These would end the template, or begin an action in it.
    let is_plain = |text: &&String| !text.contains("{{") && !text.contains("}}") && !text.contains("\"\"\"");
    all.into_iter().chain(around).all(|text| is_plain(&text)).then(|| go_template(&pieces))
}

/// Finds the fixed texts around messages in what `render` returns for a system message, if any, and turns. `system` is
/// `None` if the template refuses or does not show a system message. `None` if the turns are not shown one after
/// another.
fn find_pieces(render: impl Fn(Option<&str>, &[&str]) -> Option<String>) -> Option<Pieces> {
    let plain = render(None, &TURNS[..3])?;
    let [before, question_end, between, _] = <[&str; 4]>::try_from(split_at_words(&plain, &TURNS[..3])?).ok()?;
    let user = common_end(before, between);
    let opening = before.strip_suffix(user)?.to_owned();
    let answer_end = between.strip_suffix(user)?.to_owned();
    let system = render(Some(SYSTEM), &TURNS[..1]).and_then(|text| {
        let parts = split_at_words(&text, &[SYSTEM, TURNS[0]])?;
        Some((parts[0].to_owned(), parts[1].strip_suffix(user)?.to_owned()))
    });
    let (user, question_end) = (user.to_owned(), question_end.to_owned());
    Some(Pieces { opening, system, user, question_end, answer_end })
}

/// Splits a text at the first occurrence of each of these words, in order. Returns one part more than there are words;
/// `None` if a word is missing.
fn split_at_words<'a>(text: &'a str, words: &[&str]) -> Option<Vec<&'a str>> {
    let mut rest = text;
    let mut parts = Vec::new();
    for word in words {
        let (before, after) = rest.split_once(word)?;
        parts.push(before);
        rest = after;
    }
    parts.push(rest);
    Some(parts)
}

/// The longest text with which both texts end; may be empty.
fn common_end<'a>(one: &'a str, other: &str) -> &'a str {
    let starts = one.char_indices().map(|(at, _)| at).chain([one.len()]);
    let ends = starts.map(|at| &one[at..]);
    ends.into_iter().find(|end| other.ends_with(end)).unwrap_or("")
}

/// Renders a conversation of alternating questions and answers from the fixed texts, as Ollama renders it by
/// [`go_template`]. Ignores a system message if the pieces have no place for one.
fn compose(pieces: &Pieces, system: Option<&str>, turns: &[&str]) -> String {
    let mut text = match (system, &pieces.system) {
        (Some(system), Some((before, after))) => format!("{before}{system}{after}"),
        _ => pieces.opening.clone(),
    };
    for (number, turn) in turns.iter().enumerate() {
        let (before, after) =
            if number % 2 == 0 { (pieces.user.as_str(), &pieces.question_end) } else { ("", &pieces.answer_end) };
        text.extend([before, turn, after]);
    }
    text
}

/// Writes the fixed texts as a template in Ollama's language. Messages of other roles than system, user and assistant
/// are left out. The template has no line breaks of its own: they would be part of the rendered text.
fn go_template(pieces: &Pieces) -> String {
    let Pieces { opening, system, user, question_end, answer_end } = pieces;
    let start = match system {
        Some((before, after)) => {
            format!("{{{{ if .System }}}}{before}{{{{ .System }}}}{after}{{{{ else }}}}{opening}{{{{ end }}}}")
        }
        None => opening.clone(),
    };
    let content = "{{ .Content }}";
    format!(
        "{start}{{{{ range .Messages }}}}{{{{ if eq .Role \"user\" }}}}{user}{content}{question_end}\
         {{{{ else if eq .Role \"assistant\" }}}}{content}{answer_end}{{{{ end }}}}{{{{ end }}}}"
    )
}

/// Builds a conversation: the system message, if any, then `turns` as alternating messages of user and assistant.
fn messages(system: Option<&str>, turns: &[&str]) -> Vec<Message> {
    let roles = ["user", "assistant"].into_iter().cycle();
    let turns = roles.zip(turns).map(|(role, text)| Message::new(role, *text));
    system.map(|text| Message::new("system", text)).into_iter().chain(turns).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Renders by a template in which each message is `<role>text</>`, with what comes before a conversation without a
    /// system message.
    fn render(opening: &str, takes_system: bool) -> impl Fn(Option<&str>, &[&str]) -> Option<String> {
        move |system, turns| {
            let message = |role: &str, text: &str| format!("<{role}>{text}</>");
            let mut text = match system {
                Some(_) if !takes_system => return None,
                Some(system) => message("system", system),
                None => opening.to_owned(),
            };
            let roles = ["user", "assistant"].into_iter().cycle();
            roles.zip(turns).for_each(|(role, turn)| text.push_str(&message(role, turn)));
            Some(text + "<assistant>")
        }
    }

    #[test]
    fn the_pieces_of_a_template_compose_to_what_it_renders() {
        for (opening, takes_system) in [("", true), ("", false), ("<system>You help.</>", true)] {
            let render = render(opening, takes_system);
            let pieces = find_pieces(&render).unwrap();
            assert_eq!(pieces.system.is_some(), takes_system);
            for length in [1, 3, 5] {
                assert_eq!(compose(&pieces, None, &TURNS[..length]), render(None, &TURNS[..length]).unwrap());
            }
            if takes_system {
                let found = compose(&pieces, Some("Be short."), &TURNS[..3]);
                assert_eq!(Some(found), render(Some("Be short."), &TURNS[..3]), "{opening}");
            }
        }
    }

    #[test]
    fn the_template_in_the_language_of_ollama_has_the_pieces_around_the_texts() {
        let pieces = find_pieces(render("", true)).unwrap();
        let wanted = "{{ if .System }}<system>{{ .System }}</>{{ else }}{{ end }}\
            {{ range .Messages }}{{ if eq .Role \"user\" }}<user>{{ .Content }}</><assistant>\
            {{ else if eq .Role \"assistant\" }}{{ .Content }}</>{{ end }}{{ end }}";
        assert_eq!(go_template(&pieces), wanted);
    }
}
