//! ovir for web pages: models are validated and run where they are, in the browser.
//!
//! The functions with names beginning with `ovir_` are what JavaScript calls, see `page/worker.js`. Bytes go both ways
//! through *slots*, numbered as [`Slot`] says: the page asks for memory in a slot, fills it and calls; the answers lie in
//! other slots. A module holds one model at a time.

mod session;

pub use crate::session::{Session, Slot};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A module of a page has one thread, so that nobody ever waits for the lock.
static SESSION: Mutex<Session> = Mutex::new(Session::new());

/// Memory of `length` bytes in a slot, to be filled by the page before the next call. Null if there is no such slot or no
/// such memory.
#[unsafe(no_mangle)]
pub extern "C" fn ovir_allocate(slot: u32, length: usize) -> *mut u8 {
    let mut session = session();
    let memory = Slot::from_number(slot).and_then(|slot| session.allocate(slot, length));
    memory.map_or(std::ptr::null_mut(), <[u8]>::as_mut_ptr)
}

/// Where the bytes of a slot lie, until the next call. Null if there is no such slot.
#[unsafe(no_mangle)]
pub extern "C" fn ovir_pointer(slot: u32) -> *const u8 {
    Slot::from_number(slot).map_or(std::ptr::null(), |slot| session().bytes(slot).as_ptr())
}

/// How many bytes a slot holds.
#[unsafe(no_mangle)]
pub extern "C" fn ovir_length(slot: u32) -> usize {
    Slot::from_number(slot).map_or(0, |slot| session().bytes(slot).len())
}

/// Gives the memory of all slots back, and forgets the model.
#[unsafe(no_mangle)]
pub extern "C" fn ovir_clear() {
    *session() = Session::new();
}

/// Validates the model of the slots [`Slot::Xml`], [`Slot::Weights`] and [`Slot::Name`]; see [`Session::validate`].
/// Returns the number of errors.
#[unsafe(no_mangle)]
pub extern "C" fn ovir_validate(has_weights: bool, checks_values: bool) -> usize {
    session().validate(has_weights, checks_values)
}

/// Puts the cards of all codes into [`Slot::Json`].
#[unsafe(no_mangle)]
pub extern "C" fn ovir_cards() {
    session().cards();
}

/// Takes an array for an input; see [`Session::set_input`]. Returns whether it did.
#[cfg(feature = "run")]
#[unsafe(no_mangle)]
pub extern "C" fn ovir_set_input() -> bool {
    session().set_input()
}

/// Runs the model that was validated last; see [`Session::run`]. Returns whether it ran.
#[cfg(feature = "run")]
#[unsafe(no_mangle)]
pub extern "C" fn ovir_run(seed: u32) -> bool {
    session().run(seed.into())
}

/// Puts an output of the last inference into [`Slot::Output`]. Returns whether there is one.
#[cfg(feature = "run")]
#[unsafe(no_mangle)]
pub extern "C" fn ovir_output(index: usize) -> bool {
    session().output(index)
}

fn session() -> MutexGuard<'static, Session> {
    SESSION.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    /// What the page sees of a module: numbers of slots, addresses, lengths.
    #[test]
    fn slots_are_known_by_number() {
        assert!(ovir_allocate(99, 1).is_null());
        assert!(ovir_pointer(99).is_null());
        assert_eq!(ovir_length(99), 0);
        assert!(ovir_allocate(0, usize::MAX).is_null());
        assert!(!ovir_allocate(0, 12).is_null());
        assert_eq!(ovir_length(0), 12);
        assert!(ovir_validate(false, false) > 0);
        ovir_cards();
        assert!(ovir_length(Slot::Json as u32) > 1000);
        ovir_clear();
        assert_eq!(ovir_length(0), 0);
    }
}
