//! A model's chat template: from a folder, a GGUF file or a source text, rendered as transformers renders it.
//!
//! A template is an untrusted program: it runs with limits on steps, recursion depth and length of the text, under the
//! watchdog, and sees only the conversation. Only the process limits the memory of its values. [`super::spans`] finds
//! which parts of the text are answers.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Value};
use serde_json::Value as Json;
use tunebox_foundation::panics::catch_panic;

use super::error;
use super::functions::{self, MARKED};
use super::markers;
use super::message::{Conversation, Message};
use super::python_repr::MAX_TEXT;
use crate::error::Result;
use crate::tokenizer::{Tokenizer, object, read_optional};
use crate::watchdog::{OVERHEAD, Work};
use crate::weights::gguf::Metadata;

/// The file of a chat template in the folder of a model or an adapter.
pub const TEMPLATE_FILE: &str = "chat_template.jinja";

/// Steps that one rendering may take; a conversation of a thousand turns needs about a tenth.
const ALLOWANCE: u64 = 10_000_000;
/// How deep blocks and macros may nest.
const DEPTH: usize = 200;
/// The most bytes of a template's source; the longest known source has 32 KiB.
const LONGEST: usize = 64 << 10;
/// Bytes of stack per byte of a source that is compiled, enough for any source. They count against the memory of a
/// worker process.
const STACK: usize = 4 << 10;
/// The name under which the engine holds the plain form of a template, which renders the text that the model reads.
const PLAIN: &str = "plain";

/// A compiled chat template: renders conversations to text in the format that the model was trained on.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    default: Compiled,
    /// The template for conversations with tools, if there is a separate one.
    with_tools: Option<Compiled>,
    /// The special tokens as (role, text), such as (`bos_token`, `<s>`): variables of every rendering.
    names: Vec<(String, String)>,
}

/// A rendered text, and the byte ranges in it that the template marks as answers.
pub(super) type Marked = (String, Vec<Range<usize>>);

impl ChatTemplate {
    /// Compiles a template, used for conversations with and without tools. The tokenizer provides the values of
    /// variables such as `bos_token`.
    ///
    /// # Errors
    /// When the source is longer than 64 KiB or is not a Jinja template that the engine can compile; the error names
    /// line and column where known.
    pub fn parse(source: &str, tokenizer: &Tokenizer) -> Result<Self> {
        let sources = HashMap::from([("default".to_owned(), source.to_owned())]);
        let template = Self::compile_sources(&sources, tokenizer, Path::new("chat template"))?;
        template.ok_or_else(|| error::broken("is missing"))
    }

    /// Reads the template of a Hugging Face folder: `chat_template.jinja`, else the one in `tokenizer_config.json`; and
    /// for conversations with tools, `additional_chat_templates/tool_use.jinja`, else the one named `tool_use` in
    /// `tokenizer_config.json`, if any. `None` if the folder has no default template.
    ///
    /// # Errors
    /// When a file cannot be read, or [`ChatTemplate::parse`] fails.
    pub fn from_folder(folder: &Path, tokenizer: &Tokenizer) -> Result<Option<Self>> {
        let mut sources = sources_by_name(object(&folder.join("tokenizer_config.json"))?.get("chat_template"));
        if let Some(source) = read_optional(&folder.join(TEMPLATE_FILE))? {
            sources.insert("default".into(), source);
        }
        if let Some(source) = read_optional(&folder.join("additional_chat_templates/tool_use.jinja"))? {
            sources.insert("tool_use".into(), source);
        }
        Self::compile_sources(&sources, tokenizer, folder)
    }

    /// Compiles the template in a GGUF file's metadata, `tokenizer.chat_template`, and
    /// `tokenizer.chat_template.tool_use` for conversations with tools. `None` if the first is missing.
    ///
    /// # Errors
    /// When [`ChatTemplate::parse`] fails.
    pub fn from_gguf(metadata: &Metadata, tokenizer: &Tokenizer) -> Result<Option<Self>> {
        let keys = [("default", "tokenizer.chat_template"), ("tool_use", "tokenizer.chat_template.tool_use")];
        let source = |key| metadata.string(key).map(str::to_owned);
        let sources = keys.iter().filter_map(|(name, key)| Some(((*name).to_owned(), source(*key)?)));
        Self::compile_sources(&sources.collect(), tokenizer, metadata.path())
    }

    /// Compiles the sources named `default` and, for conversations with tools, `tool_use`; ignores all others.
    /// `sources` are template sources by name; `origin` is the file or folder that they come from. `None` without a
    /// `default`.
    fn compile_sources(
        sources: &HashMap<String, String>,
        tokenizer: &Tokenizer,
        origin: &Path,
    ) -> Result<Option<Self>> {
        let compile = |name| sources.get(name).map(|source| Compiled::new(source, origin)).transpose();
        let Some(default) = compile("default")? else { return Ok(None) };
        let names = tokenizer.special_tokens().map(|(role, text)| (role.to_owned(), text.to_owned())).collect();
        Ok(Some(Self { default, with_tools: compile("tool_use")?, names }))
    }

    /// Makes `strftime_now` return a fixed time, in seconds since 1970 UTC, so that templates that print the date give
    /// the same tokens on any day. A time outside the years -9999 to 9999 makes it return the current time.
    #[must_use]
    pub fn with_clock(mut self, seconds: i64) -> Self {
        let moment = Timestamp::from_second(seconds).ok();
        functions::set_clock(Arc::make_mut(&mut self.default.environment), moment);
        if let Some(other) = &mut self.with_tools {
            functions::set_clock(Arc::make_mut(&mut other.environment), moment);
        }
        self
    }

    /// The source of the default template, before `{% generation %}` tags are rewritten.
    pub fn source(&self) -> &str {
        &self.default.source
    }

    /// Renders messages to text, without further template variables. `tools` are the tools that the model may call, as
    /// a JSON list. `add_generation_prompt` appends the opening of an answer.
    ///
    /// # Errors
    /// When the template rejects the conversation by `raise_exception`, fails, takes more than 10 million steps, or
    /// makes more than 32 MiB of text.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool, tools: Option<&Json>) -> Result<String> {
        self.render_conversation(&Conversation { messages, tools, variables: None }, add_generation_prompt)
    }

    /// Renders a conversation with tools and further template variables to text; `add_generation_prompt` appends the
    /// opening of an answer.
    ///
    /// # Errors
    /// When [`ChatTemplate::render`] fails.
    pub fn render_conversation(&self, conversation: &Conversation<'_>, add_generation_prompt: bool) -> Result<String> {
        self.for_conversation(conversation).render_form(PLAIN, self.context(conversation, add_generation_prompt))
    }

    /// Renders a conversation in its plain and its marked form, and finds the answers that the template marks. `None`
    /// if it marks none, if marks are nested or unpaired, or if the text with marks removed differs from the plain one.
    /// Errors: those of rendering, or the plain text of a template with marks holds a mark character.
    pub(super) fn render_marked(&self, conversation: &Conversation<'_>) -> Result<Option<Marked>> {
        let template = self.for_conversation(conversation);
        if !template.marked {
            return Ok(None);
        }
        let plain = template.render_form(PLAIN, self.context(conversation, false))?;
        if let Some(found) = plain.chars().find(|character| [markers::OPEN, markers::CLOSE].contains(character)) {
            let marker = error::explain(format!("the conversation holds the noncharacter U+{:04X}", u32::from(found)));
            let why = "it is not a character of any text, and marks where answers begin and end while rendering";
            return Err(marker.with_why(why).with_hint("remove it from the record").into());
        }

        let marked = template.render_form(MARKED, self.context(conversation, false))?;
        Ok(markers::extract_answers(&marked).filter(|(text, spans)| *text == plain && !spans.is_empty()))
    }

    /// The compiled template for a conversation: the one for tools if there is one and the conversation's `tools` are
    /// given, even as an empty list; else the default.
    fn for_conversation(&self, conversation: &Conversation<'_>) -> &Compiled {
        self.with_tools.as_ref().filter(|_| conversation.tools.is_some()).unwrap_or(&self.default)
    }

    /// The variables of a rendering. Special tokens by role, such as `bos_token`, come first; then the conversation's
    /// variables, which replace those of equal names; then `messages`, `tools` (none if there are none), `documents`
    /// (always none) and `add_generation_prompt`, which nothing replaces.
    fn context(&self, conversation: &Conversation<'_>, add_generation_prompt: bool) -> Value {
        let messages: Vec<Value> =
            conversation.messages.iter().map(|message| Value::from(Serde(message.template_fields()))).collect();
        let fixed = [
            ("messages", Value::from(messages)),
            ("tools", Value::from(Serde(conversation.tools))),
            ("documents", Value::from(())),
            ("add_generation_prompt", Value::from(add_generation_prompt)),
        ];
        let names = self.names.iter().map(|(role, text)| (role.clone(), Value::from(text.as_str())));
        let variables = conversation.variables.into_iter().flatten();
        let variables = variables.map(|(name, variable)| (name.clone(), Value::from(Serde(variable))));
        Value::from_pairs(names.chain(variables).chain(fixed.map(|(name, value)| (name.to_owned(), value))))
    }
}

/// One template source, compiled in its plain and its marked form.
#[derive(Debug, Clone)]
struct Compiled {
    /// The engine, which holds the forms [`PLAIN`] and [`MARKED`].
    environment: Arc<Environment<'static>>,
    /// The source before its generation tags were rewritten.
    source: String,
    /// Whether the source has `{% generation %}` blocks.
    marked: bool,
    /// What the watchdog measures: the time for compiling and all renderings, shared by the copies of a template.
    work: Work,
}

impl Compiled {
    /// Compiles a source on its own thread with a stack for its length: the engine compiles long expressions by
    /// recursion. `origin` is where it comes from. Errors: a source longer than [`LONGEST`], a syntax error, or a panic
    /// of the engine.
    fn new(source: &str, origin: &Path) -> Result<Self> {
        if source.len() > LONGEST {
            return Err(error::broken(&format!("has {} bytes, at most {LONGEST} are read", source.len())));
        }
        let work = Work::on_texts("the chat template", origin);
        let outcome = std::thread::scope(|scope| {
            let _mark = work.begin();
            let compile = || catch_panic(|| Self::compile(source, work.clone()));
            let stack = (2 << 20) + STACK * source.len();
            let thread = std::thread::Builder::new().stack_size(stack).spawn_scoped(scope, compile);
            let none = |error| format!("the limits of this process leave no memory for a thread: {error}");
            thread.map_err(none)?.join().map_err(|_| "the engine gave up".to_owned())?
        });
        outcome.unwrap_or_else(|why| Err(error::broken(&format!("cannot be compiled: {why}"))))
    }

    /// Rewrites generation tags, and compiles the same source under the names [`PLAIN`] and [`MARKED`], with limits of
    /// steps and recursion. As in transformers, renderings leave out the line break after a block tag, and the white
    /// space before the tag in its line. Errors: a syntax error.
    fn compile(source: &str, work: Work) -> Result<Self> {
        let failed = |error: minijinja::Error| error::from_engine(&error, source);
        let rewritten = markers::rewrite_generation_tags(source);
        let marked = rewritten.is_some();
        let body = rewritten.unwrap_or_else(|| source.to_owned());

        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(failed)?;
        environment.set_syntax(syntax);
        environment.set_fuel(Some(ALLOWANCE));
        environment.set_recursion_limit(DEPTH);
        functions::register(&mut environment);
        environment.add_template_owned(PLAIN, body.clone()).map_err(failed)?;
        environment.add_template_owned(MARKED, body).map_err(failed)?;
        Ok(Self { environment: Arc::new(environment), source: source.to_owned(), marked, work })
    }

    /// Renders one form, [`PLAIN`] or [`MARKED`], with these variables. The watchdog ends renderings that together take
    /// far longer than their texts explain. Errors: those of the template and its limits; a panic of the engine becomes
    /// one too.
    fn render_form(&self, form: &str, context: Value) -> Result<String> {
        let failed = |error: minijinja::Error| error::from_engine(&error, &self.source);
        let _mark = self.work.begin();
        let mut text = BoundedText(Vec::new());
        let render = || self.environment.get_template(form)?.render_captured_to(context, &mut text).map(drop);
        catch_panic(render).map_err(|why| error::broken(&format!("fails: {why}")))?.map_err(failed)?;
        self.work.add_bytes(text.0.len() as u64 + OVERHEAD);
        String::from_utf8(text.0).map_err(|error| error::broken(&format!("fails: {error}")))
    }
}

/// A rendered text of at most [`MAX_TEXT`] bytes.
struct BoundedText(Vec<u8>);

impl io::Write for BoundedText {
    /// Appends all of `bytes`. Fails, and appends none, if the text would be longer than [`MAX_TEXT`].
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_TEXT {
            return Err(io::Error::other("it makes more text than any model reads"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Collects the template sources in a `chat_template` value of `tokenizer_config.json`, by name: a string is named
/// `default`; a list has objects with `name` and `template`. Of two entries with one name, the last counts. Entries of
/// any other form are left out; any other value gives none.
fn sources_by_name(value: Option<&Json>) -> HashMap<String, String> {
    match value {
        Some(Json::String(source)) => HashMap::from([("default".to_owned(), source.clone())]),
        Some(Json::Array(list)) => list
            .iter()
            .filter_map(|entry| {
                let text = |key| entry.get(key)?.as_str().map(str::to_owned);
                Some((text("name")?, text("template")?))
            })
            .collect(),
        _ => HashMap::new(),
    }
}
