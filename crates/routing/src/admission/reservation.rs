//! A reservation that cannot be forgotten.
//!
//! The books of [`super::WorkerLedger`] live behind whatever the gateway chooses (a lock, a channel); this type only
//! promises that every reservation is given back exactly once, when the stream that carries it is dropped: at
//! its end, on an error, and when the client walks away in the middle.

use super::Ticket;
use crate::worker::WorkerId;

/// Where a reservation goes back to.
pub trait Release {
    /// Called exactly once per reservation.
    fn release(&self, worker: WorkerId, ticket: Ticket);
}

/// KV tokens of one worker, held for one request until dropped.
///
/// ```
/// use std::cell::RefCell;
/// use std::rc::Rc;
/// use std::time::Duration;
/// use forespeak_routing::WorkerId;
/// use forespeak_routing::admission::{Demand, Release, Reservation, Ticket, WorkerLedger};
///
/// #[derive(Clone, Default)]
/// struct Books(Rc<RefCell<WorkerLedger>>);
///
/// impl Release for Books {
///     fn release(&self, _worker: WorkerId, ticket: Ticket) {
///         self.0.borrow_mut().settle(ticket, Duration::ZERO);
///     }
/// }
///
/// let books = Books::default();
/// let demand = Demand { uncached_prompt_tokens: 100, kv_tokens: 150 };
/// let ticket = books.0.borrow_mut().reserve(demand, Duration::ZERO);
/// let held = Reservation::new(WorkerId(0), ticket, books.clone());
/// assert_eq!(books.0.borrow().kv_tokens(), 150);
///
/// drop(held); // the client hung up
/// assert!(books.0.borrow().is_empty());
/// ```
#[must_use = "dropping a reservation gives it back"]
pub struct Reservation<R: Release> {
    worker: WorkerId,
    ticket: Ticket,
    books: R,
}

impl<R: Release> Reservation<R> {
    /// Wraps a ticket the books have just handed out.
    pub fn new(worker: WorkerId, ticket: Ticket, books: R) -> Self {
        Self {
            worker,
            ticket,
            books,
        }
    }

    /// On which worker.
    pub fn worker(&self) -> WorkerId {
        self.worker
    }

    /// Its name in that worker's books.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }
}

impl<R: Release> Drop for Reservation<R> {
    fn drop(&mut self) {
        self.books.release(self.worker, self.ticket);
    }
}
