//! Turns an error into the text a person reads: what, where, why, what was kept, what to do.
//!
//! The only place where errors become text; libraries hand over an [`Explanation`].

use anstyle::{AnsiColor, Style};
use tunebox_foundation::explain::{Exit, Explain, Explanation, Snippet};
use tunebox_foundation::paths;
use tunebox_foundation::printable::is_unprintable;

use super::shown;

/// What ends a command early: the words, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) explanation: Box<Explanation>,
    pub(crate) exit: Exit,
}

impl<E: Explain> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { explanation: Box::new(error.explanation()), exit: error.exit() }
    }
}

impl Failure {
    /// A wrong use of the command line.
    pub(crate) fn usage(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { explanation: Box::new(Explanation::new("usage", what).with_hint(hint)), exit: Exit::Usage }
    }

    /// A package that is not what it should be.
    pub(crate) fn trust(what: impl Into<String>, why: impl Into<String>, hint: impl Into<String>) -> Self {
        let explanation = Explanation::new("trust", what).with_why(why).with_kept("nothing ran").with_hint(hint);
        Self { explanation: Box::new(explanation), exit: Exit::Trust }
    }

    /// A file that could not be read or written.
    pub(crate) fn file(path: &std::path::Path, error: &std::io::Error) -> Self {
        let what = format!("`{}` cannot be used", path.display());
        let mut explanation = Explanation::new("file", what).with_why(paths::describe_io_error(error));
        explanation.hint = paths::hint_for_io_error(path, error);
        Self { explanation: Box::new(explanation), exit: Exit::Usage }
    }

    /// What there is to say, however it came here: names of files, and what parsers repeat of a stranger's bytes, may
    /// hold anything. The line of a snippet is left, which [`around`] shows a part of.
    fn harmless(&self) -> Explanation {
        let mut explanation = Explanation::clone(&self.explanation);
        explanation.what = shown(&explanation.what);
        let Explanation { location, output, why, kept, hint, snippet, trace, .. } = &mut explanation;
        let note = snippet.as_mut().and_then(|snippet| snippet.note.as_mut());
        let lines = [location, output, why, kept, hint].into_iter().filter_map(Option::as_mut).chain(note);
        for line in lines.chain(trace.iter_mut().flat_map(|trace| &mut trace.frames)) {
            *line = shown(line);
        }
        explanation
    }

    /// The failure as text, coloured when the terminal shows colours. The functions of a method that were running are
    /// for those who ask, and for authors.
    pub(crate) fn text(&self, verbose: bool) -> String {
        let e = self.harmless();
        let (red, bold, blue) = (colour(AnsiColor::Red).bold(), Style::new().bold(), colour(AnsiColor::Blue).bold());
        let mut text = format!("{red}error[{}]{red:#}{bold}: {}{bold:#}\n", e.category, e.what);
        match &e.output {
            Some(output) => text += &format!("{output}\n"),
            None => text += &located(e.location.as_deref(), e.snippet.as_ref()),
        }
        for (word, line) in [("why: ", &e.why), ("kept:", &e.kept), ("hint:", &e.hint)] {
            if let Some(line) = line {
                text += &format!("{blue}{word}{blue:#} {line}\n");
            }
        }
        let frames = e.trace.iter().filter(|trace| verbose || trace.located).flat_map(|trace| &trace.frames);
        for (place, frame) in frames.enumerate() {
            let word = if place == 0 { "from:" } else { "     " };
            text += &format!("{blue}{word}{blue:#} {frame}\n");
        }
        text
    }

    /// The failure as one JSON object.
    pub(crate) fn json(&self) -> serde_json::Value {
        let e = self.harmless();
        serde_json::json!({
            "schema": 1, "event": "error", "area": e.category, "what": e.what, "place": e.location,
            "output": e.output, "why": e.why, "kept": e.kept, "hint": e.hint, "exit": self.exit as u8,
            "frames": e.trace.as_ref().map(|trace| &trace.frames),
        })
    }
}

fn colour(colour: AnsiColor) -> Style {
    Style::new().fg_color(Some(colour.into()))
}

/// Where something is wrong, with the line if it is known.
fn located(place: Option<&str>, snippet: Option<&Snippet>) -> String {
    let blue = colour(AnsiColor::Blue).bold();
    let width = snippet.map_or(0, |snippet| snippet.line.to_string().len());
    let place = place.map_or(String::new(), |place| format!("{:width$} {blue}-->{blue:#} {place}\n", ""));
    place + &snippet.map_or(String::new(), |snippet| excerpt(snippet, width))
}

/// The line that is wrong, with carets under the part that is.
fn excerpt(snippet: &Snippet, width: usize) -> String {
    let (blue, red) = (colour(AnsiColor::Blue).bold(), colour(AnsiColor::Red).bold());
    let bar = format!("{:width$} {blue}|{blue:#}", "");
    let (shown, lead) = around(&snippet.text, snippet.column);
    let mut text = format!("{bar}\n{blue}{:width$} |{blue:#} {shown}\n", snippet.line);
    if snippet.column > 0 {
        let carets = "^".repeat(snippet.width.clamp(1, 80));
        let note = snippet.note.as_deref().map_or(String::new(), |note| format!(" {note}"));
        text += &format!("{bar} {}{red}{carets}{note}{red:#}\n", " ".repeat(lead));
    } else {
        text += &format!("{bar}\n");
    }
    text
}

/// A window of at most 100 characters around a column, and where the column falls in it. Each stays one
/// character, so that the carets meet theirs.
fn around(line: &str, column: usize) -> (String, usize) {
    let at = column.saturating_sub(1);
    let first = at.saturating_sub(60);
    let seen = |character: char| match character {
        '\t' => ' ',
        _ if is_unprintable(character) => char::REPLACEMENT_CHARACTER,
        _ => character,
    };
    let shown: String = line.chars().skip(first).take(100).map(seen).collect();
    let (head, tail) = (if first > 0 { "…" } else { "" }, if line.chars().count() > first + 100 { "…" } else { "" });
    (format!("{head}{shown}{tail}"), at - first + head.chars().count())
}

#[cfg(test)]
mod tests {
    use tunebox_foundation::explain::Trace;

    use super::*;

    #[test]
    fn what_an_error_repeats_of_a_stranger_does_nothing_to_the_terminal() {
        let bad = "\u{1b}[2J\u{202e}";
        let snippet = Snippet { line: 1, text: format!("a{bad}X"), column: 7, width: 1, note: Some(bad.into()) };
        let (kept, trace) = (Some(bad.into()), Some(Trace { frames: vec![bad.into()], located: true }));
        let explanation = Explanation::new("file", bad).with_location(bad).with_snippet(snippet).with_why(bad);
        let explanation = Explanation { kept, trace, ..explanation.with_hint(bad) };
        let of_a_compiler = Explanation { output: Some(bad.into()), ..explanation.clone() };
        for (explanation, times) in [(explanation, 7), (of_a_compiler, 6)] {
            let failure = Failure { explanation: Box::new(explanation), exit: Exit::Usage };
            let text = failure.text(false);
            assert!(!text.contains("\u{1b}[2J") && !text.contains('\u{202e}'), "{text}");
            assert_eq!(text.matches("\\u{1b}[2J\\u{202e}").count(), times, "{text}");
            assert!(!failure.json().to_string().contains('\u{202e}'), "{}", failure.json());
        }
    }

    #[test]
    fn what_would_act_in_a_line_leaves_the_place_under_its_carets() {
        assert_eq!(around("\ta\u{202e}\u{1b}X", 5), (" a\u{fffd}\u{fffd}X".to_owned(), 4));
    }

    #[test]
    fn what_a_compiler_shows_stands_in_place_of_our_own_excerpt() {
        let output = " --> src/lib.rs:4:9\n  |\n4 | lose\n  | ^^^^ help: `loss`".to_owned();
        let explanation = Explanation {
            output: Some(output.clone()),
            ..Explanation::new("build", "no `lose`").with_location("src/lib.rs:4:9").with_hint("look")
        };
        let failure = Failure { explanation: Box::new(explanation), exit: Exit::Usage };
        let text = anstream::adapter::strip_str(&failure.text(false)).to_string();
        assert_eq!(text, format!("error[build]: no `lose`\n{output}\nhint: look\n"));
        assert_eq!(failure.json()["output"], output);
    }

    #[test]
    fn a_long_line_is_shown_around_the_place() {
        let line = format!("{}X{}", "a".repeat(300), "b".repeat(300));
        let (shown, lead) = around(&line, 301);
        assert_eq!(shown.chars().nth(lead), Some('X'));
        assert!(shown.chars().count() <= 102);
    }
}
