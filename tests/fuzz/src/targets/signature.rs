//! Texts beside a package that say who signed it.

use tunebox_package::signature::Signed;
use tunebox_package::statement::Statement;

use crate::{Target, corpus};

pub(super) const TARGET: Target = Target { name: "signature", run, longest: 4 << 10, quick: 3_000 };

/// Read or refused. Nobody can sign without the key: what is taken for the package has the lines that its signer wrote.
fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(signed) = Signed::parse(&text) {
        assert!(!signed.title().chars().any(|sign| sign.is_control() || sign.is_whitespace()), "{}", signed.title());
    }
    let (package, right) = (committed("statement", "package"), committed("signature", "right"));
    let right = String::from_utf8_lossy(&right);
    match Signed::verify(&package, &text) {
        Ok(signer) => {
            let lines = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(lines(&text), lines(&right));
            assert!(right.contains(&signer.key));
        }
        Err(error) => assert!(!error.to_string().chars().any(char::is_control)),
    }
    // The same text beside anything else signs nothing.
    if Statement::of(bytes).is_ok() {
        assert!(Signed::verify(bytes, &right).is_err());
    }
}

/// A committed input by its name.
fn committed(target: &str, name: &str) -> Vec<u8> {
    let found = corpus(target).into_iter().find(|(file, _)| file == name);
    found.map(|(_, bytes)| bytes).unwrap_or_else(|| panic!("there is no `{target}/{name}`"))
}
