//! What this machine has to offer: cores that compute, memory that is free, files that may be open.

mod cores;
mod files;
mod memory;
mod pages;

pub(crate) use cores::physical_cores;
pub(crate) use files::allow_many_files;
pub(crate) use memory::available_memory;
pub(crate) use pages::prefer_small_pages;
