//! How much memory the kernel hands out at a time.

/// Has this process given small pages only, from now on.
///
/// The allocator asks for huge ones, which suits an engine's large tables. A process that relays gains nothing from them: its
/// many small pieces lie scattered over them, so that it holds half as much again, and whoever first touches one
/// waits until two megabytes are cleared, with everybody else in its lane (up to 5 ms on a virtual machine, measured).
pub(crate) fn prefer_small_pages() {
    // Where it cannot be said, it is slower.
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "huge pages stay on");
    }
}
