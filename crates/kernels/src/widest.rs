//! Plain loops of other crates, compiled for the widest vectors that a machine has.

use crate::tier::Tier;

/// A loop over many numbers, written so that the compiler can make vectors of it.
///
/// What it calls must be inlined into [`Pass::run`], which must be `#[inline(always)]` itself: only then is it compiled
/// anew for every tier. The result is the same on all of them, because the compiler neither contracts nor reorders
/// floating-point operations.
pub trait Pass {
    /// What comes out of it.
    type Output;

    /// Runs it.
    fn run(self) -> Self::Output;
}

/// Runs a pass with the widest vectors that this machine has.
///
/// ```
/// use forespeak_kernels::{Pass, widest};
///
/// struct Total<'a>(&'a [u32]);
///
/// impl Pass for Total<'_> {
///     type Output = u32;
///
///     #[inline(always)]
///     fn run(self) -> u32 {
///         self.0.iter().fold(0, |sum, x| sum.wrapping_add(*x))
///     }
/// }
/// assert_eq!(widest(Total(&[1, 2, 3])), 6);
/// ```
pub fn widest<P: Pass>(pass: P) -> P::Output {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    fn avx512<P: Pass>(pass: P) -> P::Output {
        pass.run()
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    fn avx2<P: Pass>(pass: P) -> P::Output {
        pass.run()
    }
    match Tier::detect() {
        // SAFETY: the machine has the features of the tier that was detected.
        #[cfg(target_arch = "x86_64")]
        Tier::Avx512 => unsafe { avx512(pass) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Tier::Avx2 => unsafe { avx2(pass) },
        _ => pass.run(),
    }
}
