//! Libraries that are opened by name, and functions that are found in them, each when it is needed first.

use std::sync::OnceLock;

use libloading::Library as Opened;

/// A library by the names that it has had, newest first.
pub(crate) struct Library {
    names: &'static [&'static str],
    opened: OnceLock<Option<Opened>>,
}

impl Library {
    pub(crate) const fn new(names: &'static [&'static str]) -> Self {
        Self { names, opened: OnceLock::new() }
    }

    fn opened(&self) -> Option<&Opened> {
        // SAFETY: what runs is the library's own start-up code, as it would for a program that links it.
        let open = |name: &&str| unsafe { Opened::new(*name) }.ok();
        self.opened.get_or_init(|| self.names.iter().find_map(open)).as_ref()
    }

    /// A function by its name.
    ///
    /// # Safety
    /// `F` is a pointer to a function, and of the type that the function has.
    pub(crate) unsafe fn function<F: Copy>(&self, name: &str) -> Option<F> {
        // SAFETY: the type is what the caller says. The library stays open to the end, so the function stays there.
        unsafe { self.opened()?.get::<F>(name.as_bytes()) }.ok().map(|found| *found)
    }
}

/// Functions of a library under their own names. One that is not there returns `$absent`.
macro_rules! functions {
    ($library:ident, $absent:expr; $($(#[$attribute:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) -> $result:ty;)*) => {$(
        $(#[$attribute])*
        ///
        /// # Safety
        /// As the library's own manual has it.
        pub unsafe fn $name($($argument: $kind),*) -> $result {
            type Function = unsafe extern "C" fn($($kind),*) -> $result;
            static FOUND: std::sync::OnceLock<Option<Function>> = std::sync::OnceLock::new();
            // SAFETY: the type is that of the manual.
            let found = FOUND.get_or_init(|| unsafe { $library.function(stringify!($name)) });
            match found {
                // SAFETY: the arguments are what the caller says.
                Some(function) => unsafe { function($($argument),*) },
                None => $absent,
            }
        }
    )*};
}
pub(crate) use functions;
