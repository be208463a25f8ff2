//! One CTA: its warps as coroutines in one thread, its memory, and the barrier where they meet.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::bulk::Bulk;
use crate::clock::Clocks;
use crate::copies::Copies;
use crate::counters::Counters;
use crate::fault::Fault;
use crate::global::Buffers;
use crate::grid::Launch;
use crate::matrix::Accumulators;
use crate::random::Random;
use crate::registers::{self, Change};
use crate::shared::Shared;
use crate::warp::Emu;

/// Stack of a warp. A kernel's register tiles live on it, 32 lanes wide, and without optimisation many copies of them.
/// Only the pages that are touched cost memory.
const STACK_BYTES: usize = 16 << 20;

/// How a warp gives way to the others.
pub enum Pause {
    /// At a barrier.
    Barrier(&'static Location<'static>),
    /// At an mbarrier, for the phase of a parity.
    Mbarrier(u32, u32, &'static Location<'static>),
    /// Just so: orders of execution vary with the seed.
    Turn,
}

/// The coroutine's handle to its scheduler.
pub type Scheduler = Yielder<(), Pause>;

/// State shared by the warps of a CTA. They run one at a time.
pub struct Cta<'a> {
    pub block: u32,
    pub global: &'a Buffers<'a>,
    pub shared: RefCell<Shared>,
    pub clocks: RefCell<Clocks>,
    pub copies: Vec<RefCell<Copies>>,
    pub bulk: RefCell<Bulk>,
    /// By warp, in order.
    pub register_changes: RefCell<Vec<Vec<Change>>>,
    pub random: RefCell<Random>,
    pub counters: Cell<Counters>,
    pub accumulators: Accumulators,
    /// Whether a predicate that was brought to the coming barrier holds, and whether one did at the last.
    pub ballot: Cell<bool>,
    pub verdict: Cell<bool>,
}

/// Where a warp stands.
#[derive(Clone, Copy)]
enum State {
    Ready,
    AtBarrier(&'static Location<'static>),
    AtMbarrier(u32, u32, &'static Location<'static>),
    Finished,
}

impl<'a> Cta<'a> {
    pub fn new(block: u32, launch: &Launch<'_>, global: &'a Buffers<'a>) -> Self {
        let &Launch { warps, shared_bytes, seed, accumulators, .. } = launch;
        Cta {
            block,
            global,
            shared: RefCell::new(Shared::new(shared_bytes, warps)),
            clocks: RefCell::new(Clocks::new(warps)),
            copies: (0..warps).map(|_| RefCell::default()).collect(),
            bulk: RefCell::default(),
            register_changes: RefCell::new(vec![Vec::new(); warps]),
            random: RefCell::new(Random::new(seed, block)),
            counters: Cell::default(),
            accumulators,
            ballot: Cell::default(),
            verdict: Cell::default(),
        }
    }

    /// Adds to the counters.
    pub fn count(&self, add: impl FnOnce(&mut Counters)) {
        let mut counters = self.counters.get();
        add(&mut counters);
        self.counters.set(counters);
    }

    /// Runs all warps to their end.
    pub fn run(&self, kernel: &(impl Fn(Emu<'_>) + Sync)) -> Result<Counters, Fault> {
        let warps = self.copies.len();
        let mut coroutines: Vec<_> = (0..warps).map(|warp| self.spawn(warp, kernel)).collect();
        let mut states = vec![State::Ready; warps];
        loop {
            // Bulk copies land at any moment, the last when nobody can go on without them.
            let ready: Vec<usize> = (0..warps).filter(|&w| self.is_ready(states[w])).collect();
            if self.land_bulk_copy(ready.is_empty()) {
                continue;
            }
            if ready.is_empty() {
                if states.iter().all(|s| matches!(s, State::Finished)) {
                    if let Some(copy) = self.bulk.borrow().forgotten() {
                        return Err(Fault::CopyNeverAwaited { copy });
                    }
                    registers::check(&self.register_changes.borrow())?;
                    return Ok(self.counters.get());
                }
                self.pass_barrier(&mut states)?;
                continue;
            }
            let warp = ready[self.random.borrow_mut().below(ready.len())];
            states[warp] = match coroutines[warp].resume(()) {
                CoroutineResult::Yield(Pause::Turn) => State::Ready,
                CoroutineResult::Yield(Pause::Barrier(location)) => State::AtBarrier(location),
                CoroutineResult::Yield(Pause::Mbarrier(address, parity, location)) => {
                    State::AtMbarrier(address, parity, location)
                }
                CoroutineResult::Return(result) => {
                    result?;
                    State::Finished
                }
            };
        }
    }

    fn is_ready(&self, state: State) -> bool {
        match state {
            State::Ready => true,
            State::AtMbarrier(address, parity, _) => self.bulk.borrow().is_complete(address, parity),
            State::AtBarrier(_) | State::Finished => false,
        }
    }

    /// Lets a bulk copy arrive, now and then or at once; says whether one did.
    fn land_bulk_copy(&self, at_once: bool) -> bool {
        let (mut bulk, mut random) = (self.bulk.borrow_mut(), self.random.borrow_mut());
        if bulk.copies.is_empty() || !(at_once || random.below(4) == 0) {
            return false;
        }
        let index = random.below(bulk.copies.len());
        let copy = bulk.land(index);
        let mut shared = self.shared.borrow_mut();
        copy.chunks.iter().for_each(|&(address, bytes)| shared.land_bulk(address, bytes));
        true
    }

    /// A warp's coroutine: ends with the kernel, or with the first fault.
    fn spawn<'c>(
        &'c self,
        warp: usize,
        kernel: &'c (impl Fn(Emu<'_>) + Sync),
    ) -> Coroutine<(), Pause, Result<(), Fault>> {
        let stack = DefaultStack::new(STACK_BYTES).expect("memory for a warp's stack");
        let body = move |scheduler: &Scheduler, ()| {
            match catch_unwind(AssertUnwindSafe(|| kernel(Emu::new(self, warp, scheduler)))) {
                Ok(()) => match self.copies[warp].borrow().forgotten() {
                    Some(copy) => Err(Fault::CopyNeverAwaited { copy: copy.place }),
                    None => Ok(()),
                },
                Err(payload) => match payload.downcast::<Fault>() {
                    Ok(fault) => Err(*fault),
                    Err(payload) => match panic_message(&*payload) {
                        Some(message) => Err(Fault::Panicked { warp, message }),
                        // The scheduler unwinds a warp that it abandons, after another warp's fault.
                        None => resume_unwind(payload),
                    },
                },
            }
        };
        // SAFETY: the coroutine is dropped at the end of `run`, which borrows all that the body refers to.
        unsafe { Coroutine::with_stack_unchecked(stack, body) }
    }

    /// Lets all warps past the barrier, if it is one and the same and all are there.
    fn pass_barrier(&self, states: &mut [State]) -> Result<(), Fault> {
        let location = |state: &State| match state {
            State::AtBarrier(location) => Some(*location),
            _ => None,
        };
        let first = states.iter().find_map(location);
        if first.is_none() || !states.iter().all(|state| location(state) == first) {
            let position = |(warp, state): (usize, &State)| match state {
                State::AtBarrier(location) => format!("warp {warp} waits at {location}"),
                State::AtMbarrier(address, parity, location) => {
                    format!(
                        "warp {warp} waits for parity {parity} of the mbarrier at {address} at {location}"
                    )
                }
                State::Ready | State::Finished => format!("warp {warp} has finished"),
            };
            return Err(Fault::Barrier { positions: states.iter().enumerate().map(position).collect() });
        }
        self.clocks.borrow_mut().join();
        self.verdict.set(self.ballot.replace(false));
        self.count(|c| c.barriers += 1);
        states.fill(State::Ready);
        Ok(())
    }
}

fn panic_message(payload: &(dyn std::any::Any + Send)) -> Option<String> {
    let text = payload.downcast_ref::<&str>().map(|s| s.to_string());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
}
