//! The pages of reports in a real browser: it shows them, and their policy forbids nothing that they need.

use std::path::Path;
use std::process::Command;

use crate::support::absent;
use crate::support::golden::root;

/// Loads a page in Chromium without a window. Returns the document that came out, and what the browser's console says.
fn load(page: &Path) -> (String, String) {
    let mut chromium = Command::new("chromium");
    chromium.args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]);
    chromium.args(["--enable-logging=stderr", "--dump-dom"]).arg(format!("file://{}", page.display()));
    let output = chromium.output().unwrap();
    let console = String::from_utf8_lossy(&output.stderr).into_owned();
    let messages = console.lines().filter(|line| line.contains(":CONSOLE:")).collect::<Vec<_>>().join("\n");
    (String::from_utf8_lossy(&output.stdout).into_owned(), messages)
}

#[test]
#[ignore = "needs chromium"]
fn a_browser_shows_a_report_and_runs_no_script_in_it() {
    absent::require("chromium", "--version");
    let place = tempfile::tempdir().unwrap();
    for name in ["report.html", "compare.html"] {
        let text = std::fs::read_to_string(root().join("tests/golden/report").join(name)).unwrap();
        let page = place.path().join(name);
        std::fs::write(&page, &text).unwrap();
        let (document, console) = load(&page);
        assert!(document.contains("</svg>") && console.is_empty(), "{name}: {console}");

        // The same page with what a hole in the escapes would let in.
        let acting = "<script>document.title = 'acts'</script><p style=\"color: red\"></p></body>";
        std::fs::write(&page, text.replace("</body>", acting)).unwrap();
        let (document, console) = load(&page);
        assert!(!document.contains("<title>acts"), "{name}: the script ran");
        assert_eq!(console.matches("violates").count(), 2, "{name}: {console}");
    }
}
