//! Threads that stand by while an inference runs.
//!
//! Waking a sleeping thread takes 20 microseconds on a good day and more than 50 in a virtual machine, which is as much
//! as a small layer takes. A [`Team`] therefore calls its helpers once, when an inference begins; they watch a word in
//! memory until it ends, and a fork costs half a microsecond. The helpers are tasks in a rayon pool of the
//! [`Crew`]; the thread that infers leads and does its share, so nothing is handed over between threads.
//!
//! Helpers keep off the leader's processor, on which the system would often wake them.
//!
//! The chunks of a region are dealt out in equal runs, one to each thread, so that a thread finds in its cache what it
//! wrote in the region before; who has done his own takes from the far end of the others'. The leader waits only for
//! helpers that are inside a chunk. One that lets it wait far longer than a chunk takes has lost its processor to
//! another process. The team sets such delays against the time that helpers have saved; when they outweigh it, it goes
//! without helpers for twenty times the difference, so that a gain never turns into more than a small loss.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::affinity;

/// At most this many helpers serve one team, because they are kept in the bits of a word.
const MOST_HELPERS: usize = 63;
/// A helper without work leaves after this long while an inference runs.
const PATIENCE: Duration = Duration::from_millis(2);
/// A helper waits this long for the next inference.
const LINGER: Duration = Duration::from_micros(100);
/// Inferences that are less far apart follow each other at once. Half of what a helper waits, because it is idle already while
/// an inference ends with work that is not shared.
const CLOSE: Duration = Duration::from_micros(50);
/// A helper that finds nothing to do keeps its processor this long, then offers it to others again and again.
const EAGER: Duration = Duration::from_micros(20);
/// How many times the time that helpers have cost their team goes without them.
const REST: i64 = 20;
/// The most saved time, in nanoseconds, that delays are set against.
const MOST_SAVED: i64 = 10_000_000;
/// Rounds of waiting between two looks at the clock.
const ROUNDS: u32 = 64;

/// Set in [`Team::state`] while chunks may be taken.
const OPEN: u64 = 1;
/// One helper inside the region.
const HELPER: u64 = 2;
/// The helpers inside.
const HELPERS: u64 = 0xfffe;
/// The bits below the number of the region.
const EPOCH_SHIFT: u32 = 16;

thread_local! {
    static PLACE: Cell<Place> = const { Cell::new(Place::Alone) };
}

/// What the current thread may do with a call that is worth a fork.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// It belongs to no team.
    Alone,
    /// It leads this team, borrowed until [`Team::lead`] returns.
    Leads(*const Arc<Team>),
    /// It is inside a chunk already: all others are busy with their own.
    Within,
}

/// The place of the current thread.
pub(crate) fn place() -> Place {
    PLACE.get()
}

/// Sets the place of the current thread until it is dropped.
struct Placed(Place);

impl Placed {
    fn new(place: Place) -> Placed {
        Placed(PLACE.replace(place))
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        PLACE.set(self.0);
    }
}

/// The helpers that the teams of one model share.
#[derive(Debug)]
pub struct Crew {
    threads: usize,
    /// The inferences that run now.
    inferences: AtomicUsize,
    pool: OnceLock<Option<rayon::ThreadPool>>,
}

impl Crew {
    /// A crew for this many threads, 64 at the most, that of the inference among them. Threads are made when they are
    /// first needed.
    #[must_use]
    pub fn new(threads: usize) -> Arc<Crew> {
        let threads = threads.clamp(1, MOST_HELPERS + 1);
        Arc::new(Crew { threads, inferences: AtomicUsize::new(0), pool: OnceLock::new() })
    }

    /// The number of threads of one inference that runs alone.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// How many helpers each inference may have while several run.
    fn helpers_each(&self) -> usize {
        (self.threads / self.inferences.load(Ordering::Relaxed).max(1)).saturating_sub(1)
    }

    fn pool(&self) -> Option<&rayon::ThreadPool> {
        let build = || {
            let name = |index| format!("ovir-{index}");
            rayon::ThreadPoolBuilder::new().num_threads(self.threads - 1).thread_name(name).build().ok()
        };
        self.pool.get_or_init(build).as_ref()
    }
}

/// The threads of one inference request: its own and helpers of the crew.
pub struct Team {
    crew: Arc<Crew>,
    /// Whether a thread leads.
    is_led: AtomicBool,
    /// The helpers that were called and have not left, by bits.
    called: AtomicU64,
    /// The helpers that stand by, by bits.
    present: AtomicU64,
    /// The number of the region, how many helpers are inside, and whether it is open.
    state: AtomicU64,
    /// What the threads inside the region do.
    region: UnsafeCell<Region>,
    shares: Box<[Share]>,
    /// The nanoseconds that helpers have saved, less those that the leader has waited for them.
    saved: AtomicI64,
    /// No helpers are called before this time, in nanoseconds since `made`.
    rests_until: AtomicU64,
    /// The processor that the leader was on when the inference began; `usize::MAX` if it is not known.
    processor: AtomicUsize,
    /// When the last inference of those that need helpers only when repeated ended, in nanoseconds since `made`.
    ended: AtomicU64,
    made: Instant,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// The chunks that remain of one thread's share: the first in the lower half, the one behind the last in the upper.
#[derive(Default)]
#[repr(align(128))]
struct Share(AtomicU64);

#[derive(Clone, Copy)]
struct Region {
    /// The body, borrowed from the leader for as long as the region is open or a helper is inside.
    run: *const (dyn Fn(usize) + Sync),
    /// The helpers that were present when it was opened.
    present: u64,
}

// SAFETY: `region` is written by the leader only, while the region is closed and no helper is inside; helpers read it
// only between entering (which needs an open region) and leaving. Its body is `Sync`.
unsafe impl Sync for Team {}
// SAFETY: as above; nothing in it belongs to a thread.
unsafe impl Send for Team {}

impl std::fmt::Debug for Team {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Team({} threads)", self.crew.threads)
    }
}

impl Share {
    fn deal(&self, first: usize, end: usize) {
        self.0.store(first as u64 | (end as u64) << 32, Ordering::Relaxed);
    }

    /// Takes the first chunk that remains, or the last.
    fn take(&self, from_front: bool) -> Option<usize> {
        let mut remaining = self.0.load(Ordering::Relaxed);
        loop {
            let (first, end) = (remaining & 0xffff_ffff, remaining >> 32);
            if first >= end {
                return None;
            }
            let (chunk, left) =
                if from_front { (first, (first + 1) | end << 32) } else { (end - 1, first | (end - 1) << 32) };
            match self.0.compare_exchange_weak(remaining, left, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(chunk as usize),
                Err(now) => remaining = now,
            }
        }
    }
}

impl Team {
    /// A team that takes its helpers from this crew.
    #[must_use]
    pub fn new(crew: Arc<Crew>) -> Arc<Team> {
        let shares = (0..crew.threads).map(|_| Share::default()).collect();
        Arc::new(Team {
            crew,
            is_led: AtomicBool::new(false),
            called: AtomicU64::new(0),
            present: AtomicU64::new(0),
            state: AtomicU64::new(0),
            region: UnsafeCell::new(Region { run: &|_| (), present: 0 }),
            shares,
            saved: AtomicI64::new(0),
            rests_until: AtomicU64::new(0),
            processor: AtomicUsize::new(usize::MAX),
            ended: AtomicU64::new(0),
            made: Instant::now(),
            panic: Mutex::new(None),
        })
    }

    /// Runs `body` on this thread with the helpers standing by: calls of this crate inside it share their chunks.
    ///
    /// A thread that is part of a team or of a rayon pool already keeps to that one, and a team that another thread
    /// leads is left to it.
    pub fn lead<R>(self: &Arc<Self>, body: impl FnOnce() -> R) -> R {
        let is_free = matches!(place(), Place::Alone) && rayon::current_thread_index().is_none();
        if self.crew.threads == 1 || !is_free || self.is_led.swap(true, Ordering::Acquire) {
            return body();
        }
        self.crew.inferences.fetch_add(1, Ordering::Relaxed);
        let _leading = Leading { team: self, _placed: Placed::new(Place::Leads(self)) };
        self.processor.store(affinity::processor().unwrap_or(usize::MAX), Ordering::Relaxed);
        self.call_helpers();
        body()
    }

    /// As [`lead`](Self::lead), for a body too short to wake helpers for: they are called only if the last one ended a
    /// moment ago, because they are then still awake or will be for the next.
    pub fn lead_when_repeated<R>(self: &Arc<Self>, body: impl FnOnce() -> R) -> R {
        if self.crew.threads == 1 {
            return body();
        }
        let now = || self.made.elapsed().as_nanos() as u64;
        let follows = now().saturating_sub(self.ended.load(Ordering::Relaxed)) < CLOSE.as_nanos() as u64;
        let result = if follows { self.lead(body) } else { body() };
        self.ended.store(now(), Ordering::Relaxed);
        result
    }

    /// Whether helpers stand by or are on their way.
    pub(crate) fn has_helpers(&self) -> bool {
        self.helpers() > 0
    }

    /// How many stand by or are on their way.
    pub(crate) fn helpers(&self) -> usize {
        self.called.load(Ordering::Relaxed).count_ones() as usize
    }

    /// Calls the helpers that are missing. They need a while to come.
    fn call_helpers(self: &Arc<Self>) {
        let helpers = self.crew.helpers_each().min(self.shares.len() - 1);
        let missing = ((1 << helpers) - 1) & !self.called.load(Ordering::Acquire);
        if missing == 0 || self.rests() {
            return;
        }
        let Some(pool) = self.crew.pool() else { return };
        self.called.fetch_or(missing, Ordering::Relaxed);
        for helper in (0..helpers).filter(|helper| missing >> helper & 1 == 1) {
            let team = self.clone();
            pool.spawn(move || team.help(helper));
        }
    }

    /// Waits until all helpers stand by. Only the thread that leads may call this.
    #[cfg(test)]
    pub(crate) fn wait_for_helpers(self: &Arc<Self>) {
        while self.present.load(Ordering::Relaxed).count_ones() as usize + 1 < self.crew.threads {
            self.rests_until.store(0, Ordering::Relaxed);
            self.call_helpers();
            std::thread::yield_now();
        }
    }

    fn rests(&self) -> bool {
        (self.made.elapsed().as_nanos() as u64) < self.rests_until.load(Ordering::Relaxed)
    }

    /// Sets a delay against the time that was saved.
    fn settle(&self, gain: Duration, delay: Duration) {
        let nanoseconds = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX / 4);
        let saved = (self.saved.load(Ordering::Relaxed) + nanoseconds(gain).min(MOST_SAVED)).min(MOST_SAVED);
        let saved = saved.saturating_sub(nanoseconds(delay));
        if saved < 0 {
            let until = nanoseconds(self.made.elapsed()).saturating_add(saved.saturating_neg().saturating_mul(REST));
            self.rests_until.store(until as u64, Ordering::Relaxed);
        }
        self.saved.store(saved.max(0), Ordering::Relaxed);
    }

    /// What a helper does from its call until it leaves.
    fn help(&self, helper: usize) {
        let _placed = Placed::new(Place::Within);
        let bit = 1 << helper;
        affinity::stay_off(self.processor.load(Ordering::Relaxed));
        self.present.fetch_or(bit, Ordering::Relaxed);
        let (mut seen, mut idle_since, mut rounds) = (0, Instant::now(), 0u32);
        loop {
            let state = self.state.load(Ordering::Acquire);
            let epoch = state >> EPOCH_SHIFT;
            if state & OPEN != 0 && epoch != seen {
                if self.state.compare_exchange(state, state + HELPER, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    seen = epoch;
                    self.take_part(bit);
                    self.state.fetch_sub(HELPER, Ordering::Release);
                    (idle_since, rounds) = (Instant::now(), 0);
                }
                continue;
            }
            std::hint::spin_loop();
            rounds += 1;
            if rounds.is_multiple_of(ROUNDS) {
                affinity::stay_off(self.processor.load(Ordering::Relaxed));
                let idle = idle_since.elapsed();
                let patience = if self.is_led.load(Ordering::Relaxed) { PATIENCE } else { LINGER };
                if idle > patience || helper >= self.crew.helpers_each() || self.rests() {
                    break;
                }
                if idle > EAGER {
                    std::thread::yield_now();
                }
            }
        }
        self.present.fetch_and(!bit, Ordering::Relaxed);
        self.called.fetch_and(!bit, Ordering::Release);
    }

    /// Does chunks of the open region as a helper that has entered it.
    fn take_part(&self, bit: u64) {
        // SAFETY: this helper is inside, so the leader neither writes the region nor lets its body go.
        let Region { run, present } = unsafe { *self.region.get() };
        // SAFETY: as above.
        let run = unsafe { &*run };
        let threads = 1 + present.count_ones() as usize;
        // A helper that came later has no share of its own and begins with somebody else's.
        let is_dealt = present & bit != 0;
        let own = if is_dealt { 1 + (present & (bit - 1)).count_ones() as usize } else { threads };
        let result = catch_unwind(AssertUnwindSafe(|| self.work_off(own, threads, run)));
        if let Err(panic) = result {
            *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
        }
    }

    /// Runs chunks until none remain, those of the own share first, and tells how many.
    fn work_off(&self, own: usize, threads: usize, run: &(dyn Fn(usize) + Sync)) -> u32 {
        let mut done = 0;
        for offset in 0..threads {
            let share = (own + offset) % threads;
            while let Some(chunk) = self.shares[share].take(share == own) {
                run(chunk);
                done += 1;
            }
        }
        done
    }

    /// Runs all chunks together with the helpers that stand by or come in time, or none of them if there are no helpers.
    /// Tells whether it ran them. Those that have left are called again where waking them `pays`. Only the thread that
    /// leads may call this, outside of chunks.
    pub(crate) fn share(self: &Arc<Self>, chunks: u32, pays: bool, run: &(dyn Fn(usize) + Sync)) -> bool {
        if pays {
            self.call_helpers();
        }
        let present = self.present.load(Ordering::Relaxed);
        if present == 0 && !(pays && self.has_helpers()) {
            return false;
        }
        let threads = 1 + present.count_ones() as usize;
        for (thread, share) in self.shares.iter().enumerate().take(threads) {
            share.deal(thread * chunks as usize / threads, (thread + 1) * chunks as usize / threads);
        }
        let run_forever: *const (dyn Fn(usize) + Sync + '_) = run;
        // SAFETY: only the lifetime changes. Helpers read the pointer while they are inside the region, and `Closing`
        // waits for the last of them before this function returns or unwinds.
        let run_forever: *const (dyn Fn(usize) + Sync + 'static) = unsafe { std::mem::transmute(run_forever) };
        // SAFETY: the region is closed and nobody is inside: `Closing` has seen to it, and there is one leader.
        unsafe { *self.region.get() = Region { run: run_forever, present } };
        let epoch = (self.state.load(Ordering::Relaxed) >> EPOCH_SHIFT) + 1;
        self.state.store(epoch << EPOCH_SHIFT | OPEN, Ordering::Release);
        {
            let mut closing =
                Closing { team: self, opened: Instant::now(), chunks, done: 0, _placed: Placed::new(Place::Within) };
            closing.done = self.work_off(0, threads, run);
        }
        let panic = self.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
        true
    }
}

/// Ends an inference, by unwinding too.
struct Leading<'a> {
    team: &'a Team,
    _placed: Placed,
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        self.team.crew.inferences.fetch_sub(1, Ordering::Relaxed);
        self.team.is_led.store(false, Ordering::Release);
    }
}

/// Closes a region and waits for the helpers inside, by unwinding too.
struct Closing<'a> {
    team: &'a Team,
    opened: Instant,
    chunks: u32,
    done: u32,
    _placed: Placed,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        let team = self.team;
        team.state.fetch_and(!OPEN, Ordering::Relaxed);
        let began = Instant::now();
        let mut rounds = 0u32;
        while team.state.load(Ordering::Acquire) & HELPERS != 0 {
            std::hint::spin_loop();
            rounds += 1;
            if rounds.is_multiple_of(ROUNDS) && began.elapsed() > EAGER {
                std::thread::yield_now();
            }
        }
        let chunk = (began - self.opened) / self.done.max(1);
        // To wait while a chunk ends is no delay.
        let delay =
            if rounds < ROUNDS { Duration::ZERO } else { began.elapsed().saturating_sub(chunk * 3 + EAGER * 5) };
        team.settle(chunk * self.chunks.saturating_sub(self.done), delay);
        if std::thread::panicking() {
            // The leader's own panic is the one that is seen; a helper's must not reach a later region.
            team.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parallel::{FORK_NANOSECONDS, WAKE_NANOSECONDS, parallel_for};
    use pretty_assertions::assert_eq;

    /// The threads that took part in a call, and how often each chunk ran.
    fn shared(count: usize, work: u64) -> (usize, Vec<usize>) {
        let threads = Mutex::new(std::collections::HashSet::new());
        let runs: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
        parallel_for(count, 1, work, |range| {
            threads.lock().unwrap().insert(std::thread::current().id());
            runs[range.start].fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_micros(200));
        });
        (threads.into_inner().unwrap().len(), runs.into_iter().map(AtomicUsize::into_inner).collect())
    }

    /// Calls until several threads take part, because another process may hold their processors.
    fn until_shared(team: &Arc<Team>, count: usize, work: u64) -> Vec<usize> {
        let begin = Instant::now();
        loop {
            team.wait_for_helpers();
            let (threads, runs) = shared(count, work);
            if threads > 1 {
                return runs;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "{count} chunks run on one thread");
        }
    }

    #[test]
    fn every_chunk_runs_once_on_all_threads() {
        let team = Team::new(Crew::new(3));
        team.lead(|| {
            for count in [2, 3, 7, 50] {
                assert_eq!(until_shared(&team, count, FORK_NANOSECONDS), vec![1; count]);
            }
            assert_eq!(shared(9, FORK_NANOSECONDS - 1), (1, vec![1; 9]));
        });
        assert_eq!(shared(9, u64::MAX), (1, vec![1; 9]));
    }

    /// Many small regions from several threads, so that regions open and close while helpers enter and leave.
    #[test]
    fn storms_of_small_regions() {
        let crew = Crew::new(3);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let team = Team::new(crew.clone());
                scope.spawn(move || {
                    for round in 0..200 {
                        team.lead(|| {
                            for region in 0..50 {
                                let count = 1 + (region * 7 + round + thread) % 40;
                                let mut data = vec![0usize; count];
                                crate::parallel::parallel_chunks_mut(&mut data, 1, WAKE_NANOSECONDS, |i, d| {
                                    d[0] += i + 1;
                                });
                                assert_eq!(data, (1..=count).collect::<Vec<_>>());
                            }
                        });
                        if round % 50 == 0 {
                            std::thread::sleep(LINGER * 3);
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn chunks_within_chunks_run_in_order() {
        let team = Team::new(Crew::new(2));
        team.lead(|| {
            team.wait_for_helpers();
            parallel_for(4, 1, u64::MAX, |_| assert_eq!(shared(5, u64::MAX), (1, vec![1; 5])));
            until_shared(&team, 20, u64::MAX);
        });
    }

    #[test]
    fn a_second_leader_runs_alone_and_a_nested_one_keeps_its_team() {
        let team = Team::new(Crew::new(2));
        team.lead(|| {
            team.lead(|| until_shared(&team, 20, u64::MAX));
            let other =
                || std::thread::scope(|scope| scope.spawn(|| team.lead(|| shared(9, u64::MAX).0)).join().unwrap());
            assert_eq!(other(), 1);
            until_shared(&team, 20, u64::MAX);
        });
    }

    #[test]
    fn panics_reach_the_leader_and_leave_the_team_sound() {
        let team = Team::new(Crew::new(2));
        team.lead(|| {
            for bad in [0, 15] {
                team.wait_for_helpers();
                let run = || parallel_for(16, 1, u64::MAX, |range| assert_ne!(range.start, bad, "chunk {bad}"));
                assert!(catch_unwind(run).is_err());
                assert_eq!(shared(16, u64::MAX).1, vec![1; 16]);
            }
            // On all threads at once.
            team.wait_for_helpers();
            let meeting = std::sync::Barrier::new(2);
            let run = || {
                parallel_for(2, 1, u64::MAX, |range| {
                    meeting.wait();
                    assert!(range.is_empty(), "every chunk");
                });
            };
            assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
            assert_eq!(shared(16, u64::MAX).1, vec![1; 16]);
        });
    }

    #[test]
    fn short_work_has_helpers_when_repeated() {
        let team = Team::new(Crew::new(2));
        let leads = || team.lead_when_repeated(|| matches!(place(), Place::Leads(_)));
        let begin = Instant::now();
        std::thread::sleep(CLOSE);
        assert!(!leads());
        while !leads() {
            assert!(begin.elapsed() < Duration::from_secs(60), "no work follows another at once");
        }
        std::thread::sleep(CLOSE);
        assert!(!leads());
    }

    #[test]
    fn helpers_leave_when_nothing_is_to_do() {
        let team = Team::new(Crew::new(3));
        team.lead(|| team.wait_for_helpers());
        let begin = Instant::now();
        while team.called.load(Ordering::Acquire) != 0 {
            assert!(begin.elapsed() < Duration::from_secs(60), "helpers did not leave");
            std::thread::sleep(LINGER);
        }
    }

    /// A helper that is held up is not waited for again soon.
    #[test]
    fn a_team_rests_after_a_delay() {
        let team = Team::new(Crew::new(2));
        team.lead(|| {
            let leader = std::thread::current().id();
            let begin = Instant::now();
            while !team.rests() {
                assert!(begin.elapsed() < Duration::from_secs(60), "the team does not rest");
                team.wait_for_helpers();
                parallel_for(64, 1, u64::MAX, |_| {
                    let is_leader = std::thread::current().id() == leader;
                    std::thread::sleep(Duration::from_micros(if is_leader { 10 } else { 100_000 }));
                });
            }
            let begin = Instant::now();
            while team.has_helpers() {
                assert!(begin.elapsed() < Duration::from_secs(60), "the helper did not leave");
                std::thread::yield_now();
            }
        });
    }
}
