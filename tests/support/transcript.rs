//! Runs the `console` blocks of a page and compares what comes out with what stands there.

use std::path::Path;
use std::process::{Command, Stdio};

use snapbox::{Assert, Data, RedactedValue, Redactions};

/// Where tests that write methods compile them. Pages and twins have folders of their own: cargo takes a native build of
/// another folder's method for this one's if the name is the same and the build is newer than the source.
pub(crate) const METHOD_TARGET: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/methods");

/// The program under test.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_tunebox");

/// Compares a page with what its commands give in `place`; the error is the difference. What differs
/// from run to run is left open on both sides, so a page may show the numbers of the run that wrote it.
pub(crate) fn compare(page: &Path, place: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(page).map_err(|error| error.to_string())?;
    let found = play(&text, place).replace(&place.display().to_string(), "[PLACE]");
    let open = redactions();
    let (told, wanted) = (open.redact(&found), open.redact(&text));
    if told == wanted {
        return Ok(());
    }
    if std::env::var_os("BLESS").is_some() {
        return std::fs::write(page, found).map_err(|error| error.to_string());
    }
    let exactly = Assert::new().normalize_paths(false);
    exactly.try_eq(None, told.into(), Data::text(wanted)).map_err(|error| error.to_string())
}

/// The page with the output of every command in place of what stood there.
fn play(text: &str, place: &Path) -> String {
    let mut page = String::new();
    let mut inside = false;
    for line in text.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
        }
        let command = line.strip_prefix("$ ").filter(|_| inside);
        if !inside || line.starts_with("```") || command.is_some() {
            page.push_str(line);
            page.push('\n');
        }
        if let Some(command) = command {
            page.push_str(&run(command, place));
        }
    }
    page
}

/// Both streams of a command, and its exit code unless it is 0.
fn run(command: &str, place: &Path) -> String {
    let folder = Path::new(BINARY).parent().map(Path::to_path_buf).unwrap_or_default();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let ran = Command::new("sh")
        .args(["-c", &format!("exec 2>&1\n{command}")])
        .current_dir(place)
        .env("PATH", path)
        .env("NO_COLOR", "1")
        .env("TUNEBOX_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/compiled"))
        .env("CARGO_TARGET_DIR", concat!(env!("CARGO_TARGET_TMPDIR"), "/pages"))
        .env("TUNEBOX_HOME", place.join(".tunebox"))
        .env_remove("TUNEBOX_PUBLISHERS")
        .env("COLUMNS", "120")
        .env_remove("RUST_BACKTRACE")
        .stdin(Stdio::null())
        .output();
    let Ok(ran) = ran else { return "sh cannot be started\n".into() };
    // Whether another test builds a method at this moment is a matter of chance.
    let waits = |line: &str| line.trim_start().starts_with("Waiting for another build, which holds");
    let text = String::from_utf8_lossy(&ran.stdout);
    let mut out: String = text.split_inclusive('\n').filter(|line| !waits(line)).collect();
    if !out.is_empty() && !out.ends_with('\n') {
        out.push('\n');
    }
    match ran.status.code() {
        Some(0) => {}
        Some(code) => out.push_str(&format!("exit code {code}\n")),
        None => out.push_str("killed\n"),
    }
    out
}

/// What differs from run to run or from machine to machine.
fn redactions() -> Redactions {
    let patterns = [
        ("[TIME]", r"\d+(\.\d+)? (ms|s|min|h)\b( \d+ (s|min)\b)?"),
        ("[SIZE]", r"\d[\d,]*(\.\d+)? ([KMGT]iB|B)\b"),
        ("[NUMBER]", r"[-+]?\b\d+\.\d{2,4}\b"),
        ("[LOSS]", r"loss \d+\.\d+, accuracy \d+\.\d+"),
        ("[DIGEST]", r"[0-9a-f]{64}"),
        ("[SHORT]", r"[0-9a-f]{12}…"),
        ("[KEY]", r"RW[0-9A-Za-z+/]{54}"),
        ("[TOOLCHAIN]", r"not checked: [^;\n]*"),
        ("[DAY]", r"\d{4}-\d{2}-\d{2}"),
        // Which of these it is, is a matter of the machine.
        (
            "[NO_DEVICE]",
            r"(?x) device\ `[a-z]+:\d+`\ is\ not\ available\n (?:\ -->\ .*\n)?
            (?<redacted>why:\ \ (?:the\ NVIDIA\ driver's\ `libcuda|the\ driver\ (?:is\ there|does\ not\ start)
                |the\ driver's\ library|the\ `libcuda`\ that\ is\ found|this\ machine\ has|CUDA\ is\ there\ on\ Linux) .*
            \nhint:\ (?:name\ one\ that\ it\ has|`cpu`\ works\ everywhere))",
        ),
        ("[RUN]", r"(?m)^\S+ +\d+ .* [\d,]+/s .*$"),
        ("[ROW]", r"(?m)^ {6,}\d+ {2,}.*$"),
    ];
    let mut redactions = Redactions::new();
    for (name, pattern) in patterns {
        if let Ok(pattern) = regex::Regex::new(pattern) {
            let _ = redactions.insert(name, RedactedValue::from(pattern));
        }
    }
    redactions
}
