//! How each of these errors is told.

use tunebox_foundation::explain::{Exit, Explain, Snippet};

use super::RegistryError;

/// How many versions a message lists.
const MOST_LISTED: usize = 8;

impl RegistryError {
    /// The error that explains itself, where this one only carries it.
    fn inner(&self) -> Option<&dyn Explain> {
        match self {
            Self::Artifact { error, .. } => Some(error),
            Self::Package(error) => Some(error.as_ref()),
            _ => None,
        }
    }

    fn said(said: Option<&String>) -> Option<String> {
        said.map(|said| format!("it says: {said}"))
    }
}

impl Explain for RegistryError {
    fn category(&self) -> &'static str {
        self.inner().map_or("registry", Explain::category)
    }

    fn location(&self) -> Option<String> {
        match self {
            Self::Unauthorised { place, .. }
            | Self::Forbidden { place, .. }
            | Self::Status { place, .. }
            | Self::Truncated { place, .. }
            | Self::Artifact { place, .. } => Some(place.clone()),
            _ => self.inner().and_then(Explain::location),
        }
    }

    fn snippet(&self) -> Option<Snippet> {
        self.inner().and_then(Explain::snippet)
    }

    fn why(&self) -> Option<String> {
        match self {
            Self::Location { problem, .. } | Self::Tls { problem, .. } | Self::Broken { problem, .. } => {
                Some(problem.clone())
            }
            Self::Unauthorised { problem, .. } => problem.clone(),
            Self::Forbidden { said, .. } | Self::Status { said, .. } => Self::said(said.as_ref()),
            Self::NotFound { there, .. } if there.is_empty() => {
                Some("nothing of that name is there, or only for those who are logged in".into())
            }
            Self::NotFound { there, .. } => {
                let shown: Vec<_> = there.iter().rev().take(MOST_LISTED).map(String::as_str).collect();
                let more = if there.len() > MOST_LISTED { " and older ones" } else { "" };
                Some(format!("there are: {}{more}", shown.join(", ")))
            }
            Self::Truncated { wanted, found, .. } => Some(format!("{found} of {wanted} bytes came")),
            Self::Taken { .. } => Some("what others have pinned under a version must not change".into()),
            Self::Signed { signer, .. } => Some(format!("{signer} signed it, and who pulls it goes by that")),
            Self::Slashes { folder, .. } => {
                Some(format!("`{}` is one; two slashes stand between it and a package", folder.display()))
            }
            Self::LoginInTheOpen { .. } => Some("whoever is on the way could read it".into()),
            Self::Insecure { .. } => Some("what is asked in secret must not be asked in the open".into()),
            _ => self.inner().and_then(Explain::why),
        }
    }

    fn kept(&self) -> Option<String> {
        match self {
            Self::Truncated { .. } => Some("nothing was installed".into()),
            _ => self.inner().and_then(Explain::kept),
        }
    }

    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Location { .. } => {
                "a place is like `registry.example/me/calm:0.1.0`, or a folder: `./stick`, `./stick//calm:0.1.0`".into()
            }
            Self::NoVersion { highest: Some(highest), .. } => format!("the highest there is `{highest}`"),
            Self::NoVersion { place, .. } => {
                format!("add it, as in `{place}:0.1.0`; a path that is spelt like this begins with `./`")
            }
            Self::Misnamed { .. } => "leave the version out, and end the place with the package's name".into(),
            Self::Offline { .. } => "leave `--offline` out, or use what was pulled before: `tunebox list`".into(),
            Self::Refused { .. } => "check host and port, and that the registry is running".into(),
            Self::NotResolved { .. } => {
                "check the name of the registry and the connection; a folder that is called so begins with `./`".into()
            }
            Self::Tls { .. } => {
                "`SSL_CERT_FILE` names the certificates of an authority of your own; `--plain-http` does without".into()
            }
            Self::Certificates { .. } => "it must hold certificates in the form PEM".into(),
            Self::Insecure { .. } => "tell whoever runs the registry".into(),
            Self::TimedOut { .. } | Self::Broken { .. } | Self::Truncated { .. } => {
                "try again; if it repeats, check the connection and the registry".into()
            }
            Self::Redirects { .. } => "tell whoever runs the registry, or a proxy in front of it".into(),
            Self::Unauthorised { registry, problem: None, .. } => format!("`docker login {registry}`"),
            Self::Unauthorised { registry, .. } => format!("mend that, or log in anew: `docker login {registry}`"),
            Self::Forbidden { registry, .. } => {
                format!("ask for the right to it, or log in as somebody else: `docker login {registry}`")
            }
            Self::NotFound { source_name, nearest, there, .. } => instead(source_name, nearest.as_deref(), there),
            Self::TooMany { wait: Some(seconds), .. } => format!("try again in {seconds} seconds"),
            Self::TooMany { .. } => "try again later; those who are logged in may often ask more".into(),
            Self::Status { status: 500.., .. } => "try again; if it repeats, tell whoever runs the registry".into(),
            Self::Status { .. } => "check that the host is a registry, and that it takes WebAssembly packages".into(),
            Self::Taken { .. } => "raise `version` in Cargo.toml or pyproject.toml, build and pack again".into(),
            Self::Signed { .. } => {
                "push it with the signature of that key beside it, or as a new version: `tunebox pack --sign KEY`".into()
            }
            Self::Slashes { folder, package, .. } => format!("`tunebox pull {}//{package}`", folder.display()),
            Self::NotFolder { path } => {
                format!("`tunebox inspect {}` looks at it, `--method` runs it as it is", path.display())
            }
            Self::LoginInTheOpen { .. } => {
                "reach it encrypted, without `--plain-http`; `SSL_CERT_FILE` names the certificates of an authority of your own"
                    .into()
            }
            Self::Artifact { .. } | Self::Package(_) => return self.inner().and_then(Explain::hint),
        })
    }

    fn exit(&self) -> Exit {
        match self {
            Self::TimedOut { .. } | Self::Broken { .. } | Self::Truncated { .. } | Self::TooMany { .. } => Exit::No,
            Self::Status { status: 500.., .. } => Exit::No,
            other => other.inner().map_or(Exit::Usage, Explain::exit),
        }
    }
}

/// What to ask for in the place of a version that is not there.
fn instead(source_name: &str, nearest: Option<&str>, there: &[String]) -> String {
    match (nearest, there.last()) {
        (Some(nearest), _) => format!("did you mean `{source_name}:{nearest}`?"),
        (None, Some(highest)) => format!("`tunebox pull {source_name}:{highest}`"),
        (None, None) => "check the name; `docker login` may be needed".into(),
    }
}
