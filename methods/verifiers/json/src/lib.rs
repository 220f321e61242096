//! 1 where the completion is JSON that a schema allows.

mod schema;

use serde_json::Value;
use tunebox::prelude::*;

/// The schema, and where the JSON stands.
#[derive(Settings)]
pub struct Settings {
    /// A JSON Schema: the part of it that the README lists. Empty takes the record's answer as the schema, or any
    /// JSON where that is empty too.
    #[setting(default = "")]
    schema: String,

    /// Where the JSON stands: `whole`, the completion is nothing else; `fence`, in the first fenced block; `either`,
    /// in the first fenced block where there is one.
    #[setting(default = "either")]
    from: From,
}

/// Where the JSON stands.
#[derive(Choice, Clone, Copy, PartialEq)]
enum From {
    Whole,
    Fence,
    Either,
}

/// The verifier: the schema of the settings, if they have one, and where the JSON is.
pub struct Json {
    schema: Option<Value>,
    from: From,
}

impl Verifier for Json {
    type Settings = Settings;

    fn init(settings: Settings) -> Result<Self> {
        let schema = match settings.schema.trim() {
            "" => None,
            text => Some(parse_schema(text).map_err(|problem| Error::new(format!("`schema` {problem}")))?),
        };
        Ok(Self { schema, from: settings.from })
    }

    fn verify(&self, _: &str, completion: &str, answer: &str) -> Option<f32> {
        let own;
        let schema = match (&self.schema, answer.trim()) {
            (Some(schema), _) => schema,
            (None, "") => &Value::Bool(true),
            (None, answer) => {
                own = parse_schema(answer).ok()?;
                &own
            }
        };
        let text = match (self.from, code_block(completion)) {
            (From::Whole, _) | (From::Either, None) => completion,
            (From::Fence, None) => return Some(0.0),
            (_, Some(inside)) => inside,
        };
        let allowed = serde_json::from_str(text.trim()).is_ok_and(|value: Value| schema::allows(schema, &value));
        Some(f32::from(u8::from(allowed)))
    }
}

/// Parses a schema. Errors, which complete a sentence that begins with `` `schema` ``: no JSON, and keywords that are
/// not supported.
fn parse_schema(text: &str) -> Result<Value, String> {
    let schema: Value = serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))?;
    schema::check(&schema, 0)?;
    Ok(schema)
}

/// The contents of the first code block, between two fences of three backticks. `None` if there is none.
fn code_block(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("```")?;
    let (_, inside) = rest.split_once('\n')?;
    inside.split_once("```").map(|(inside, _)| inside)
}

verifier! { Json }
