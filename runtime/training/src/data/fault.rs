//! What can be wrong with training data, down to the line and the column.

use std::path::Path;

use tunebox_foundation::explain::{Explain, Snippet};

use super::record::object;
use super::shape::{Shape, shape_of};
use crate::sample::data_beside;

/// The widest part of a line that is shown in a message.
const SHOWN: usize = 96;

/// Data that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// A line that is wrong.
    #[error("{}", .0.fault)]
    Line(Box<BadLine>),
    /// Nothing that a method could learn from.
    #[error("`{name}` holds no record to learn from")]
    Empty {
        /// The file.
        name: String,
        /// Why, in numbers.
        why: String,
        /// What to do.
        hint: String,
    },
    /// The file broke off while it was read.
    #[error("`{name}` cannot be read")]
    Reading {
        /// The file.
        name: String,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// One line that is wrong.
#[derive(Debug)]
pub struct BadLine {
    /// The file, as named.
    pub name: String,
    /// The line's number, from 1.
    pub line: u64,
    /// The first wrong character, from 1.
    pub column: usize,
    /// The line.
    pub text: String,
    /// What is wrong.
    pub fault: LineFault,
    /// The shapes that a line of the file may have.
    pub wanted: Vec<Shape>,
    /// Whether a line of the file was found that can be used.
    pub others: bool,
}

/// What can be wrong with a line of training data.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LineFault {
    /// The bytes are not text.
    #[error("the line is not UTF-8 text")]
    NotText,
    /// The text is not JSON.
    #[error("the line is not JSON: {0}")]
    NotJson(String),
    /// JSON, but not a record.
    #[error("the line is {0}, a JSON object is wanted")]
    NotObject(&'static str),
    /// A field that the shape needs.
    #[error("`{field}` is missing")]
    Missing {
        /// Its name.
        field: &'static str,
        /// The shape of the record.
        shape: Shape,
        /// The field that probably means it.
        meant: Option<String>,
    },
    /// No known shape.
    #[error("the record has none of the known shapes")]
    Unknown {
        /// The fields that it has.
        fields: Vec<String>,
        /// The shapes that the method takes.
        wanted: Vec<Shape>,
    },
    /// A shape, but not one that this method learns from.
    #[error("the record is {found}, which this method does not learn from")]
    Unwanted {
        /// The shape found.
        found: Shape,
        /// The shapes that the method takes.
        wanted: Vec<Shape>,
    },
    /// A field of another type.
    #[error("`{field}` is {found}, {wanted} is wanted")]
    Type {
        /// Dotted, with list positions.
        field: String,
        /// With its article.
        found: &'static str,
        /// Likewise.
        wanted: &'static str,
    },
    /// A list or text with nothing in it.
    #[error("`{field}` is empty")]
    Blank {
        /// Its name.
        field: String,
    },
    /// A conversation in which nobody answers.
    #[error("no message has the role `assistant`")]
    NoAnswer,
    /// The tokenizer or the chat template refuses the record.
    #[error("{what}")]
    Encoding {
        /// Its words.
        what: String,
        /// What it advises.
        hint: Option<String>,
    },
}

impl LineFault {
    fn why(&self) -> Option<String> {
        match self {
            Self::Missing { shape, .. } => Some(format!("the data is {shape}: every line needs {}", shape.fields())),
            Self::Unknown { fields, .. } if fields.is_empty() => Some("the record has no fields".into()),
            Self::Unknown { fields, .. } => Some(format!("its fields are {}", quoted(fields))),
            Self::NoAnswer => Some("the answers of the assistant are what is learned".into()),
            Self::NotText => Some("JSONL is UTF-8".into()),
            _ => None,
        }
    }

    /// The shapes that a record of another shape should have had one of.
    fn wanted(&self) -> Option<&[Shape]> {
        match self {
            Self::Unknown { wanted, .. } | Self::Unwanted { wanted, .. } => Some(wanted),
            Self::Missing { shape, .. } => Some(std::slice::from_ref(shape)),
            _ => None,
        }
    }

    fn advice(&self, shapes: &[Shape]) -> String {
        match self {
            Self::Missing { field, meant: Some(meant), .. } => format!("did you mean `{field}` by `{meant}`?"),
            Self::Unknown { fields, wanted } => renamed(fields).unwrap_or_else(|| takes(wanted)),
            Self::Unwanted { wanted, .. } => takes(wanted),
            Self::NotJson(_) | Self::NotObject(_) => every_line(shapes),
            Self::NotText => "save the file as UTF-8".into(),
            Self::Encoding { hint: Some(hint), .. } => hint.clone(),
            _ => "mend the line".into(),
        }
    }
}

/// What a line looks like, by one of the shapes that it may have.
pub(super) fn every_line(shapes: &[Shape]) -> String {
    let usual = shapes.iter().find(|shape| **shape == Shape::PromptCompletion).or(shapes.first());
    let example = usual.copied().unwrap_or(Shape::PromptCompletion).example();
    format!("every line is one JSON object, such as {example}")
}

fn takes(wanted: &[Shape]) -> String {
    let fields: Vec<&str> = wanted.iter().map(|shape| shape.fields()).collect();
    format!("this method takes records with {}", fields.join(", or "))
}

/// Other programs' names for the same things.
fn renamed(fields: &[String]) -> Option<String> {
    let has = |name: &str| fields.iter().any(|field| field == name);
    if has("conversations") {
        return Some("rename `conversations` to `messages`, `from` to `role` and `value` to `content`".into());
    }
    if has("instruction") {
        return Some("rename `instruction` to `prompt` and `output` to `completion`".into());
    }
    has("response").then(|| "rename `response` to `completion`".into())
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

impl BadLine {
    /// What to do where the file is one of the sample's, with records of another shape than the method takes.
    fn of_sample(&self) -> Option<String> {
        let wanted = self.fault.wanted()?;
        let fits = |line: &[u8]| {
            let shape = object(line).and_then(|(text, object)| shape_of(text, &object, Shape::all()));
            shape.is_ok_and(|shape| wanted.contains(&shape))
        };
        // The very file may begin with a record that fits, and end with one that does not.
        let fitting = data_beside(Path::new(&self.name), fits).filter(|fitting| fitting != Path::new(&self.name))?;
        Some(format!(
            "{}; `{}` has such records: name it in the run file, or use `tunebox train --sample` with the same `--method`",
            takes(wanted),
            fitting.display()
        ))
    }

    /// The line cut to what fits a terminal, and the column in what is left.
    fn shown(&self) -> (String, usize) {
        let characters: Vec<char> = self.text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        if characters.len() <= SHOWN {
            return (characters.into_iter().collect(), self.column);
        }
        let start = self.column.saturating_sub(SHOWN / 2).min(characters.len() - SHOWN);
        let part: String = characters[start..start + SHOWN].iter().collect();
        let front = if start > 0 { "…" } else { "" };
        let back = if start + SHOWN < characters.len() { "…" } else { "" };
        (format!("{front}{part}{back}"), self.column - start + front.chars().count())
    }
}

impl Explain for DataError {
    fn category(&self) -> &'static str {
        "data"
    }

    fn location(&self) -> Option<String> {
        match self {
            Self::Line(bad) => Some(format!("{}:{}:{}", bad.name, bad.line, bad.column)),
            _ => None,
        }
    }

    fn snippet(&self) -> Option<Snippet> {
        let Self::Line(bad) = self else { return None };
        let (text, column) = bad.shown();
        Some(Snippet { line: usize::try_from(bad.line).unwrap_or(usize::MAX), text, column, width: 1, note: None })
    }

    fn why(&self) -> Option<String> {
        match self {
            Self::Line(bad) => bad.fault.why(),
            Self::Empty { why, .. } => Some(why.clone()),
            Self::Reading { source, .. } => Some(source.to_string()),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Line(bad) if bad.others => {
                let advice = bad.fault.advice(&bad.wanted);
                Some(format!("{advice}; `--set data.skip-bad=true` leaves such lines out"))
            }
            Self::Line(bad) => Some(bad.of_sample().unwrap_or_else(|| bad.fault.advice(&bad.wanted))),
            Self::Empty { hint, .. } => Some(hint.clone()),
            Self::Reading { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_no_record_is_shown_what_the_method_takes() {
        let told = |method: &str| LineFault::NotJson("broken".into()).advice(&Shape::of_method(method).unwrap());
        let pair = r#"every line is one JSON object, such as {"prompt": "…", "chosen": "…", "rejected": "…"}"#;
        assert_eq!(told("preference"), pair);
        assert!(told("supervised").ends_with(r#"such as {"prompt": "…", "completion": "…"}"#));
        for shape in Shape::all() {
            let (text, object) = object(shape.example().as_bytes()).unwrap();
            assert_eq!(shape_of(text, &object, &[*shape]).unwrap(), *shape);
        }
    }

    #[test]
    fn records_of_another_shape_in_the_sample_are_told_with_the_file_that_fits() {
        let hint = |name: &str, shape| {
            let wanted = vec![shape];
            let fault = LineFault::Unwanted { found: Shape::Messages, wanted: wanted.clone() };
            let bad =
                BadLine { name: name.into(), line: 1, column: 1, text: "{}".into(), fault, wanted, others: false };
            DataError::Line(Box::new(bad)).hint().unwrap()
        };
        for (shape, file) in [(Shape::Unpaired, "kto"), (Shape::Prompts, "grpo"), (Shape::Contrast, "steer")] {
            let told = hint("calm/runs/.sample/lora.jsonl", shape);
            assert!(told.contains(&format!("; `calm/runs/.sample/{file}.jsonl` has such records: ")), "{told}");
        }
        // A later line of it: no other file is named for it, nor itself.
        assert_eq!(
            hint("calm/runs/.sample/kto.jsonl", Shape::Unpaired),
            "this method takes records with `prompt`, `completion` and `label`"
        );
        assert_eq!(
            hint("lora.jsonl", Shape::Unpaired),
            "this method takes records with `prompt`, `completion` and `label`"
        );
    }
}
