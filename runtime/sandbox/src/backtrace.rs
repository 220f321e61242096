//! Call stacks of a method: function names as the author wrote them, with files and lines if the component has debug
//! information.
//!
//! wasmtime's backtraces contain no functions of the host. The modules that `wit-component` adds between the method and
//! its imports are left out here. A function that was inlined into another has a frame of its own.

use tunebox_foundation::explain::Trace;
use wasmtime::{FrameInfo, FrameSymbol, WasmBacktrace};

use crate::printable::printable;

/// The most functions in the call stack of an error message.
const MAX_FRAMES: usize = 20;

/// The longest name of a function or file that is shown, in bytes.
const TEXT_BYTES: usize = 200;

/// Prefixes of source paths that are not the author's: the standard library, the SDK, other crates. `tunebox build`
/// maps paths to them.
const LIBRARY_PREFIXES: [&str; 3] = ["rust/", "tunebox/", "dependencies/"];

/// Prefix of source paths in a precompiled standard library; the hash of its version follows.
const RUSTC_PREFIX: &str = "/rustc/";

/// A place in the source of a method, with an escaped file name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) file: String,
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// A function that was running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Its name, escaped.
    pub(crate) name: String,
    /// The place in the source, if the component has debug information.
    pub(crate) place: Option<Place>,
}

impl Frame {
    /// Creates a frame at `place`. Its name is `name`, demangled, escaped and cut at 200 bytes; if `name` is `None`,
    /// the text that `otherwise` returns, unchanged.
    fn new(name: Option<&str>, otherwise: impl FnOnce() -> String, place: Option<Place>) -> Self {
        let name = name.map_or_else(otherwise, |name| printable(&demangle_name(name), TEXT_BYTES));
        Self { name, place }
    }

    /// Formats the frame as `name at file:line`, or the name alone if the place is unknown.
    pub(crate) fn text(&self) -> String {
        match &self.place {
            Some(place) => format!("{} at {}:{}", self.name, place.file, place.line),
            None => self.name.clone(),
        }
    }

    /// Whether the method's author wrote the function: its file is known and its path does not begin with `rust/` (the
    /// standard library), `tunebox/` (the SDK) or `dependencies/` (other crates).
    pub(crate) fn is_author_code(&self) -> bool {
        self.place.as_ref().is_some_and(|place| !LIBRARY_PREFIXES.iter().any(|start| place.file.starts_with(start)))
    }
}

/// Returns the frames of an engine backtrace, innermost first, inlined functions included. Leaves out the modules that
/// `wit-component` adds.
pub(crate) fn method_frames(trace: &WasmBacktrace) -> Vec<Frame> {
    let method = trace.frames().iter().filter(|frame| !is_encoder_module(frame));
    method.flat_map(expand_inlined).collect()
}

/// Returns the innermost source place in a file of the method's author, else the innermost known place of any frame;
/// `None` if no frame has a place.
pub(crate) fn author_place(frames: &[Frame]) -> Option<Place> {
    let author = frames.iter().find(|frame| frame.is_author_code());
    author.or_else(|| frames.iter().find(|frame| frame.place.is_some())).and_then(|frame| frame.place.clone())
}

/// Builds the call stack of an error message, innermost first: of the functions to list, the innermost 20. Lists the
/// author's functions ([`Frame::is_author_code`]) and those that an author's function called directly; lists all
/// functions if none is the author's. `located` is true if any frame, listed or not, has a place. `None` for no frames.
pub(crate) fn build_trace(frames: &[Frame]) -> Option<Trace> {
    let located = frames.iter().any(|frame| frame.place.is_some());
    let has_author_code = frames.iter().any(Frame::is_author_code);
    let callers = frames.iter().skip(1).map(Frame::is_author_code).chain([false]);
    let listed = frames
        .iter()
        .zip(callers)
        .filter(|(frame, called_by_author)| !has_author_code || frame.is_author_code() || *called_by_author);
    let frames: Vec<String> = listed.take(MAX_FRAMES).map(|(frame, _)| frame.text()).collect();
    (!frames.is_empty()).then_some(Trace { frames, located })
}

/// Whether the frame belongs to a module that `wit-component` adds beside the method's own: one whose name begins with
/// `wit-component:`.
fn is_encoder_module(frame: &FrameInfo) -> bool {
    frame.module().name().is_some_and(|name| name.starts_with("wit-component:"))
}

/// Expands one engine frame into the function and those inlined into it, innermost first. A function without a name is
/// called `function N` by its index.
fn expand_inlined(frame: &FrameInfo) -> Vec<Frame> {
    let number = || format!("function {}", frame.func_index());
    let symbols = frame.symbols();
    if symbols.is_empty() {
        return vec![Frame::new(frame.func_name(), number, None)];
    }
    let last = symbols.len() - 1;
    let function = |(at, symbol): (usize, &FrameSymbol)| {
        // The outermost is the function itself, whose name the component may keep elsewhere.
        let name = symbol.name().or_else(|| frame.func_name().filter(|_| at == last));
        Frame::new(name, number, source_place(symbol))
    };
    symbols.iter().enumerate().map(function).collect()
}

/// Converts a symbol's source location. `None` without a file or line; column 1 if the column is unknown.
fn source_place(symbol: &FrameSymbol) -> Option<Place> {
    Some(Place { file: normalize_path(symbol.file()?), line: symbol.line()?, column: symbol.column().unwrap_or(1) })
}

/// Normalizes a source path, escapes it and cuts it at 200 bytes: `/rustc/HASH/…` becomes `rust/…`, and a leading `./`
/// is removed.
fn normalize_path(path: &str) -> String {
    let compiled = path.strip_prefix(RUSTC_PREFIX).and_then(|rest| rest.split_once('/'));
    match compiled {
        Some((_, rest)) => printable(&format!("rust/{rest}"), TEXT_BYTES),
        None => printable(path.strip_prefix("./").unwrap_or(path), TEXT_BYTES),
    }
}

/// Demangles a Rust symbol name, without its hash; returns any other name unchanged.
fn demangle_name(name: &str) -> String {
    rustc_demangle::try_demangle(name).map_or_else(|_| name.to_owned(), |name| format!("{name:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(name: &str, file: Option<&str>) -> Frame {
        let place = file.map(|file| Place { file: file.into(), line: 7, column: 3 });
        Frame::new(Some(name), String::new, place)
    }

    #[test]
    fn the_place_is_the_innermost_that_the_author_wrote() {
        let frames = [
            frame("panic", Some("rust/library/core/src/panicking.rs")),
            frame("sum", Some("tunebox/src/tensor.rs")),
            frame("step", Some("src/lib.rs")),
        ];
        assert_eq!(author_place(&frames).unwrap().file, "src/lib.rs");
        assert_eq!(author_place(&frames[..2]).unwrap().file, "rust/library/core/src/panicking.rs");
        assert_eq!(author_place(&[frame("step", None)]), None);
    }

    #[test]
    fn names_are_shown_without_what_the_compiler_adds_and_safe() {
        assert_eq!(frame("_ZN4calm4Calm4step17h0123456789abcdefE", None).name, "calm::Calm::step");
        assert_eq!(frame("_RNvCs1234_4calm4step", None).text(), "calm::step");
        assert_eq!(frame("\u{1b}[2J", None).name, "\\u{1b}[2J");
    }

    #[test]
    fn of_what_others_wrote_a_person_sees_what_the_author_called() {
        let (library, sdk) = (Some("rust/library/core/src/panicking.rs"), Some("tunebox/src/method.rs"));
        let frames = [
            frame("abort", None),
            frame("panic", library),
            frame("panic_bounds_check", library),
            frame("stumble", Some("src/lib.rs")),
            frame("fold", library),
            frame("sum", library),
            frame("step", Some("src/lib.rs")),
            frame("running", sdk),
            frame("exported", sdk),
        ];
        let names = |frames: &[Frame]| -> Vec<String> {
            let shown = build_trace(frames).unwrap().frames;
            shown.iter().map(|text| text.split(' ').next().unwrap().to_owned()).collect()
        };
        assert_eq!(names(&frames), ["panic_bounds_check", "stumble", "sum", "step"]);
        assert_eq!(names(&frames[..3]), ["abort", "panic", "panic_bounds_check"]);
    }

    #[test]
    fn files_are_named_from_the_roots_that_a_build_gives_them() {
        assert_eq!(normalize_path("./src/lib.rs"), "src/lib.rs");
        assert_eq!(normalize_path("/rustc/59807616e1fa/library/std/src/rt.rs"), "rust/library/std/src/rt.rs");
        assert_eq!(normalize_path("tunebox/src/\u{1b}.rs"), "tunebox/src/\\u{1b}.rs");
    }

    #[test]
    fn a_person_gets_twenty_functions_and_is_told_whether_there_are_lines() {
        let many = vec![frame("step", Some("src/lib.rs")); 50];
        let shown = build_trace(&many).unwrap();
        assert_eq!((shown.frames.len(), shown.located), (20, true));
        assert_eq!(shown.frames[0], "step at src/lib.rs:7");
        assert!(!build_trace(&[frame("step", None)]).unwrap().located);
        assert_eq!(build_trace(&[]), None);
    }
}
