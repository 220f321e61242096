//! Keys: made, read from their files, and shown.

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use minisign::{KeyPair, PublicKey as Public, SecretKey as Secret, SecretKeyBox};
use tunebox_foundation::explain::Explain;

use crate::{Error, bounded};

/// Characters of a public key.
const KEY: usize = 56;

/// How the second line of a secret key's file begins when a password protects it, and when none does.
const PROTECTED: &str = "RWRTY0Iy";
const UNPROTECTED: &str = "RWQAAEIy";

/// Bytes of the longest file of a key.
const LONGEST: u64 = 4 << 10;

/// Who signs: a public key, and its number for people.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Signer {
    /// The key as minisign writes it: `RW…`.
    pub key: String,
    /// The key's number, in hexadecimal.
    pub id: String,
}

/// A public key says who signs.
pub type PublicKey = Signer;

impl Signer {
    /// Reads a public key. None: anything but the one way in which a key is written.
    pub fn parse(key: &str) -> Option<Self> {
        let plain = key.len() == KEY && key.bytes().all(|byte| byte.is_ascii_graphic());
        // The one library knows the kinds of keys, the other shows their numbers.
        minisign_verify::PublicKey::from_base64(Some(key).filter(|_| plain)?).ok()?;
        let signer = Self::of(&Public::from_base64(key).ok()?);
        (signer.key == key && key.starts_with("RW")).then_some(signer)
    }

    fn of(public: &Public) -> Self {
        // The number is shown as minisign shows it: the last byte first.
        let id = public.keynum().iter().rev().map(|byte| format!("{byte:02X}")).collect();
        Self { key: public.to_base64(), id }
    }
}

impl fmt::Display for Signer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key.fmt(formatter)
    }
}

/// Why a key cannot be made or used.
#[derive(Debug, thiserror::Error, Explain)]
#[explain(category = "key")]
pub enum KeyError {
    /// A file is where the key would go.
    #[error("there is a file `{path}` already", path = path.display())]
    #[explain(
        why = "an overwritten key is lost, and the trust in it too",
        hint = "give another file, or move that one away"
    )]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A file that holds no secret key.
    #[error("`{path}` is not the file of a secret key", path = path.display())]
    #[explain(why = problem.clone(), hint = "`tunebox key FILE` makes a pair of keys; the one without `.pub` is secret")]
    NotKey {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Nobody gave the password that it takes.
    #[error("the key in `{path}` needs its password", path = path.display())]
    #[explain(
        why = "there is no terminal to ask at",
        hint = "run it in a terminal, or sign with a key that has no password"
    )]
    NoPassword {
        /// The file.
        path: PathBuf,
    },
    /// Another password.
    #[error("this is not the password of the key in `{path}`", path = path.display())]
    WrongPassword {
        /// The file.
        path: PathBuf,
    },
    /// A password of nothing.
    #[error("an empty password protects nothing")]
    #[explain(hint = "give a password, or none at all")]
    EmptyPassword,
    /// The library that signs failed.
    #[error("cannot {act}")]
    #[explain(why = problem.clone())]
    Library {
        /// What was tried.
        act: &'static str,
        /// What it said.
        problem: String,
    },
}

/// A key that signs. It cannot be shown: nothing prints it by accident.
pub struct SecretKey {
    key: Secret,
    signer: Signer,
    path: PathBuf,
    protected: bool,
}

impl SecretKey {
    /// Makes a pair of keys: the secret one in a new file of this name, the public one beside it as `NAME.pub`.
    /// Errors: a file that is there already, an empty password, a folder that cannot be written.
    pub fn generate(path: &Path, password: Option<&str>) -> Result<PublicKey, Error> {
        let mut name = path.as_os_str().to_owned();
        name.push(".pub");
        let beside = PathBuf::from(name);
        if let Some(taken) = [path, &beside].into_iter().find(|path| path.symlink_metadata().is_ok()) {
            return Err(KeyError::Exists { path: taken.to_owned() }.into());
        }
        let library = |error: minisign::PError| KeyError::Library { act: "make a key", problem: error.to_string() };
        let pair = match password {
            Some("") => return Err(KeyError::EmptyPassword.into()),
            Some(password) => KeyPair::generate_encrypted_keypair(Some(password.to_owned())),
            None => KeyPair::generate_unencrypted_keypair(),
        };
        let KeyPair { pk, sk } = pair.map_err(library)?;
        let secret = sk.to_box(Some("secret key of tunebox packages")).map_err(library)?.to_string();
        let public = pk.to_box().map_err(library)?.to_string();
        write_new(path, &secret, 0o600)?;
        if let Err(error) = write_new(&beside, &public, 0o644) {
            // Nobody has seen the key yet: half a pair helps nobody.
            let _ = fs::remove_file(path);
            return Err(error);
        }
        Ok(Signer::of(&pk))
    }

    /// Reads a secret key. `password` is asked for only if the key takes one.
    /// Errors: no such file, a file that is no secret key, no password or another one.
    pub fn read(path: &Path, password: impl FnOnce() -> Option<String>) -> Result<Self, Error> {
        let not_key = |problem: &str| KeyError::NotKey { path: path.to_owned(), problem: problem.to_owned() };
        let bytes = bounded::read(path, LONGEST).map_err(Error::file("read", path))?;
        let text = String::from_utf8(bytes).map_err(|_| not_key("it is no text"))?;
        let second = text.lines().nth(1).unwrap_or_default();
        let protected = second.starts_with(PROTECTED);
        if !protected && !second.starts_with(UNPROTECTED) {
            return Err(not_key("its second line is not that of a secret key of minisign").into());
        }
        let sealed = SecretKeyBox::from(text);
        let opened = if protected {
            let password = password().ok_or_else(|| KeyError::NoPassword { path: path.to_owned() })?;
            sealed.into_secret_key(Some(password))
        } else {
            sealed.into_unencrypted_secret_key()
        };
        let key = opened.map_err(|error| match error.kind() {
            minisign::ErrorKind::Verify if protected => KeyError::WrongPassword { path: path.to_owned() },
            _ => not_key(&error.to_string()),
        })?;
        let public = Public::from_secret_key(&key).map_err(|error| not_key(&error.to_string()))?;
        Ok(Self { key, signer: Signer::of(&public), path: path.to_owned(), protected })
    }

    /// Who signs with it.
    pub fn signer(&self) -> &Signer {
        &self.signer
    }

    /// What a person should know before signing with it.
    pub fn warning(&self) -> Option<String> {
        if !self.protected {
            let path = self.path.display();
            return Some(format!("no password protects `{path}`: whoever reads the file can sign as you"));
        }
        None
    }

    /// The text of a signature.
    pub(super) fn sign(&self, text: &[u8], trusted: &str, untrusted: &str) -> Result<String, Error> {
        let signed = minisign::sign(None, &self.key, text, Some(trusted), Some(untrusted));
        let problem = |error: minisign::PError| KeyError::Library { act: "sign", problem: error.to_string() };
        Ok(signed.map_err(problem)?.into_string())
    }
}

/// Writes a file that must not be there yet, whole or not at all.
fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), Error> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new();
    #[cfg(unix)]
    file.permissions(std::os::unix::fs::PermissionsExt::from_mode(mode));
    #[cfg(not(unix))]
    let _ = mode;
    let mut file = file.tempfile_in(folder).map_err(Error::file("write into", folder))?;
    file.write_all(text.as_bytes()).and_then(|()| file.as_file().sync_all()).map_err(Error::file("write", path))?;
    match file.persist_noclobber(path) {
        Ok(_) => Ok(()),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
            Err(KeyError::Exists { path: path.to_owned() }.into())
        }
        Err(error) => Err(Error::file("write", path)(error.error)),
    }
}
