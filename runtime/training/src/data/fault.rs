//! What is wrong with a line of training data: an explanation without the location in the file, which `dataset` adds.

use tunebox_foundation::explain::Explanation;

use super::shape::Shape;

/// What is wrong with a line. Boxed: a result is moved for every record.
pub(super) type Fault = Box<Explanation>;

/// What is wrong with a line, and the column of it, from 1, in characters.
pub(super) type LocatedFault = (Fault, usize);

/// A field of the wrong type; both types with their article.
pub(super) fn wrong_type(field: &str, found: &str, wanted: &str) -> Fault {
    Explanation::new("data", format!("`{field}` is {found}, {wanted} is wanted")).into()
}

/// A text or list without content.
pub(super) fn empty(field: &str) -> Fault {
    Explanation::new("data", format!("`{field}` is empty")).into()
}

/// A record that lacks a field of its shape; `similar` is the field that was probably meant as it.
pub(super) fn missing(field: &str, shape: Shape, similar: Option<&str>) -> Fault {
    let hint = similar.map(|similar| format!("did you mean `{field}` by `{similar}`?"));
    let why = format!("the data is {shape}: every line needs {}", shape.fields());
    Explanation { hint, ..Explanation::new("data", format!("`{field}` is missing")).with_why(why) }.into()
}

/// A record of a shape that the method does not learn from.
pub(super) fn unwanted(found: Shape, wanted: &[Shape]) -> Fault {
    Explanation::new("data", format!("the record is {found}, which this method does not learn from"))
        .with_hint(accepted_fields(wanted))
        .into()
}

/// A record with fields of no known shape.
pub(super) fn unknown_shape(fields: &[&str], wanted: &[Shape]) -> Fault {
    let quoted = fields.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let why = if fields.is_empty() { "the record has no fields".into() } else { format!("its fields are {quoted}") };
    let hint = rename_hint(fields).map_or_else(|| accepted_fields(wanted), str::to_owned);
    Explanation::new("data", "the record has none of the known shapes").with_why(why).with_hint(hint).into()
}

/// An example of a valid line in one of the shapes; prefers a prompt with its completion.
pub(super) fn example_line(shapes: &[Shape]) -> String {
    let shape = shapes.iter().find(|shape| **shape == Shape::PromptCompletion).or(shapes.first());
    let example = shape.copied().unwrap_or(Shape::PromptCompletion).facts().example;
    format!("every line is one JSON object, such as {example}")
}

/// The fields of the shapes that a method learns from.
pub(super) fn accepted_fields(wanted: &[Shape]) -> String {
    let fields: Vec<&str> = wanted.iter().map(|shape| shape.fields()).collect();
    format!("this method takes records with {}", fields.join(", or "))
}

/// How to rename fields that other programs use for the same content.
fn rename_hint(fields: &[&str]) -> Option<&'static str> {
    [
        ("conversations", "rename `conversations` to `messages`, `from` to `role` and `value` to `content`"),
        ("instruction", "rename `instruction` to `prompt` and `output` to `completion`"),
        ("response", "rename `response` to `completion`"),
    ]
    .into_iter()
    .find_map(|(name, hint)| fields.contains(&name).then_some(hint))
}
