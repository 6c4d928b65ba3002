//! One generation for everybody who asks the same at the same time.
//!
//! A flight belongs to its readers, not to the one who was first: whoever polls it drives its source, so there
//! is no task in between, the quickest reader sets the pace, and the generation goes on as long as anybody
//! reads and is dropped, and thereby cancelled, with the last one. A slow reader neither holds up the others
//! nor makes memory grow: beyond a bound it loses the thread.
//!
//! When a flight fails, whoever had nothing of it yet is not told: it tries again, and the first to do so
//! leads the next flight.

mod core;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use futures_util::{Stream, stream};

use crate::fingerprint::{Fingerprint, Route, Wants};
use crate::recording::{Event, Recording, Unfit};
pub use core::{Broken, Head, Part};
use core::{Core, Next, ReaderId};
pub(crate) use core::{Form, MAX_READERS, View};

/// Most bytes that one flight holds for those who join late.
pub(crate) const MAX_FLIGHT_BYTES: usize = 16 << 20;

/// Most bytes that all flights hold together. Above it every flight that grows stops taking joiners.
const MAX_HELD_BYTES: usize = 256 << 20;

/// What makes an answer: its head, then its body.
pub type Source = Pin<Box<dyn Stream<Item = Result<Part, Broken>> + Send>>;

/// Is given a flight that has landed, to keep what it carried. Until it drops the flight, others may join it.
pub(crate) type Landed = Box<dyn FnOnce(Arc<Flight>) + Send>;

/// All flights.
#[derive(Default)]
pub(crate) struct Flights {
    by_question: Mutex<HashMap<Fingerprint, Weak<Flight>>>,
    held: AtomicUsize,
}

/// A place on a flight.
pub(crate) enum Boarded {
    /// Somebody asks already.
    Follower(Passage),
    /// Nobody does: the source is yours to bring.
    Leader(Passage),
    /// Too many wait for the same.
    Full,
}

impl Flights {
    /// Joins the flight with this question, or opens one.
    pub(crate) fn board(self: &Arc<Self>, question: Fingerprint, wants: Wants) -> Boarded {
        let mut by_question = lock(&self.by_question);
        let place = match by_question.entry(question) {
            Entry::Occupied(place) => place,
            Entry::Vacant(place) => {
                let passage = Passage::on(Flight::new(self, Some(question)), wants);
                place.insert(Arc::downgrade(&passage.flight));
                return Boarded::Leader(passage);
            }
        };
        let flight = place.get().upgrade();
        if let Some(flight) = flight {
            let (id, is_crowded) = {
                let mut core = lock(&flight.core);
                (core.join(wants), core.readers() >= MAX_READERS)
            };
            match id {
                Some(id) => {
                    let leads = false;
                    return Boarded::Follower(Passage { flight, id, leads });
                }
                None if is_crowded => return Boarded::Full,
                None => {}
            }
        }
        let passage = Passage::on(Flight::new(self, Some(question)), wants);
        *place.into_mut() = Arc::downgrade(&passage.flight);
        Boarded::Leader(passage)
    }

    /// A flight that nobody else can join.
    pub(crate) fn alone(self: &Arc<Self>, wants: Wants) -> Passage {
        Passage::on(Flight::new(self, None), wants)
    }

    /// Flights that can be joined.
    pub(crate) fn count(&self) -> usize {
        lock(&self.by_question).len()
    }

    /// Bytes held for those who join late.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    fn close(&self, flight: &Flight) {
        let Some(question) = flight.question else {
            return;
        };
        if let Entry::Occupied(place) = lock(&self.by_question).entry(question)
            && std::ptr::eq(place.get().as_ptr(), flight)
        {
            place.remove();
        }
    }
}

/// One generation and its readers.
pub(crate) struct Flight {
    flights: Arc<Flights>,
    /// `None`: cannot be joined.
    question: Option<Fingerprint>,
    core: Mutex<Core>,
    source: Mutex<Engine>,
    bell: Waker,
    /// Bytes that are counted in `flights.held`.
    counted: AtomicUsize,
    recording: OnceLock<Result<Recording, Unfit>>,
}

#[derive(Default)]
struct Engine {
    has_departed: bool,
    /// `None` before and after.
    source: Option<Source>,
    landed: Option<Landed>,
}

/// Rung by the source: wakes whoever waits. It must not keep the flight alive, for the source holds it.
struct Bell(Weak<Flight>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(flight) = self.0.upgrade() {
            flight.wake_all();
        }
    }
}

impl Flight {
    fn new(flights: &Arc<Flights>, question: Option<Fingerprint>) -> Arc<Self> {
        Arc::new_cyclic(|flight| Self {
            flights: Arc::clone(flights),
            question,
            core: Mutex::new(Core::new(MAX_FLIGHT_BYTES)),
            source: Mutex::default(),
            bell: Waker::from(Arc::new(Bell(Weak::clone(flight)))),
            counted: AtomicUsize::new(0),
            recording: OnceLock::new(),
        })
    }

    fn wake_all(&self) {
        let wakers = lock(&self.core).take_wakers();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// What it carried, made once for all who want it.
    pub(crate) fn recording(&self, route: Route) -> Result<&Recording, Unfit> {
        let made = self.recording.get_or_init(|| {
            let (form, pieces) = {
                let core = lock(&self.core);
                let pieces: Vec<Event> = core.pieces().cloned().collect();
                (core.form().filter(|_| core.is_whole()), pieces)
            };
            match form {
                Some(Form::Events) => Recording::of_events(route, &pieces),
                Some(Form::Whole) => Recording::of_json(route, &concat(&pieces)),
                _ => Err(Unfit::Incomplete),
            }
        });
        made.as_ref().map_err(|unfit| *unfit)
    }

    /// Polls the source once, if nobody else does just now. Whether there is news.
    fn drive(self: &Arc<Self>) -> bool {
        let mut engine = match self.source.try_lock() {
            Ok(engine) => engine,
            // Whoever polls it wakes us if there is news, and the bell does if there is none.
            Err(TryLockError::WouldBlock) => return false,
            // It panicked in somebody's hands. What it would have said is lost.
            Err(TryLockError::Poisoned(poisoned)) => {
                let mut engine = poisoned.into_inner();
                engine.source = Some(Box::pin(stream::iter([Err(Broken)])));
                self.source.clear_poison();
                engine
            }
        };
        let Some(source) = &mut engine.source else {
            return false;
        };
        let mut context = Context::from_waker(&self.bell);
        let Poll::Ready(part) = source.as_mut().poll_next(&mut context) else {
            return false;
        };
        self.take_in(part, engine);
        true
    }

    fn take_in(
        self: &Arc<Self>,
        part: Option<Result<Part, Broken>>,
        mut engine: MutexGuard<'_, Engine>,
    ) {
        let (is_over, is_sealed, is_whole) = {
            let mut core = lock(&self.core);
            core.take_in(part);
            self.count_bytes(&mut core);
            (core.is_over(), core.is_sealed(), core.is_whole())
        };
        if is_over {
            engine.source = None;
        }
        let keep = engine.landed.take_if(|_| is_whole);
        drop(engine);
        if is_sealed || (is_over && keep.is_none()) {
            self.close();
        }
        if let Some(keep) = keep {
            keep(Arc::clone(self));
        }
        self.wake_all();
    }

    fn count_bytes(&self, core: &mut Core) {
        let now = core.bytes();
        let before = self.counted.swap(now, Ordering::Relaxed);
        let held = if now >= before {
            let more = now - before;
            self.flights.held.fetch_add(more, Ordering::Relaxed) + more
        } else {
            let less = before - now;
            self.flights.held.fetch_sub(less, Ordering::Relaxed) - less
        };
        if held > MAX_HELD_BYTES {
            core.seal();
        }
    }

    /// Bytes of all that came.
    pub(crate) fn bytes(&self) -> usize {
        lock(&self.core).bytes()
    }

    /// How many joined whoever was first.
    pub(crate) fn followers(&self) -> u64 {
        lock(&self.core).joined().saturating_sub(1)
    }

    /// Nobody may join any more.
    pub(crate) fn close(&self) {
        self.flights.close(self);
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let counted = self.counted.load(Ordering::Relaxed);
        self.flights.held.fetch_sub(counted, Ordering::Relaxed);
        self.flights.close(self);
    }
}

/// A reader's place on a flight. Dropping it leaves; the last to leave cancels what still runs.
pub(crate) struct Passage {
    flight: Arc<Flight>,
    id: ReaderId,
    /// Whether it has to bring the source.
    leads: bool,
}

impl Passage {
    fn on(flight: Arc<Flight>, wants: Wants) -> Self {
        let id = lock(&flight.core).join(wants);
        // A new flight has room.
        let id = id.unwrap_or(ReaderId::NOBODY);
        let leads = true;
        Self { flight, id, leads }
    }

    /// Brings the source; `landed` is called when all of it has come.
    pub(crate) fn depart(&self, source: Source, landed: Option<Landed>) {
        let mut engine = lock(&self.flight.source);
        engine.has_departed = true;
        engine.source = Some(source);
        engine.landed = landed;
        drop(engine);
        // Those who joined before there was anything to drive.
        self.flight.wake_all();
    }

    /// Waits, driving, until `look` finds something.
    async fn until<T>(&self, mut look: impl FnMut(&Core) -> Option<T>) -> T {
        poll_fn(|context| {
            loop {
                {
                    let mut core = lock(&self.flight.core);
                    if let Some(found) = look(&core) {
                        return Poll::Ready(found);
                    }
                    core.wake_later(self.id, context.waker());
                }
                if !self.flight.drive() {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// The head, once the answer has one. `None`: it broke off before.
    pub(crate) async fn head(&self) -> Option<(Arc<Head>, Form)> {
        self.until(|core| match (core.head(), core.form()) {
            (Some(head), Some(form)) => Some(Some((head, form))),
            _ => core.is_over().then_some(None),
        })
        .await
    }

    /// Waits for the end and gives all of the body. `None`: it is too much to be held, and must be streamed.
    pub(crate) async fn all(&self) -> Option<Result<Bytes, Broken>> {
        let is_over = |core: &Core| (core.is_over() || core.is_sealed()).then(|| core.is_over());
        if !self.until(is_over).await {
            return None;
        }
        let mut core = lock(&self.flight.core);
        let mut all = Vec::new();
        loop {
            match core.next(self.id) {
                Next::Data(data) => all.extend_from_slice(&data),
                Next::End => return Some(Ok(all.into())),
                Next::Broken | Next::Wait => return Some(Err(Broken)),
            }
        }
    }

    /// Waits until there is something to give to a reader; one of events need not wait for all of it.
    pub(crate) async fn arrival(&self, takes_events: bool) -> View {
        self.until(|core| match core.view() {
            View::Wait => None,
            View::Streaming if !takes_events => None,
            view => Some(view),
        })
        .await
    }

    pub(crate) fn flight(&self) -> &Arc<Flight> {
        &self.flight
    }

    pub(crate) fn poll_data(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Broken>>> {
        loop {
            {
                let mut core = lock(&self.flight.core);
                match core.next(self.id) {
                    Next::Data(data) => return Poll::Ready(Some(Ok(data))),
                    Next::End => return Poll::Ready(None),
                    Next::Broken => return Poll::Ready(Some(Err(Broken))),
                    Next::Wait => core.wake_later(self.id, context.waker()),
                }
            }
            if !self.flight.drive() {
                return Poll::Pending;
            }
        }
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        let is_deserted = lock(&self.flight.core).leave(self.id);
        if is_deserted {
            self.flight.close();
            let source = lock(&self.flight.source).source.take();
            drop(source);
        } else if self.leads {
            let engine = lock(&self.flight.source);
            if !engine.has_departed {
                self.flight.take_in(Some(Err(Broken)), engine);
            }
        }
    }
}

fn concat(pieces: &[Event]) -> Vec<u8> {
    let mut all = Vec::with_capacity(pieces.iter().map(|piece| piece.bytes.len()).sum());
    for piece in pieces {
        all.extend_from_slice(&piece.bytes);
    }
    all
}

/// A lock whose owner panicked is taken all the same: the state behind it is whole after every statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
