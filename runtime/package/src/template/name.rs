//! The names that a new method, verifier or environment can have: those that a manifest allows, without those that are
//! reserved or built in.

use heck::ToKebabCase;
use tunebox_foundation::explain::Explanation;

use crate::{Error, builtin};

/// What a method, verifier or environment is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// Rust, with the SDK of this program.
    Rust,
    /// Python, with the package of this program.
    Python,
}

/// The most letters of a name.
const MAX_LETTERS: usize = 64;

const ANOTHER_NAME: &str = "another name, such as `calm-dpo`";

/// Names that some file systems reserve.
const RESERVED: &str = "aux con nul prn";

/// Names that rustc or cargo reserve, and `tunebox`, the crate of the SDK.
const RESERVED_IN_RUST: &str = "abstract alloc as async await become box break build const continue core crate deps do \
    dyn else enum examples extern false final fn for gen if impl in incremental let loop macro match mod move mut \
    override priv proc-macro pub ref return self static std struct super test trait true try tunebox type typeof union \
    unsafe unsized use virtual where while yield";

/// Modules of Python's standard library (3.11 to 3.14), and those that stand beside a method's own in its component.
const RESERVED_IN_PYTHON: &str = "abc aifc annotationlib antigravity argparse array ast asynchat asyncio asyncore \
    atexit audioop base64 bdb binascii bisect builtins bz2 calendar cgi cgitb chunk cmath cmd code codecs codeop \
    collections colorsys compileall compression concurrent configparser contextlib contextvars copy copyreg crypt \
    csv ctypes curses dataclasses datetime dbm decimal difflib dis distutils doctest email encodings ensurepip enum \
    errno faulthandler fcntl filecmp fileinput fnmatch fractions ftplib functools gc genericpath getopt getpass \
    gettext glob graphlib grp gzip hashlib heapq hmac html http idlelib imaplib imghdr imp importlib inspect io \
    ipaddress itertools json keyword lib2to3 linecache locale logging lzma mailbox mailcap marshal math mimetypes \
    mmap modulefinder msilib msvcrt multiprocessing netrc nis nntplib nt ntpath nturl2path numbers opcode operator \
    optparse os ossaudiodev pathlib pdb pickle pickletools pipes pkgutil platform plistlib poplib posix posixpath \
    pprint profile pstats pty pwd py_compile pyclbr pydoc pydoc_data pyexpat queue quopri random re readline reprlib \
    resource rlcompleter runpy sched secrets select selectors shelve shlex shutil signal site smtpd smtplib sndhdr \
    socket socketserver spwd sqlite3 sre_compile sre_constants sre_parse ssl stat statistics string stringprep \
    struct subprocess sunau symtable sys sysconfig syslog tabnanny tarfile telnetlib tempfile termios textwrap this \
    threading time timeit tkinter token tokenize tomllib trace traceback tracemalloc tty tunebox tunebox_entry \
    turtle turtledemo types typing unicodedata unittest urllib uu uuid venv warnings wave weakref webbrowser winreg \
    winsound wit_world wsgiref xdrlib xml xmlrpc zipapp zipfile zipimport zlib zoneinfo";

/// Fails if a name is not of the form that [`normalize_name`] gives, if the tools of `language` or a file system
/// reserve it, or if a built-in method or verifier has it. For a name of the wrong form, the error suggests what
/// [`normalize_name`] makes of it, if that is free.
pub(super) fn check_name(name: &str, language: Language) -> Result<(), Error> {
    let refused = |name: &str| Explanation::new("new", format!("`{name}` cannot be the name"));
    let good = normalize_name(name);
    if good.as_deref() != Some(name) {
        let name: String = name.escape_debug().take(MAX_LETTERS).collect();
        let nearest = good.filter(|good| !is_reserved(good, language) && !is_taken(good));
        let hint = nearest.map_or_else(|| ANOTHER_NAME.to_owned(), |nearest| format!("`tunebox new {nearest}`"));
        let why = "names are lower-case words joined by hyphens, as in `calm-dpo`";
        return Err(refused(&name).with_why(why).with_hint(hint).into());
    }
    if is_reserved(name, language) {
        let why = match language {
            Language::Rust => "the compiler, cargo or a file system keeps that word for itself",
            Language::Python => "a module of Python or tunebox has that name, or a file system keeps it for itself",
        };
        return Err(refused(name).with_why(why).with_hint(ANOTHER_NAME).into());
    }
    if is_taken(name) {
        let error = Explanation::new("new", format!("`{name}` is built in"))
            .with_why("in a run file this name always means that one");
        let hint = format!("another name; `tunebox new my-{name} --like {name}` begins with its source");
        return Err(error.with_hint(hint).into());
    }
    Ok(())
}

/// Whether a method cannot have this name: a file system reserves it ([`RESERVED`]), Rust's tools do
/// ([`RESERVED_IN_RUST`]), or Python does for the module that is named after it ([`RESERVED_IN_PYTHON`]).
fn is_reserved(name: &str, language: Language) -> bool {
    let (words, own) = match language {
        Language::Rust => (RESERVED_IN_RUST, name.to_owned()),
        Language::Python => (RESERVED_IN_PYTHON, python_module(name)),
    };
    words.split_whitespace().any(|word| word == own) || RESERVED.split_whitespace().any(|word| word == name)
}

/// Returns the name of the Python module for a method: its name with underscores in place of hyphens.
pub(super) fn python_module(name: &str) -> String {
    name.replace('-', "_")
}

/// Whether a built-in method or verifier has this name: the name would always mean that one.
fn is_taken(name: &str) -> bool {
    builtin::find(name).is_some() || builtin::find_verifier(name).is_some()
}

/// Turns a text into a name: lower-case words joined by single hyphens, at most 64 letters, beginning with a letter. A
/// capital after a lower-case letter begins a new word. `None` if nothing is left.
fn normalize_name(name: &str) -> Option<String> {
    let plain = name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-").to_kebab_case();
    let begun = plain.trim_start_matches(|letter: char| !letter.is_ascii_lowercase());
    let tidy = begun[..begun.len().min(MAX_LETTERS)].trim_end_matches('-');
    (!tidy.is_empty()).then(|| tidy.to_owned())
}

#[cfg(test)]
mod tests {
    use tunebox_foundation::explain::Explain;

    use super::*;

    fn nearest(name: &str) -> Option<String> {
        let error = check_name(name, Language::Rust).unwrap_err();
        assert!(error.why().unwrap().starts_with("names are lower-case words"), "{name}: {error:?}");
        let hint = error.hint().unwrap();
        hint.strip_prefix("`tunebox new ").and_then(|rest| rest.strip_suffix('`')).map(str::to_owned)
    }

    #[test]
    fn names_of_lower_case_words_are_good() {
        for name in ["calm", "calm-dpo", "a1", "x-2-y"] {
            for language in [Language::Rust, Language::Python] {
                assert!(check_name(name, language).is_ok(), "{name}");
            }
        }
    }

    #[test]
    fn another_name_is_answered_with_the_nearest_good_one() {
        assert_eq!(nearest("CalmDpo").unwrap(), "calm-dpo");
        assert_eq!(nearest("calm_dpo").unwrap(), "calm-dpo");
        assert_eq!(nearest("calm--dpo-").unwrap(), "calm-dpo");
        assert_eq!(nearest("3-calm Ways").unwrap(), "calm-ways");
        assert_eq!(nearest("../calm").unwrap(), "calm");
        assert_eq!(nearest("ÄÖ"), None);
        assert_eq!(nearest(""), None);
        assert_eq!(nearest("DPO"), None, "the good name would be the built-in one's");
        assert_eq!(nearest(&"a".repeat(100)).unwrap().len(), MAX_LETTERS);
    }

    #[test]
    fn words_that_mean_something_else_are_refused() {
        let kept =
            |name, language| check_name(name, language).is_err_and(|error| error.why().unwrap().contains("for itself"));
        for (name, in_rust, in_python) in [
            ("loop", true, false),
            ("proc-macro", true, false),
            ("random", false, true),
            ("wit-world", false, true),
            ("tunebox", true, true),
            ("nul", true, true),
        ] {
            let found = (kept(name, Language::Rust), kept(name, Language::Python));
            assert_eq!(found, (in_rust, in_python), "{name}");
        }
        for name in ["dpo", "number"] {
            assert_eq!(check_name(name, Language::Rust).unwrap_err().to_string(), format!("`{name}` is built in"));
        }
    }
}
