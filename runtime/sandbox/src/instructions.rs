//! The instructions that the code in a store may execute, where its engine counts them.

use wasmtime::Store;

use crate::cause::Cause;

/// Lets the code of a store execute `limit` instructions from now on (wasmtime's fuel); `u64::MAX` if `limit` is 0.
/// What it executed before does not count. Errors: a limit other than 0 in a store whose engine does not count.
pub(crate) fn set_limit<T>(store: &mut Store<T>, limit: u64) -> wasmtime::Result<()> {
    match (store.get_fuel(), limit) {
        (Ok(_), 0) => store.set_fuel(u64::MAX),
        (Ok(_), limit) => store.set_fuel(limit),
        (Err(_), 0) => Ok(()),
        (Err(_), _) => Err(Cause::Host("its code does not count instructions".into()).into()),
    }
}

/// Returns how many instructions the code of a store executed since [`set_limit`] was called with `limit`; 0 if `limit`
/// is 0 or the engine does not count.
pub(crate) fn executed_instructions<T>(store: &Store<T>, limit: u64) -> u64 {
    store.get_fuel().map_or(0, |left| limit.saturating_sub(left))
}
