//! What the pool is built of: the standard library's parts, or loom's, which try every order of events
//! (`RUSTFLAGS="--cfg loom" cargo test -p forespeak-kernels --lib --release pool::tests`).

#[cfg(not(loom))]
pub(crate) use std::{
    hint,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

#[cfg(loom)]
pub(crate) use loom::{
    hint,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};
#[cfg(loom)]
pub(crate) use std::sync::PoisonError;

/// A cell that is shared by a protocol instead of a lock. Loom watches that the protocol keeps its word.
#[derive(Default)]
pub(crate) struct SharedCell<T> {
    #[cfg(not(loom))]
    cell: std::cell::UnsafeCell<T>,
    #[cfg(loom)]
    cell: loom::cell::UnsafeCell<T>,
}

impl<T: Copy> SharedCell<T> {
    /// # Safety
    /// Nobody may write meanwhile.
    pub(crate) unsafe fn get(&self) -> T {
        #[cfg(not(loom))]
        return *self.cell.get();
        #[cfg(loom)]
        self.cell.with(|value| *value)
    }

    /// # Safety
    /// Nobody may read or write meanwhile.
    pub(crate) unsafe fn set(&self, value: T) {
        #[cfg(not(loom))]
        {
            *self.cell.get() = value;
        }
        #[cfg(loom)]
        self.cell.with_mut(|place| *place = value);
    }
}
