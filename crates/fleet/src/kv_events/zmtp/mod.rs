//! As much of ZeroMQ's wire protocol (ZMTP 3.0, no security) as listening to KV events takes.
//!
//! A subscriber of foreign processes must bound what they can make it allocate, and know when a
//! connection was lost. The general-purpose library does neither (a frame's announced length is reserved
//! as it stands, and reconnecting happens out of sight), so this is a client of our own: two socket kinds,
//! a greeting, frames. What the far side may send is capped before a byte of it is stored.
//!
//! ```text
//! greeting  ff 8×00 7f | 03 00 | "NULL" padded to 20 | as-server 0 | 31×00
//! frame     flags (1 more, 2 long, 4 command) | length: 1 byte, or 8 when long | body
//! command   name length | name | …        READY carries the socket's type
//! ```

mod frame;
mod socket;

pub(crate) use socket::Endpoint;
pub(super) use socket::{Kind, Socket, ZmtpError};
