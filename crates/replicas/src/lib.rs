//! What gateways that stand side by side tell each other, through a Redis that none of them depends on.
//!
//! ```text
//! keys        one secret for all: names that say nothing to others, seals
//! bulletin    what one gateway has to say: workers it finds ill, what tenants have used
//! diary         since when
//! board       the last bulletin of each; what follows from all of them
//! prefixes    which prompts went to which worker
//! exchange    the task that tells and listens, five times a second
//! ```
//! Everything but `exchange` is pure. No request ever waits for any of it: what the others say changes what a
//! gateway knows, in the background, and when they fall silent it goes on with what it knows itself.
//!
//! **What others say is advice.** A worker they find ill is looked at again at once, and until that has shown
//! how it is, others are preferred; whoever has seen it well since knows better, and the last worker is never
//! taken away. What others used of a tenant's limit is charged to our own books, so that every gateway counts
//! all of it.

mod board;
mod bulletin;
mod codec;
mod diary;
mod exchange;
mod keys;
mod prefixes;

pub use board::{Board, Elsewhere, FORGOTTEN_AFTER, Hearsay, MAX_GATEWAYS, SILENT_AFTER};
pub use bulletin::{Amount, Bulletin, GatewayId, Kind, MAX_TROUBLES, MAX_USES, Trouble, Use};
pub use exchange::{Config, Counts, Household, News, Replicas, Said, TURN};
pub use keys::{Keys, Name};
pub use prefixes::{MAX_BLOCKS, MAX_PREFIXES, Prefix};
