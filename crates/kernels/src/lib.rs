//! SIMD matrix products, attention and norms; run-time dispatch; the thread pool.
