//! Converts records to rows of tokens, by the model's tokenizer and chat template.

use std::collections::BTreeMap;

use tunebox_foundation::explain::{Explain, Explanation};
use tunebox_model::chat::{
    Answers, ChatTemplate, Conversation, Encoded, Example as Pair, Message, encode_conversation, encode_preference,
    encode_prompt, encode_prompt_completion, encode_text,
};
use tunebox_model::tokenizer::Tokenizer;
use tunebox_sandbox::Question;

use super::fault::Fault;
use super::shape::{Content, Record, TextOrMessages};

/// A tokenized record: a row for each side, and its numbers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Example {
    /// The rows, in the order of the shape's sides. There is none for the side `mismatched`, which is built for each
    /// window.
    pub sides: Vec<Encoded>,
    /// Numbers of the record, by field.
    pub columns: BTreeMap<String, f32>,
    /// Lists of numbers of the record, by field: one number for each target token of its row.
    pub token_columns: BTreeMap<String, Result<Vec<f32>, WrongLength>>,
    /// The index of the record among those of all files, also those that are dropped. Copies of a record have the same.
    pub index: u32,
    /// For a record of the shape `Prompts`, the text of the prompt, and the further fields for the verifiers; else
    /// `None`.
    pub question: Option<Question>,
    /// Number of the line that the record came from.
    pub line: u64,
}

/// A list of numbers of a record has another length than its row has targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrongLength {
    /// The numbers of the list.
    pub numbers: usize,
    /// The target tokens of the row, those past the maximum length included.
    pub targets: usize,
}

impl WrongLength {
    /// Says that the list `name` of a record needs one number for each target token, and how many it has. `place` is
    /// the record's place in `file`, such as `line 7`.
    pub(super) fn describe(self, name: &str, place: &str, file: &str) -> String {
        let Self { numbers, targets } = self;
        format!(
            "the record in {place} of `{file}` has {numbers} numbers in `{name}`, one for each of its {targets} target \
             tokens is wanted"
        )
    }
}

impl Example {
    /// Tokens of all sides together.
    pub(crate) fn tokens(&self) -> usize {
        self.sides.iter().map(|side| side.ids.len()).sum()
    }

    /// Target tokens of all sides together.
    pub(crate) fn targets(&self) -> usize {
        self.sides.iter().map(Encoded::target_count).sum()
    }

    /// The lists of numbers of another length than the row has targets, by field.
    pub(super) fn wrong_lists(&self) -> impl Iterator<Item = (&String, WrongLength)> {
        self.token_columns.iter().filter_map(|(name, list)| Some((name, list.as_ref().err().copied()?)))
    }

    /// Cuts every side to its first `length` tokens. Returns whether a side was cut, or `None` if a side has no target
    /// left, even if it had none before. An example without any targets is never cut: the result is `Some(false)` if
    /// every side has fewer than `length` tokens, else `None`.
    pub(super) fn truncate(&mut self, length: usize) -> Option<bool> {
        if self.targets() == 0 {
            return self.sides.iter().all(|side| side.ids.len() < length).then_some(false);
        }
        let long = self.sides.iter().any(|side| side.ids.len() > length);
        for side in &mut self.sides {
            side.ids.truncate(length);
            side.targets.truncate(length);
        }
        let targets = self.sides.first().map_or(0, predicted_targets);
        self.token_columns.values_mut().flatten().for_each(|numbers| numbers.truncate(targets));
        self.sides.iter().all(|side| side.targets.contains(&true)).then_some(long)
    }
}

impl Example {
    /// Splits a text of more than `length` tokens into consecutive pieces of at most `length`, so that each of its
    /// tokens but the first is a target of one piece. A piece after the first begins with the first `leading` tokens of
    /// the text, those that the tokenizer puts before every text, and with the last token of the piece before it, from
    /// which its first target is predicted. An example with another number of rows than one is returned as it is.
    pub(super) fn split(self, length: usize, leading: usize) -> Vec<Self> {
        let [Encoded { ids, .. }] = self.sides.as_slice() else { return vec![self] };
        if ids.len() <= length {
            return vec![self];
        }
        let (mut pieces, mut begin) = (Vec::new(), 1);
        while begin < ids.len() {
            let head = if begin == 1 { &[][..] } else { &ids[..leading.min(length - 2)] };
            let end = ids.len().min(begin + length - head.len() - 1);
            let piece = [head, &ids[begin - 1..end]].concat();
            let targets = (0..piece.len()).map(|at| at > head.len()).collect();
            // A list has a number for each target, the first of which is the second token.
            let part = |list: &Result<Vec<f32>, WrongLength>| match list {
                Ok(numbers) => Ok(numbers[begin - 1..end - 1].to_vec()),
                Err(wrong) => Err(*wrong),
            };
            let token_columns = self.token_columns.iter().map(|(name, list)| (name.clone(), part(list))).collect();
            let sides = vec![Encoded { ids: piece, targets, merged: false }];
            pieces.push(Self {
                sides,
                token_columns,
                columns: self.columns.clone(),
                question: self.question.clone(),
                ..self
            });
            begin = end;
        }
        pieces
    }
}

/// Tokenizes records.
#[derive(Clone, Copy)]
pub struct Encoder<'a> {
    /// The model's tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// The model's chat template; records of messages need it.
    pub template: Option<&'a ChatTemplate>,
    /// Which answers of a conversation are targets.
    pub answers: Answers,
}

impl Encoder<'_> {
    /// Tokenizes a record into an example with one row for each side. `line` is the number of the record's line. The
    /// index of the example is 0: the caller sets it. A side that an instruction lacks becomes an empty row. A list of
    /// numbers that does not have one number for each target token is no error here: the example holds a
    /// [`WrongLength`] for it. Keeps the prompt's text and the fields for verifiers only for a record of the shape
    /// `Prompts`.
    ///
    /// # Errors
    /// Content that the tokenizer or the chat template rejects, messages for a model without a chat template, and a
    /// prompt and an answer of which one is text and the other messages.
    pub(super) fn encode(&self, record: Record, line: u64) -> Result<Example, Fault> {
        let sides = match &record.content {
            Content::Text(text) => vec![encode_text(self.tokenizer, text).map_err(line_fault)?],
            Content::Messages(messages) => {
                let (template, conversation) = (self.chat_template()?, conversation(&record, messages));
                vec![encode_conversation(self.tokenizer, template, &conversation, self.answers).map_err(line_fault)?]
            }
            Content::PromptCompletion(prompt, completion) => {
                let pair = self.join_pair(&record, prompt, completion)?;
                vec![encode_prompt_completion(self.tokenizer, &pair).map_err(line_fault)?]
            }
            Content::Preference(prompt, chosen, rejected) => {
                let chosen = self.join_pair(&record, prompt, chosen)?;
                let rejected = self.join_pair(&record, prompt, rejected)?;
                let (chosen, rejected) = encode_preference(self.tokenizer, &chosen, &rejected).map_err(line_fault)?;
                vec![chosen, rejected]
            }
            Content::Instructions(harmful, harmless) => {
                let side = |turns: &Option<TextOrMessages>| match turns {
                    Some(turns) => self.encode_instruction(&record, turns),
                    None => Ok(empty_row()),
                };
                vec![side(harmful)?, side(harmless)?]
            }
            Content::Contrast(positive, negative) => {
                vec![self.encode_contrast(&record, positive)?, self.encode_contrast(&record, negative)?]
            }
            Content::Prompt(prompt, _) => vec![self.encode_prompt(&record, prompt)?],
        };
        let question = match record.content {
            Content::Prompt(prompt, fields) => Some(Question { prompt: prompt_text(prompt), fields }),
            _ => None,
        };
        let targets = sides.first().map_or(0, predicted_targets);
        let column = |numbers: Vec<f32>| match numbers.len() {
            length if length == targets => Ok(numbers),
            length => Err(WrongLength { numbers: length, targets }),
        };
        let token_columns = record.lists.into_iter().map(|(name, numbers)| (name, column(numbers))).collect();
        Ok(Example { sides, columns: record.columns, token_columns, index: 0, question, line })
    }

    /// Tokenizes an instruction as a prompt without targets. Text becomes a single user message if the model has a chat
    /// template; otherwise it is tokenized as it is.
    fn encode_instruction(&self, record: &Record, turns: &TextOrMessages) -> Result<Encoded, Fault> {
        match (turns, self.template) {
            (TextOrMessages::Text(text), Some(_)) => {
                self.encode_prompt(record, &TextOrMessages::Messages(vec![Message::new("user", text.as_str())]))
            }
            _ => self.encode_prompt(record, turns),
        }
    }

    /// Tokenizes one side of a contrast. Targets are the answers that `answers` selects of a conversation with the role
    /// `assistant`, or every token but the first of plain text. Messages without that role become a prompt, ending in
    /// the opening of an answer, without targets.
    fn encode_contrast(&self, record: &Record, turns: &TextOrMessages) -> Result<Encoded, Fault> {
        match turns {
            TextOrMessages::Messages(messages) if messages.iter().any(|message| message.role == "assistant") => {
                let conversation = conversation(record, messages);
                encode_conversation(self.tokenizer, self.chat_template()?, &conversation, self.answers)
                    .map_err(line_fault)
            }
            _ => {
                let mut row = self.encode_prompt(record, turns)?;
                if matches!(turns, TextOrMessages::Text(_)) {
                    row.targets.iter_mut().skip(1).for_each(|target| *target = true);
                }
                Ok(row)
            }
        }
    }

    /// Tokenizes text, without special tokens after it, or messages followed by the chat template's opening of an
    /// answer, into a row without targets. Fails for messages if the model has no chat template.
    fn encode_prompt(&self, record: &Record, prompt: &TextOrMessages) -> Result<Encoded, Fault> {
        let ids = match prompt {
            TextOrMessages::Text(text) => self.tokenizer.encode_opening(text).map_err(line_fault)?,
            TextOrMessages::Messages(messages) => {
                encode_prompt(self.tokenizer, self.chat_template()?, &conversation(record, messages))
                    .map_err(line_fault)?
            }
        };
        Ok(Encoded { targets: vec![false; ids.len()], ids, merged: false })
    }

    /// Joins the prompt and answer of a record for the tokenizer, with the chat template if they are messages. Fails
    /// with a fault unless both are text or both are messages, and if messages meet a model without a template.
    fn join_pair<'a>(
        &'a self,
        record: &'a Record,
        prompt: &'a TextOrMessages,
        completion: &'a TextOrMessages,
    ) -> Result<Pair<'a>, Fault> {
        match (prompt, completion) {
            (TextOrMessages::Text(prompt), TextOrMessages::Text(completion)) => Ok(Pair::Text { prompt, completion }),
            (TextOrMessages::Messages(prompt), TextOrMessages::Messages(completion)) => {
                Ok(Pair::Messages { template: self.chat_template()?, prompt: conversation(record, prompt), completion })
            }
            _ => Err(Explanation::new("data", "the prompt is text and the answer is messages, or the other way round")
                .with_hint("write both as text, or both as lists of messages")
                .into()),
        }
    }

    /// The model's chat template. Fails with a fault if the model has none.
    fn chat_template(&self) -> Result<&ChatTemplate, Fault> {
        self.template.ok_or_else(|| {
            Explanation::new("data", "the record has messages and the model has no chat template")
                .with_hint(
                    "name one by `model.chat-template`, take an instruct model, or write `prompt` and `completion` as \
                     text",
                )
                .into()
        })
    }
}

/// The number of target tokens of a row that have a predecessor.
fn predicted_targets(row: &Encoded) -> usize {
    row.targets.iter().skip(1).filter(|target| **target).count()
}

/// A row without tokens, for a side that an instruction lacks; it is left out of batches.
fn empty_row() -> Encoded {
    Encoded { ids: Vec::new(), targets: Vec::new(), merged: false }
}

/// Returns `messages` together with the tools and template variables of their record, for the chat template. Copies
/// nothing.
fn conversation<'a>(record: &'a Record, messages: &'a [Message]) -> Conversation<'a> {
    Conversation { messages, tools: record.tools.as_ref(), variables: record.variables.as_ref() }
}

/// Returns the text of a prompt for verifiers: the text itself, or the content of its last message (empty without
/// messages).
fn prompt_text(prompt: TextOrMessages) -> String {
    match prompt {
        TextOrMessages::Text(text) => text,
        TextOrMessages::Messages(mut messages) => messages.pop().map(|message| message.content).unwrap_or_default(),
    }
}

/// Turns an error of the tokenizer or the template into a fault of the line. Moves the error's cause, if any, from
/// `why` to the end of `what`, after a colon.
fn line_fault(error: tunebox_model::Error) -> Fault {
    let explanation = error.explanation();
    let explained = match explanation.why {
        Some(why) => Explanation { what: format!("{}: {why}", explanation.what), why: None, ..explanation },
        None => explanation,
    };
    explained.into()
}
