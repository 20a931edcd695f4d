//! Keeping helpers off the processor of the thread that they help.
//!
//! Linux likes to wake a thread on the processor of the one that wakes it, although another one is idle: in a virtual
//! machine of two processors, almost always after a pause of a millisecond. A helper that is woken there takes the time of
//! the thread that it is to help. Helpers therefore allow themselves all processors but that one.

/// The processor that the current thread runs on; `None` where the system does not tell.
#[cfg(target_os = "linux")]
pub(crate) fn processor() -> Option<usize> {
    // SAFETY: the function takes nothing and changes nothing.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// The processor that the current thread runs on; `None` where the system does not tell.
#[cfg(not(target_os = "linux"))]
pub(crate) fn processor() -> Option<usize> {
    None
}

/// Keeps the current thread off this processor, and off no other, if there is another one for it. Other threads and
/// whatever else limits this one stay as they are.
#[cfg(target_os = "linux")]
pub(crate) fn stay_off(processor: usize) {
    KEPT.with_borrow_mut(|kept| {
        if kept.off == Some(processor) {
            return;
        }
        kept.off = Some(processor);
        let Some(now) = allowed() else { return };
        // Whoever has changed what this thread set, set what it may use.
        // SAFETY: both sets are initialised.
        if kept.set.is_none_or(|set| !unsafe { libc::CPU_EQUAL(&set, &now) }) {
            kept.allowed = Some(now);
        }
        let mut set = kept.allowed.unwrap_or(now);
        if processor < size_of::<libc::cpu_set_t>() * 8 {
            // SAFETY: the number is that of a bit of the set.
            unsafe { libc::CPU_CLR(processor, &mut set) };
        }
        // SAFETY: the set is initialised.
        let is_empty = unsafe { libc::CPU_COUNT(&set) } == 0;
        // SAFETY: the call reads so many bytes of the set and concerns the current thread only.
        if !is_empty && unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) } == 0 {
            // The system may take less than what it is asked for.
            kept.set = allowed();
        }
    });
}

/// Does nothing: the system decides where threads run.
#[cfg(not(target_os = "linux"))]
pub(crate) fn stay_off(_processor: usize) {}

/// What [`stay_off`] has done to a thread.
#[cfg(target_os = "linux")]
struct Kept {
    /// The processor that it is kept off.
    off: Option<usize>,
    /// The processors that it could use without.
    allowed: Option<libc::cpu_set_t>,
    /// Those that were set for it.
    set: Option<libc::cpu_set_t>,
}

#[cfg(target_os = "linux")]
thread_local! {
    static KEPT: std::cell::RefCell<Kept> =
        const { std::cell::RefCell::new(Kept { off: None, allowed: None, set: None }) };
}

/// The processors that the current thread may use; `None` where they do not fit a set.
#[cfg(target_os = "linux")]
fn allowed() -> Option<libc::cpu_set_t> {
    // SAFETY: a set of bits may be zero, and the call writes at most its bytes.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        (libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) == 0).then_some(set)
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    fn numbers() -> Vec<usize> {
        let set = allowed().unwrap();
        // SAFETY: the numbers are those of bits of the set.
        (0..size_of::<libc::cpu_set_t>() * 8).filter(|&number| unsafe { libc::CPU_ISSET(number, &set) }).collect()
    }

    fn allow(numbers: &[usize]) {
        // SAFETY: as in `allowed` and `stay_off`; the numbers came from a set.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            numbers.iter().for_each(|&number| libc::CPU_SET(number, &mut set));
            assert_eq!(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set), 0);
        }
    }

    fn without(numbers: &[usize], number: usize) -> Vec<usize> {
        let left: Vec<usize> = numbers.iter().copied().filter(|&other| other != number).collect();
        if left.is_empty() { numbers.to_vec() } else { left }
    }

    #[test]
    fn a_thread_leaves_one_processor_and_returns() {
        let all = numbers();
        for &number in all.iter().chain(&all) {
            stay_off(number);
            assert_eq!(numbers(), without(&all, number));
            assert!(all.len() == 1 || processor() != Some(number));
        }
        stay_off(usize::MAX);
        assert_eq!(numbers(), all);
    }

    #[test]
    fn what_others_allow_is_kept() {
        let all = numbers();
        stay_off(all[0]);
        let some = &all[..all.len().div_ceil(2)];
        allow(some);
        for &number in &all {
            stay_off(number);
            assert_eq!(numbers().iter().find(|number| !some.contains(number)), None);
        }
    }
}
