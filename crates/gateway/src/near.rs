//! Work that is quick for small input and slow for large.

use protocol::{ApiError, ErrorKind};

/// Input up to this size is worked on where it stands, in well under a millisecond. More goes to a
/// blocking thread, because the runtime's few workers also carry everybody else's streams.
pub(crate) const NEAR_BYTES: usize = 16 << 10;

/// Input up to this size is looked through where it stands (fields found, bytes hashed): that takes less time than the way to
/// another thread and back.
pub(crate) const QUICK_BYTES: usize = 1 << 20;

/// Runs `work` on `bytes` of input, here or on a blocking thread.
pub(crate) async fn run_near<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    if bytes <= NEAR_BYTES {
        return work();
    }
    run_far(work).await
}

/// Runs `work` on a blocking thread.
pub(crate) async fn run_far<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| {
        Err(ApiError::new(
            ErrorKind::Internal,
            "reading the request failed",
        ))
    })
}
