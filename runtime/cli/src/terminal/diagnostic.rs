//! Failures of commands as text and JSON: what, where, why, what was kept, what to do.
//!
//! The only place where errors become text; libraries return an [`Explanation`].

use std::io::Write as _;

use anstyle::{AnsiColor, Style};
use tunebox_foundation::explain::{Exit, Explain, Explanation, Snippet};
use tunebox_foundation::printable::is_unprintable;

use super::{Terminal, escape, width, wrap_after};

/// The result of a command.
pub(crate) type CommandResult = Result<ExitStatus, Failure>;

/// How a command that did not fail ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    /// Exit code 0.
    Success,
    /// The exit code of a check that found something, or of an interrupted run. The command has written its messages.
    Code(Exit),
}

/// An error that ends a command: its explanation and exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) explanation: Box<Explanation>,
    pub(crate) exit: Exit,
}

impl<E: Explain> From<E> for Failure {
    /// Creates a failure with the explanation and the exit code of a library's error.
    fn from(error: E) -> Self {
        Self::new(error.explanation(), error.exit())
    }
}

impl std::fmt::Display for Failure {
    /// Writes the sentence that says what happened, without the other parts.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.explanation.what)
    }
}

impl Failure {
    /// Creates a failure with an explanation and the exit code of the process.
    pub(crate) fn new(explanation: Explanation, exit: Exit) -> Self {
        Self { explanation: Box::new(explanation), exit }
    }

    /// Creates the failure of a wrong use of the command line, with what is wrong and a hint what to do: exit code 2.
    pub(crate) fn usage(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Explanation::new("usage", what).with_hint(hint), Exit::Usage)
    }

    /// Copies the explanation with every character escaped that acts on a terminal. File names and parser messages may
    /// hold any bytes. The source line of the snippet stays as it is; [`cut_line`] replaces its characters.
    fn escape_explanation(&self) -> Explanation {
        let mut explanation = Explanation::clone(&self.explanation);
        escape_parts(&mut explanation);
        explanation.further.iter_mut().for_each(escape_parts);
        explanation
    }

    /// Formats the failure for a terminal of `width` columns, with colors: each of its errors as [`format_error`] does,
    /// with an empty line between two.
    pub(crate) fn text(&self, verbose: bool, width: usize) -> String {
        let first = self.escape_explanation();
        let errors = std::iter::once(&first).chain(&first.further);
        errors.map(|error| format_error(error, verbose, width)).collect::<Vec<_>>().join("\n")
    }

    /// The failure as a JSON object with `"event": "error"`. Further errors are a list of such objects, without that
    /// key, in `further`, which is left out if there are none.
    pub(crate) fn json(&self) -> serde_json::Value {
        let first = self.escape_explanation();
        let mut event = error_json(&first);
        if let Some(event) = event.as_object_mut() {
            event.shift_insert(0, "event".into(), "error".into());
            event.insert("exit".into(), (self.exit as u8).into());
        }
        if !first.further.is_empty() {
            event["further"] = first.further.iter().map(error_json).collect();
        }
        event
    }

    /// Writes the failure: as a JSON object to stdout with `--json`, else as text to stderr.
    pub(crate) fn show(&self, terminal: Terminal) {
        if terminal.json {
            terminal.event(self.json());
        } else {
            // A failure to report has nowhere to be reported.
            let _ = anstream::stderr().write_all(self.text(terminal.verbose, width()).as_bytes());
        }
    }
}

/// Escapes every character that acts on a terminal in the texts of one error, except its further errors and the source
/// line of its snippet.
fn escape_parts(explanation: &mut Explanation) {
    explanation.what = escape(&explanation.what);
    let Explanation { location, output, why, kept, hint, snippet, trace, .. } = explanation;
    let note = snippet.as_mut().and_then(|snippet| snippet.note.as_mut());
    let lines = [location, output, why, kept, hint].into_iter().filter_map(Option::as_mut).chain(note);
    for line in lines.chain(trace.iter_mut().flat_map(|trace| &mut trace.frames)) {
        *line = escape(line);
    }
}

/// Returns the parts of one error as a JSON object, without its further errors.
fn error_json(error: &Explanation) -> serde_json::Value {
    serde_json::json!({
        "area": error.category, "what": error.what, "place": error.location, "output": error.output, "why": error.why,
        "kept": error.kept, "hint": error.hint, "frames": error.trace.as_ref().map(|trace| &trace.frames),
    })
}

/// Formats one error, with colors: category and title, then the output if there is one, else location and source line,
/// then why, what was kept, the hint, and the frames of the method. Frames are left out unless `verbose` is true or the
/// method was built with line numbers. Breaks the title, why, what was kept and the hint at spaces to lines of `width`
/// characters.
fn format_error(error: &Explanation, verbose: bool, width: usize) -> String {
    let (red, bold, blue) = (bold(AnsiColor::Red), Style::new().bold(), bold(AnsiColor::Blue));
    let title = wrap_after(format!("error[{}]: ", error.category).len(), &error.what, width);
    let mut text = format!("{red}error[{}]{red:#}{bold}: {title}{bold:#}\n", error.category);
    match &error.output {
        Some(output) => text += &format!("{output}\n"),
        None => text += &format_location(error.location.as_deref(), error.snippet.as_ref()),
    }
    for (label, line) in [("why: ", &error.why), ("kept:", &error.kept), ("hint:", &error.hint)] {
        if let Some(line) = line {
            text += &format!("{blue}{label}{blue:#} {}\n", wrap_after(label.len() + 1, line, width));
        }
    }
    let frames = error.trace.iter().filter(|trace| verbose || trace.located).flat_map(|trace| &trace.frames);
    for (index, frame) in frames.enumerate() {
        let label = if index == 0 { "from:" } else { "     " };
        text += &format!("{blue}{label}{blue:#} {frame}\n");
    }
    text
}

/// A bold style in this color.
fn bold(color: AnsiColor) -> Style {
    Style::new().bold().fg_color(Some(color.into()))
}

/// Formats the line `--> path:line:column` and the excerpt of the source under it. Each is left out if it is `None`.
fn format_location(place: Option<&str>, snippet: Option<&Snippet>) -> String {
    let blue = bold(AnsiColor::Blue);
    let width = snippet.map_or(0, |snippet| snippet.line.to_string().len());
    let place = place.map_or(String::new(), |place| format!("{:width$} {blue}-->{blue:#} {place}\n", ""));
    place + &snippet.map_or(String::new(), |snippet| format_excerpt(snippet, width))
}

/// Formats a source line with its number, and carets with the note under the wrong part; no carets if the column is 0.
/// `width` is the number of characters of the line number.
fn format_excerpt(snippet: &Snippet, width: usize) -> String {
    let (blue, red) = (bold(AnsiColor::Blue), bold(AnsiColor::Red));
    let bar = format!("{:width$} {blue}|{blue:#}", "");
    let (line, offset) = cut_line(&snippet.text, snippet.column);
    let mut text = format!("{bar}\n{blue}{:width$} |{blue:#} {line}\n", snippet.line);
    if snippet.column > 0 {
        let carets = "^".repeat(snippet.width.clamp(1, 80));
        let note = snippet.note.as_deref().map_or(String::new(), |note| format!(" {note}"));
        text += &format!("{bar} {}{red}{carets}{note}{red:#}\n", " ".repeat(offset));
    } else {
        text += &format!("{bar}\n");
    }
    text
}

/// Cuts at most 100 characters of a line around `column` (from 1) and marks cut ends with `…`. Returns the text and the
/// column's offset in it, from 0. Replaces each tab or unprintable character by one character, so carets stay aligned.
fn cut_line(line: &str, column: usize) -> (String, usize) {
    let at = column.saturating_sub(1);
    let first = at.saturating_sub(60);
    let replace = |character: char| match character {
        '\t' => ' ',
        _ if is_unprintable(character) => char::REPLACEMENT_CHARACTER,
        _ => character,
    };
    let shown: String = line.chars().skip(first).take(100).map(replace).collect();
    let (head, tail) = (if first > 0 { "…" } else { "" }, if line.chars().count() > first + 100 { "…" } else { "" });
    (format!("{head}{shown}{tail}"), at - first + head.chars().count())
}

#[cfg(test)]
mod tests {
    use tunebox_foundation::explain::Trace;

    use super::*;

    #[test]
    fn a_failure_has_no_characters_that_act_on_a_terminal() {
        let bad = "\u{1b}[2J\u{202e}";
        let snippet = Snippet { line: 1, text: format!("a{bad}X"), column: 7, width: 1, note: Some(bad.into()) };
        let (kept, trace) = (Some(bad.into()), Some(Trace { frames: vec![bad.into()], located: true }));
        let explanation = Explanation::new("file", bad).with_location(bad).with_snippet(snippet).with_why(bad);
        let explanation = Explanation { kept, trace, ..explanation.with_hint(bad) };
        let compiler = Explanation { output: Some(bad.into()), ..explanation.clone() };
        for (explanation, times) in [(explanation, 7), (compiler, 6)] {
            let failure = Failure::new(explanation, Exit::Usage);
            let text = failure.text(false, usize::MAX);
            assert!(!text.contains("\u{1b}[2J") && !text.contains('\u{202e}'), "{text}");
            assert_eq!(text.matches("\\u{1b}[2J\\u{202e}").count(), times, "{text}");
            assert!(!failure.json().to_string().contains('\u{202e}'), "{}", failure.json());
        }
    }

    #[test]
    fn further_errors_are_shown_after_the_first_and_listed_in_its_event() {
        let further = vec![Explanation::new("config", "b\u{1b}[2J").with_hint("fix b")];
        let failure = Failure::new(Explanation { further, ..Explanation::new("config", "a") }, Exit::Usage);
        let text = anstream::adapter::strip_str(&failure.text(false, usize::MAX)).to_string();
        assert_eq!(text, "error[config]: a\n\nerror[config]: b\\u{1b}[2J\nhint: fix b\n");
        let event = failure.json();
        assert_eq!((&event["event"], &event["exit"]), (&"error".into(), &2.into()));
        assert_eq!((event["what"].as_str(), event["further"][0]["hint"].as_str()), (Some("a"), Some("fix b")));
        assert_eq!(Failure::usage("a", "b").json()["further"], serde_json::Value::Null);
    }

    #[test]
    fn a_long_title_and_a_long_reason_are_broken_at_the_width_of_the_terminal() {
        let words = "one two three four five six";
        let failure = Failure::new(Explanation::new("data", words).with_why(words), Exit::Usage);
        let text = anstream::adapter::strip_str(&failure.text(false, 28)).to_string();
        let title = "error[data]: one two three four\n             five six\n";
        assert_eq!(text, format!("{title}why:  one two three four\n      five six\n"));
    }

    #[test]
    fn replaced_characters_keep_the_carets_aligned() {
        assert_eq!(cut_line("\ta\u{202e}\u{1b}X", 5), (" a\u{fffd}\u{fffd}X".to_owned(), 4));
    }

    #[test]
    fn compiler_output_replaces_the_excerpt() {
        let output = " --> src/lib.rs:4:9\n  |\n4 | lose\n  | ^^^^ help: `loss`".to_owned();
        let explanation = Explanation {
            output: Some(output.clone()),
            ..Explanation::new("build", "no `lose`").with_location("src/lib.rs:4:9").with_hint("look")
        };
        let failure = Failure::new(explanation, Exit::Usage);
        let text = anstream::adapter::strip_str(&failure.text(false, usize::MAX)).to_string();
        assert_eq!(text, format!("error[build]: no `lose`\n{output}\nhint: look\n"));
        assert_eq!(failure.json()["output"], output);
    }

    #[test]
    fn a_long_line_is_cut_around_the_column() {
        let line = format!("{}X{}", "a".repeat(300), "b".repeat(300));
        let (shown, offset) = cut_line(&line, 301);
        assert_eq!(shown.chars().nth(offset), Some('X'));
        assert!(shown.chars().count() <= 102);
    }
}
