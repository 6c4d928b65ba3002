//! What this machine has to offer: cores that compute and memory that is free.

mod cores;
mod memory;
mod pages;

pub(crate) use cores::physical_cores;
pub(crate) use memory::available_memory;
pub(crate) use pages::prefer_small_pages;
