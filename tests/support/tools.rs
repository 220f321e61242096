//! A program that a test needs and a machine may lack: without it the test is skipped, in one loud line, and it is a failure
//! where `TUNEBOX_TOOLS` names the program, as in `TUNEBOX_TOOLS=clang,wkg`, so that no check passes by skipping.

use std::io::Write as _;

/// The programs that may be missing, as `TUNEBOX_TOOLS` names them.
const OPTIONAL: [&str; 7] = ["clang", "componentize-py", "docker-registry", "gdb", "openssl", "profiler-cli", "wkg"];

/// Says, past the capture of the test harness, that a test goes without a program, and so is skipped.
pub(crate) fn missing(tool: &str) {
    let wanted = std::env::var("TUNEBOX_TOOLS").unwrap_or_default();
    for word in wanted.split(',').filter(|word| !word.is_empty()) {
        // A word that names none would pass by skipping.
        assert!(OPTIONAL.contains(&word), "`TUNEBOX_TOOLS` takes {}, and not `{word}`", OPTIONAL.join(", "));
        assert!(word != tool, "`{tool}` is asked for by `TUNEBOX_TOOLS`, and none that works is on this machine");
    }
    assert!(OPTIONAL.contains(&tool), "`{tool}` is no program that `TUNEBOX_TOOLS` can ask for");
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "\nSKIPPED: {test}: there is no `{tool}` that works on this machine\n");
}
