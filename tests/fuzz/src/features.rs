//! Feedback of a target to the search: features that an input reached, such as a function with one of its errors. The
//! search makes further inputs from those that reached a new feature. Most targets report none.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::hash::{BuildHasher, Hash, RandomState};

thread_local! {
    static HASHER: RandomState = RandomState::new();
    static SEEN: RefCell<HashSet<u64>> = RefCell::default();
    static NEW: Cell<bool> = const { Cell::new(false) };
}

/// Reports a feature that the current input reached.
pub(crate) fn reach(what: impl Hash) {
    let number = HASHER.with(|hasher| hasher.hash_one(what));
    if SEEN.with_borrow_mut(|seen| seen.insert(number)) {
        NEW.set(true);
    }
}

/// Returns whether this thread reached a new feature since the last call.
#[must_use]
pub fn take_new_features() -> bool {
    NEW.take()
}
