//! From a component's bytes to code: out of the cache, or compiled here, or compiled in a child under limits.
//!
//! A component can be small and take very long to compile; the engine's makers count that as no fault of theirs. So a
//! stranger's bytes go to a short-lived child of this program with a bound on its time and memory, and
//! what comes back is code. Built-in components are compiled here.

mod aside;

use std::path::PathBuf;

use wasmtime::component::Component;

pub use aside::compile_for_parent;

use crate::cache::{Cache, Key};
use crate::child::Program;
use crate::error::Error;
use crate::figures::{bytes, doubled};
use crate::precompiled::Trusted;
use crate::printable::printable;

/// What compiling one component may use up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompileLimits {
    /// Seconds that pass on the clock.
    pub seconds: f64,
    /// Bytes of memory.
    pub bytes: u64,
}

impl Default for CompileLimits {
    fn default() -> Self {
        Self { seconds: 8.0, bytes: 2 << 30 }
    }
}

/// Where code comes from. The default keeps nothing and compiles in this process.
#[derive(Clone, Debug, Default)]
pub struct Compiling {
    /// The folder of code that was compiled before.
    pub cache: Option<PathBuf>,
    /// The program that compiles what a stranger wrote: its [`compile_for_parent`].
    pub aside: Option<Program>,
    /// What it may use up.
    pub limits: CompileLimits,
}

/// Why a component could not be compiled within its limits.
#[derive(Clone, Debug, PartialEq)]
pub enum CompileStop {
    /// It took longer than so many seconds.
    Time(f64),
    /// It took more than so many bytes.
    Memory(u64),
    /// The child ended in another way, in words.
    Died(String),
    /// The child could not be started or understood.
    Lost(String),
}

impl CompileStop {
    /// What happened, after the component's name.
    pub(crate) fn what(&self) -> &'static str {
        match self {
            Self::Time(_) => "takes too long to compile",
            Self::Memory(_) => "takes too much memory to compile",
            Self::Died(_) | Self::Lost(_) => "could not be compiled",
        }
    }

    /// Where, with what it used.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Time(seconds) => format!("more than {seconds} s, ended before anything of it ran"),
            Self::Memory(limit) => format!("more than {}, ended before anything of it ran", bytes(*limit)),
            Self::Died(_) | Self::Lost(_) => "in a process of its own, before anything of it ran".into(),
        }
    }

    pub(crate) fn why(&self) -> String {
        match self {
            Self::Time(_) | Self::Memory(_) => {
                "a component can be small and still be made to keep a compiler busy, so a stranger's has a limit".into()
            }
            Self::Died(how) => format!("the process that compiled it {how}"),
            Self::Lost(why) => format!("the process that compiles it cannot be used: {why}"),
        }
    }

    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Time(seconds) => {
                format!("if you trust it, `--set limits.compile-seconds={}`", (4.0 * seconds).max(1.0))
            }
            Self::Memory(limit) => {
                format!("if you trust it, `--set limits.compile-memory={}`", doubled(*limit, limit.saturating_add(1)))
            }
            Self::Died(_) => "its author can build it smaller; nothing else is harmed".into(),
            Self::Lost(_) => "`tunebox train --in-process` does without, for methods that you trust".into(),
        }
    }
}

/// The engine's hands: a cache, a child, limits.
#[derive(Debug, Default)]
pub(crate) struct Compiler {
    cache: Option<Cache>,
    aside: Option<Program>,
    limits: CompileLimits,
    /// Why the cache is not used although a folder was named.
    pub(crate) warning: Option<String>,
}

impl Compiler {
    pub(crate) fn new(settings: Compiling) -> Self {
        let Compiling { cache: folder, aside, limits } = settings;
        let (cache, warning) = match folder.map(|path| (Cache::open(&path), path)) {
            None => (None, None),
            Some((Ok(cache), _)) => (Some(cache), None),
            Some((Err(why), path)) => {
                let path = path.display();
                (None, Some(format!("compiled methods are not kept: `{path}` cannot be used, {why}")))
            }
        };
        Self { cache, aside, limits, warning }
    }

    /// The code of a component that was admitted. A stranger's is compiled in a child, if there is a program for it.
    pub(crate) fn component(
        &self,
        engine: &wasmtime::Engine,
        component: &[u8],
        name: &str,
        stranger: bool,
    ) -> Result<Component, Error> {
        let key = self.cache.as_ref().map(|cache| (cache, Key::of(engine, component)));
        if let Some((cache, key)) = &key
            && let Some(code) = cache.get(key)
        {
            match code.load(engine) {
                Ok(component) => return Ok(component),
                Err(_) => cache.remove(key),
            }
        }
        let keep = |code: &Trusted| {
            if let Some((cache, key)) = &key {
                cache.put(key, code);
            }
        };
        let malformed = |error: &dyn std::fmt::Display| malformed(name, error);
        if let Some(program) = self.aside.as_ref().filter(|_| stranger) {
            let code = aside::compile(program, component, self.limits).map_err(|fault| match fault {
                aside::Fault::Malformed(problem) => malformed(&problem),
                aside::Fault::Stop(stop) => Error::NotCompiled { method: name.to_owned(), stop },
            })?;
            let component = code.load(engine).map_err(|error| malformed(&format!("{error:#}")))?;
            keep(&code);
            return Ok(component);
        }
        let component = Component::from_binary(engine, component).map_err(|error| malformed(&format!("{error:#}")))?;
        if key.is_some()
            && let Ok(code) = component.serialize()
        {
            keep(&Trusted::own(code));
        }
        Ok(component)
    }
}

fn malformed(name: &str, error: &dyn std::fmt::Display) -> Error {
    Error::Malformed { method: name.to_owned(), problem: printable(&error.to_string(), 400) }
}

#[cfg(test)]
mod tests;
