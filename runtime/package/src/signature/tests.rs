use tunebox_foundation::explain::{Exit, Explain};

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::statement::tests::package;

/// A key pair in a folder of its own, without a password.
pub(crate) fn key() -> SecretKey {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("me.key");
    SecretKey::generate(&path, None).unwrap();
    SecretKey::read(&path, || None).unwrap_or_else(|error| panic!("{error}"))
}

fn signed(bytes: &[u8], key: &SecretKey) -> String {
    sign(&Statement::of(bytes).unwrap(), key).unwrap()
}

fn refused(bytes: &[u8], signature: &str) -> Error {
    Signed::verify(bytes, signature).unwrap_err()
}

/// Made by another program from the format's description: Ed25519 over BLAKE2b, Base64, four lines.
const FOREIGN_HAND: &str = "\
untrusted comment: signature of a tunebox package\n\
RUQBAgMEBQYHCGv6T+iOE7mBkU4m9ttvMqMbqQkFDGOmnV9vLsKOosvCaIstP9mOw9CkSt3ZI7+L75F7sv0P2N6Oj4duZ4/O2Aw=\n\
trusted comment: tunebox calm-dpo@0.1.0 key RWQBAgMEBQYHCAOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4\n\
6AYtjmPQe+iVj1EDLjZ6rJJErd9KyRITwPFJ3DFao4tTzvamhiwi9W825sxVbC+E2lZHEeL54W6Q2iBkOuRqAA==\n";

#[test]
fn a_signature_made_by_another_implementation_is_taken() {
    let signer = Signed::verify(&package("calm-dpo", "0.1.0"), FOREIGN_HAND).unwrap();
    assert_eq!(signer.key, "RWQBAgMEBQYHCAOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4");
}

#[test]
fn what_a_key_signed_is_verified_as_signed_by_it() {
    let (key, bytes) = (key(), package("calm-dpo", "0.1.0"));
    let text = signed(&bytes, &key);
    assert_eq!(&Signed::verify(&bytes, &text).unwrap(), key.signer());
    let wanted = format!("trusted comment: tunebox calm-dpo@0.1.0 key {}", key.signer());
    assert_eq!(text.lines().nth(2).unwrap(), wanted);
    // A checkout on another system changes line ends and nothing else.
    assert!(Signed::verify(&bytes, &text.replace('\n', "\r\n")).is_ok());
}

#[test]
fn a_changed_package_is_not_what_was_signed() {
    let (key, bytes) = (key(), package("calm-dpo", "0.1.0"));
    let text = signed(&bytes, &key);
    let mut other = bytes;
    crate::section::append(&mut other, "more", b"code");
    let error = refused(&other, &text);
    assert_eq!(error.to_string(), "this package is not what was signed");
    let digest = crate::digest::sha256(&other);
    let wanted = format!("sha256 is {}…, the signature of {} covers something else", &digest[..12], key.signer());
    assert_eq!(error.why().unwrap(), wanted);
    assert_eq!(error.location().unwrap(), "calm-dpo@0.1.0");
    assert_eq!(error.explanation().kept.unwrap(), "nothing was installed and nothing ran");
    assert_eq!(error.exit(), Exit::Trust);
}

#[test]
fn the_signature_of_another_package_is_refused_by_name() {
    let key = key();
    for other in [package("loud-dpo", "0.1.0"), package("calm-dpo", "0.2.0")] {
        let error = refused(&package("calm-dpo", "0.1.0"), &signed(&other, &key));
        assert_eq!(error.to_string(), "this is the signature of another package");
        let title = Statement::of(&other).unwrap().title();
        assert_eq!(error.why().unwrap(), format!("it was made for `{title}`"));
    }
}

#[test]
fn a_signature_of_a_file_is_no_signature_of_a_package_whatever_it_covers() {
    let (key, bytes) = (key(), package("calm-dpo", "0.1.0"));
    let text = Statement::of(&bytes).unwrap().canonical();
    // The right text under a comment of other use, and the bare bytes under the right comment.
    let other_use = key.sign(text.as_bytes(), "timestamp:1700000000\tfile:notes.txt", COMMENT).unwrap();
    let error = refused(&bytes, &other_use);
    assert_eq!(error.to_string(), "this signature was made for something else");
    assert_eq!(
        error.why().unwrap(),
        "its trusted comment is `timestamp:1700000000\\u{9}file:notes.txt`, a package's is `tunebox NAME@VERSION key RW…`"
    );
    let comment = format!("tunebox calm-dpo@0.1.0 key {}", key.signer());
    let bare = key.sign(&bytes, &comment, COMMENT).unwrap();
    assert_eq!(refused(&bytes, &bare).to_string(), "this package is not what was signed");
}

#[test]
fn another_key_in_the_comment_does_not_make_it_another_signer() {
    let (mine, theirs, bytes) = (key(), key(), package("calm-dpo", "0.1.0"));
    let text = signed(&bytes, &mine).replace(&mine.signer().key, &theirs.signer().key);
    assert_eq!(refused(&bytes, &text).to_string(), "this package is not what was signed");
}

#[test]
fn a_signature_without_hashing_first_is_refused() {
    // The old form of minisign, which its own tools no longer write.
    let text = FOREIGN_HAND.replacen("\nRU", "\nRW", 1);
    assert_eq!(refused(&package("calm-dpo", "0.1.0"), &text).to_string(), "this package is not what was signed");
}

#[test]
fn text_that_is_no_signature_is_refused_with_what_is_wrong_with_it() {
    let (key, bytes) = (key(), package("calm-dpo", "0.1.0"));
    let text = signed(&bytes, &key);
    let wrong = [
        (String::new(), "it has 0 lines, a signature has 4"),
        ("x".repeat(3000), "it has 3000 bytes, a signature has a few hundred"),
        (format!("{text}more\n"), "it has 5 lines, a signature has 4"),
        (text.replacen("untrusted", "trusted", 1), "its first line does not begin with `untrusted comment: `"),
        (text.replacen("signature", "\u{1b}[2J", 1), "its first line holds a control character"),
        (text.replacen("\ntrusted", "\nuntrusted", 1), "its third line does not begin with `trusted comment: `"),
        (text.replacen("\nRU", "\n U", 1), "its second or fourth line is not what minisign writes"),
    ];
    for (text, wanted) in wrong {
        let error = refused(&bytes, &text);
        assert_eq!(error.to_string(), "the signature cannot be read");
        assert_eq!(error.why().unwrap(), wanted);
    }
}

#[test]
fn any_changed_byte_of_a_signature_ends_in_the_same_signer_or_a_refusal() {
    let (key, bytes) = (key(), package("calm-dpo", "0.1.0"));
    let text = signed(&bytes, &key).into_bytes();
    let first = text.iter().position(|byte| *byte == b'\n').unwrap();
    for place in 0..text.len() {
        for change in [1, 2, 0x10, 0x20] {
            let mut other = text.clone();
            other[place] ^= change;
            let Ok(other) = String::from_utf8(other) else { continue };
            match Signed::verify(&bytes, &other) {
                // Only what anybody may change was changed, or the line feed at the end.
                Ok(signer) => assert!(signer == *key.signer() && (place < first || place == text.len() - 1), "{other}"),
                Err(error) => assert_eq!(error.exit(), Exit::Trust),
            }
        }
    }
}

#[test]
fn a_protected_key_signs_with_its_password_and_with_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("me.key");
    let public = SecretKey::generate(&path, Some("let me in")).unwrap();
    let open = |password: Option<&str>| SecretKey::read(&path, || password.map(str::to_owned));
    let key = open(Some("let me in")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(*key.signer(), public);
    assert_eq!(key.warning(), None);
    let bytes = package("calm-dpo", "0.1.0");
    assert_eq!(Signed::verify(&bytes, &signed(&bytes, &key)).unwrap(), public);
    let shown = path.display();
    let error = |password| open(password).err().unwrap().to_string();
    assert_eq!(error(Some("let me out")), format!("this is not the password of the key in `{shown}`"));
    assert_eq!(error(None), format!("the key in `{shown}` needs its password"));
}

#[test]
fn a_key_without_a_password_asks_for_none_and_says_what_that_means() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("me.key");
    let public = SecretKey::generate(&path, None).unwrap();
    let key =
        SecretKey::read(&path, || panic!("no password is to be asked for")).unwrap_or_else(|error| panic!("{error}"));
    let wanted = format!("no password protects `{}`: anyone who can read the file can sign as you", path.display());
    assert_eq!(key.warning().unwrap(), wanted);
    let beside = std::fs::read_to_string(folder.path().join("me.key.pub")).unwrap();
    assert_eq!(beside.lines().nth(1).unwrap(), public.key);
    assert_eq!(Signer::parse(&public.key).unwrap(), public);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o077, 0);
}

#[test]
fn no_key_is_ever_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("me.key");
    SecretKey::generate(&path, None).unwrap();
    let before = std::fs::read(&path).unwrap();
    let error = SecretKey::generate(&path, None).unwrap_err();
    assert_eq!(error.to_string(), format!("there is a file `{}` already", path.display()));
    std::fs::remove_file(&path).unwrap();
    assert!(SecretKey::generate(&path, None).is_err(), "the public half is still there");
    assert!(!path.exists());
    std::fs::write(&path, before).unwrap();
    assert!(matches!(
        SecretKey::generate(&folder.path().join("b"), Some("")),
        Err(error) if error.to_string() == "an empty password protects nothing"
    ));
}

#[test]
fn a_file_that_is_no_secret_key_is_refused_before_anybody_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("me.key");
    SecretKey::generate(&path, None).unwrap();
    let public = folder.path().join("me.key.pub");
    let error = SecretKey::read(&public, || panic!("no password is to be asked for")).err().unwrap();
    assert_eq!(error.to_string(), format!("`{}` is not the file of a secret key", public.display()));
    assert_eq!(error.why().unwrap(), "its second line is not that of a secret key of minisign");
    let text = std::fs::read_to_string(&path).unwrap();
    for length in 0..text.trim_end().len() {
        std::fs::write(&path, &text[..length]).unwrap();
        assert!(SecretKey::read(&path, || None).is_err(), "cut to {length}");
    }
}

#[test]
fn a_public_key_is_written_in_one_way_only() {
    let key = key().signer().key.clone();
    for other in
        [format!("{key} "), key.to_lowercase(), key.replacen("RW", "RU", 1), key[..55].into(), format!("{key}A")]
    {
        assert_eq!(Signer::parse(&other), None, "{other}");
    }
}
