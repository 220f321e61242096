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

/// A schema that was understood.
pub struct Json {
    schema: Option<Value>,
    from: From,
}

impl Verifier for Json {
    type Settings = Settings;

    fn init(settings: Settings) -> Result<Self> {
        let schema = match settings.schema.trim() {
            "" => None,
            text => Some(understood(text).map_err(|problem| Error::new(format!("`schema` {problem}")))?),
        };
        Ok(Self { schema, from: settings.from })
    }

    fn verify(&self, _: &str, completion: &str, answer: &str) -> Option<f32> {
        let own;
        let schema = match (&self.schema, answer.trim()) {
            (Some(schema), _) => schema,
            (None, "") => &Value::Bool(true),
            (None, answer) => {
                own = understood(answer).ok()?;
                &own
            }
        };
        let text = match (self.from, fenced(completion)) {
            (From::Whole, _) | (From::Either, None) => completion,
            (From::Fence, None) => return Some(0.0),
            (_, Some(inside)) => inside,
        };
        let allowed = serde_json::from_str(text.trim()).is_ok_and(|value: Value| schema::allows(schema, &value));
        Some(f32::from(u8::from(allowed)))
    }
}

/// A schema, if it uses only what is understood here.
fn understood(text: &str) -> Result<Value, String> {
    let schema: Value = serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))?;
    schema::check(&schema, 0)?;
    Ok(schema)
}

/// What stands between the first two lines of backticks.
fn fenced(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("```")?;
    let (_, inside) = rest.split_once('\n')?;
    inside.split_once("```").map(|(inside, _)| inside)
}

verifier! { Json }
