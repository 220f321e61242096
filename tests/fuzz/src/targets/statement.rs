//! Packages as a signer sees them: read off any bytes, packed, packed again.

use tunebox_package::pack::{pack, readme};
use tunebox_package::provenance;
use tunebox_package::statement::Statement;

use crate::Target;

pub(super) const TARGET: Target = Target { name: "statement", run, longest: 8 << 10, quick: 6_000 };

/// A text of one line that names its bytes, or an error; and a package that stays what it is.
fn run(bytes: &[u8]) {
    let Ok(statement) = Statement::of(bytes) else { return };
    let text = statement.canonical();
    assert!(!text.chars().any(char::is_control), "{text}");
    assert!(text.contains(&tunebox_package::digest::sha256(bytes)), "{text}");
    assert!(semver(&statement.version), "{text}");
    if let Ok(Some(page)) = readme(bytes) {
        assert!(!page.chars().any(|sign| sign.is_control() && sign != '\n' && sign != '\t'), "{page:?}");
    }
    if let Ok(Some(said)) = provenance::read(bytes) {
        let texts = [said.source, said.toolchain, said.tunebox, said.interface, said.reproduce];
        assert!(!texts.concat().chars().any(char::is_control), "{texts:?}");
    }
    if let Ok(Some(text)) = provenance::sbom(bytes) {
        assert!(!text.chars().any(|sign| sign.is_control() && sign != '\n'), "{text:?}");
    }
    let Ok(packed) = pack(bytes, Some("# A page\r\n")) else { return };
    assert!(pack(&packed, None).is_ok_and(|again| again == packed));
    assert!(Statement::of(&packed).is_ok_and(|packed| packed.title() == statement.title()));
}

/// Three numbers, and nothing that a registry does not take.
fn semver(version: &str) -> bool {
    let numbers = version.split('-').next().unwrap_or_default();
    numbers.split('.').filter(|number| number.parse::<u64>().is_ok()).count() == 3 && !version.contains('+')
}
