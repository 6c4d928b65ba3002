//! What a request has in the books of a worker, from being booked to being settled.

use fleet::WorkerId;
use routing::admission::Ticket;

#[derive(Debug, Clone, Copy)]
pub(super) struct Claim {
    pub(super) worker: WorkerId,
    /// Tells these books from those of another worker of the same number.
    pub(super) epoch: u64,
    pub(super) ticket: Ticket,
    /// To be given back with the ticket.
    pub(super) kv_tokens: u64,
    /// The most KV tokens the request can hold there, as far as known.
    pub(super) claimed_tokens: u64,
    /// The rank that it was sent to by name.
    pub(super) rank: Option<u16>,
}
