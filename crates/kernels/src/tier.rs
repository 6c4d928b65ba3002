//! Which instructions the kernels may use: detected at run time, or forced for tests and comparisons.

use std::fmt;
use std::str::FromStr;

/// How wide the arithmetic is, from the portable oracle to the widest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Plain Rust, on any machine.
    Scalar,
    /// AVX2 with FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ, VL and VNNI. BF16 is asked for separately; without it bf16 products run as [`Tier::Avx2`].
    Avx512,
}

impl Tier {
    /// Every tier, narrowest first.
    pub const ALL: [Tier; 3] = [Tier::Scalar, Tier::Avx2, Tier::Avx512];

    /// The widest tier that this machine has.
    pub fn detect() -> Tier {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c");
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni");
            match (avx2, avx512) {
                (true, true) => return Tier::Avx512,
                (true, false) => return Tier::Avx2,
                _ => {}
            }
        }
        Tier::Scalar
    }

    /// The tier for bf16 products: the extension is younger than the rest of AVX-512.
    pub(crate) fn for_bf16(self) -> Tier {
        #[cfg(target_arch = "x86_64")]
        if self == Tier::Avx512 && !is_x86_feature_detected!("avx512bf16") {
            return Tier::Avx2;
        }
        self
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tier::Scalar => "scalar",
            Tier::Avx2 => "avx2",
            Tier::Avx512 => "avx512",
        })
    }
}

/// A name that is no tier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown tier `{0}`: use scalar, avx2 or avx512")]
pub struct ParseTierError(String);

impl FromStr for Tier {
    type Err = ParseTierError;

    fn from_str(name: &str) -> Result<Tier, ParseTierError> {
        let known = Tier::ALL.into_iter().find(|tier| tier.to_string() == name);
        known.ok_or_else(|| ParseTierError(name.to_owned()))
    }
}

/// Compiles a kernel for every tier and picks one at run time.
///
/// `tiered!(pub(crate) fn name(a: A, b: B) = kernel)` makes `unsafe fn name(tier, a, b)` out of
/// `unsafe fn kernel<L: Lanes>(a: A, b: B)`; with `= kernel, 8` the kernel takes a constant after its lanes, and
/// `bf16` before `fn` lets it use the BF16 extension. The caller promises that the machine has the tier, which
/// [`Compute`](crate::Compute) guarantees, and whatever the kernel itself asks for.
macro_rules! tiered {
    (bf16 $($rest:tt)*) => {
        $crate::tier::tiered! {
            @with "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16,avx2,fma,f16c"; $($rest)*
        }
    };
    (@with $avx512:literal; $visibility:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) = $kernel:path $(, $constant:expr)?) => {
        #[inline]
        $visibility unsafe fn $name(tier: $crate::tier::Tier, $($arg: $type),*) {
            use $kernel as kernel;
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = $avx512)]
            unsafe fn avx512($($arg: $type),*) {
                kernel::<$crate::lanes::Avx512 $(, $constant)?>($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            unsafe fn avx2($($arg: $type),*) {
                kernel::<$crate::lanes::Avx2 $(, $constant)?>($($arg),*)
            }
            match tier {
                #[cfg(target_arch = "x86_64")]
                $crate::tier::Tier::Avx512 => avx512($($arg),*),
                #[cfg(target_arch = "x86_64")]
                $crate::tier::Tier::Avx2 => avx2($($arg),*),
                _ => kernel::<$crate::lanes::Scalar $(, $constant)?>($($arg),*),
            }
        }
    };
    ($($rest:tt)*) => {
        $crate::tier::tiered! {
            @with "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c"; $($rest)*
        }
    };
}
pub(crate) use tiered;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_round() {
        for tier in Tier::ALL {
            assert_eq!(tier.to_string().parse(), Ok(tier));
        }
        assert!("sse".parse::<Tier>().is_err());
    }

    #[test]
    fn tiers_are_ordered_by_width() {
        assert!(Tier::Scalar < Tier::Avx2 && Tier::Avx2 < Tier::Avx512);
    }
}
