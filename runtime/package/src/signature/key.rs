//! Keys of minisign: creates them, reads them from files, and signs with them.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use minisign::{KeyPair, PublicKey as Public, SecretKey as Secret, SecretKeyBox};
use tunebox_foundation::bounded;
use tunebox_foundation::explain::Explanation;

use crate::{Error, files};

/// The number of characters of a public key.
const KEY_CHARACTERS: usize = 56;

/// How the second line of a secret key's file begins when a password protects it, and when none does.
const PROTECTED: &str = "RWRTY0Iy";
const UNPROTECTED: &str = "RWQAAEIy";

/// The largest key file that is read, in bytes.
const MAX_KEY_FILE_BYTES: u64 = 4 << 10;

/// A signer, by its public key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Signer {
    /// The key as minisign writes it: `RW…`.
    pub key: String,
}

impl Signer {
    /// Parses a public key of minisign, `RW…`. `None` for anything else, also for other spellings of a valid key.
    pub fn parse(key: &str) -> Option<Self> {
        let plain = key.len() == KEY_CHARACTERS && key.bytes().all(|byte| byte.is_ascii_graphic());
        // The verifying library checks the kind of the key; the signing library writes it in the one valid spelling.
        minisign_verify::PublicKey::from_base64(Some(key).filter(|_| plain)?).ok()?;
        let written = Public::from_base64(key).ok()?.to_base64();
        (written == key && key.starts_with("RW")).then_some(Self { key: written })
    }
}

impl fmt::Display for Signer {
    /// Writes the public key, `RW…`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key.fmt(formatter)
    }
}

/// Makes an error about a key or its file from what happened, why, and what to do.
fn key_error(what: impl Into<String>, why: impl Into<String>, hint: impl Into<String>) -> Error {
    Explanation::new("key", what).with_why(why).with_hint(hint).into()
}

/// Makes the error for a path where a new key's file should be written, and a file exists already.
fn file_exists_error(path: &Path) -> Error {
    let what = format!("there is a file `{}` already", path.display());
    let why = "an overwritten key is lost, and the trust in it too";
    key_error(what, why, "give another file, or move that one away")
}

/// Makes the error for a failure of the signing library; `act` says what was tried, as a verb.
fn library_error(act: &str, error: &minisign::PError) -> Error {
    Explanation::new("key", format!("cannot {act}")).with_why(error.to_string()).into()
}

/// A secret key with its file's path. It has no `Debug` or `Display`, so that nothing prints it by accident.
pub struct SecretKey {
    key: Secret,
    signer: Signer,
    path: PathBuf,
    protected: bool,
}

impl SecretKey {
    /// Creates a pair of keys and returns the public one. Writes the secret key to the new file `path` (permissions
    /// 0600), encrypted if there is a password, and the public key to `path` with `.pub` appended. Errors: one of the
    /// two files exists, an empty password, a folder that cannot be written. After an error, no new file stays.
    pub fn generate(path: &Path, password: Option<&str>) -> Result<Signer, Error> {
        let beside = path.with_added_extension("pub");
        if let Some(taken) = [path, &beside].into_iter().find(|path| path.symlink_metadata().is_ok()) {
            return Err(file_exists_error(taken));
        }
        let library = |error: minisign::PError| library_error("make a key", &error);
        let pair = match password {
            Some("") => {
                let error = Explanation::new("key", "an empty password protects nothing");
                return Err(error.with_hint("give a password, or none at all").into());
            }
            Some(password) => KeyPair::generate_encrypted_keypair(Some(password.to_owned())),
            None => KeyPair::generate_unencrypted_keypair(),
        };
        let KeyPair { pk, sk } = pair.map_err(library)?;
        let secret = sk.to_box(Some("secret key of tunebox packages")).map_err(library)?.to_string();
        let public = pk.to_box().map_err(library)?.to_string();
        write_new(path, &secret, 0o600)?;
        if let Err(error) = write_new(&beside, &public, 0o644) {
            // The key was not used yet, and half a pair is of no use.
            let _ = fs::remove_file(path);
            return Err(error);
        }
        Ok(Signer { key: pk.to_base64() })
    }

    /// Reads a secret key from a file. Calls `password` only if the key is encrypted; if it returns `None`, reading
    /// fails. Errors: no such file, a file that is no secret key, no password or a wrong one.
    pub fn read(path: &Path, password: impl FnOnce() -> Option<String>) -> Result<Self, Error> {
        let shown = path.display();
        let not_key = |problem: &str| {
            let hint = "`tunebox key FILE` makes a pair of keys; the one without `.pub` is secret";
            key_error(format!("`{shown}` is not the file of a secret key"), problem, hint)
        };
        let bytes = bounded::read(path, MAX_KEY_FILE_BYTES).map_err(Error::file("read", path))?;
        let text = String::from_utf8(bytes).map_err(|_| not_key("it is no text"))?;
        let second = text.lines().nth(1).unwrap_or_default();
        let protected = second.starts_with(PROTECTED);
        if !protected && !second.starts_with(UNPROTECTED) {
            return Err(not_key("its second line is not that of a secret key of minisign"));
        }
        let sealed = SecretKeyBox::from(text);
        let opened = if protected {
            let missing = || {
                let hint = "run it in a terminal, or sign with a key that has no password";
                key_error(format!("the key in `{shown}` needs its password"), "there is no terminal to ask at", hint)
            };
            let password = password().ok_or_else(missing)?;
            sealed.into_secret_key(Some(password))
        } else {
            sealed.into_unencrypted_secret_key()
        };
        let key = opened.map_err(|error| match error.kind() {
            minisign::ErrorKind::Verify if protected => {
                Explanation::new("key", format!("this is not the password of the key in `{shown}`")).into()
            }
            _ => not_key(&error.to_string()),
        })?;
        let public = Public::from_secret_key(&key).map_err(|error| not_key(&error.to_string()))?;
        Ok(Self { key, signer: Signer { key: public.to_base64() }, path: path.to_owned(), protected })
    }

    /// Returns the public key that belongs to this secret key.
    pub fn signer(&self) -> &Signer {
        &self.signer
    }

    /// Returns a warning for the person who signs if no password protects the key's file, else `None`.
    pub fn warning(&self) -> Option<String> {
        if !self.protected {
            let path = self.path.display();
            return Some(format!("no password protects `{path}`: anyone who can read the file can sign as you"));
        }
        None
    }

    /// Signs a text, and returns the text of a `.minisig` file with the two comments `trusted` and `untrusted`, of
    /// which the signature covers the first. Errors: the library cannot sign.
    pub(super) fn sign(&self, text: &[u8], trusted: &str, untrusted: &str) -> Result<String, Error> {
        let signed = minisign::sign(None, &self.key, text, Some(trusted), Some(untrusted));
        Ok(signed.map_err(|error| library_error("sign", &error))?.into_string())
    }
}

/// Writes a new file atomically, with the permissions `mode`. Errors: the path exists already, or cannot be written.
fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), Error> {
    match files::write_temporary(path, text.as_bytes(), mode)?.persist_noclobber(path) {
        Ok(_) => Ok(()),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Err(file_exists_error(path)),
        Err(error) => Err(Error::file("written", path)(error.error)),
    }
}
