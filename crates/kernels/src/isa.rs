//! The instruction-set tiers and their detection at run time.

use std::fmt;
use std::sync::OnceLock;

/// A family of instructions that a kernel body is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// Plain Rust over four-lane arrays, compiled for the target's baseline.
    Portable,
    /// aarch64, whose baseline NEON is; four f32 lanes.
    Neon,
    /// x86-64 with AVX2, FMA and F16C; eight f32 lanes.
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ and VL on top of the AVX2 tier; sixteen f32 lanes.
    Avx512,
}

/// A tier that this machine is known to support, and whether its instructions for products of bytes (VNNI) may be used.
/// Holding one is the proof that kernels rely on, therefore it can only be made by checking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Isa {
    tier: Tier,
    has_vnni: bool,
}

impl Isa {
    /// The tier if this machine supports it, with VNNI where the machine has it.
    #[must_use]
    pub fn new(tier: Tier) -> Option<Self> {
        supported(tier).then(|| Self { tier, has_vnni: supports_vnni(tier) })
    }

    /// The portable tier, which every machine supports.
    #[must_use]
    pub const fn portable() -> Self {
        Self { tier: Tier::Portable, has_vnni: false }
    }

    /// Every tier this machine supports, slowest first. Tests iterate over it.
    pub fn available() -> impl Iterator<Item = Self> {
        [Tier::Portable, Tier::Neon, Tier::Avx2, Tier::Avx512].into_iter().filter_map(Self::new)
    }

    /// Every tier this machine supports, first as on a machine that lacks VNNI, then with it where this machine has it. Tests of
    /// products of bytes iterate over it.
    pub fn available_without_vnni_too() -> impl Iterator<Item = Self> {
        Self::available().flat_map(|isa| {
            let with = isa.has_vnni.then_some(isa);
            std::iter::once(Self { has_vnni: false, ..isa }).chain(with)
        })
    }

    /// The tier this value stands for.
    #[must_use]
    pub const fn tier(self) -> Tier {
        self.tier
    }

    /// Whether one instruction adds four products of an unsigned and a signed byte to every lane without saturation: AVX-512 VNNI
    /// in the tier of AVX-512, AVX-VNNI in that of AVX2.
    #[must_use]
    pub const fn has_vnni(self) -> bool {
        self.has_vnni
    }

    /// The number of f32 lanes in one vector register.
    #[must_use]
    pub const fn lanes(self) -> usize {
        match self.tier {
            Tier::Portable | Tier::Neon => 4,
            Tier::Avx2 => 8,
            Tier::Avx512 => 16,
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match (self.tier, self.has_vnni) {
            (Tier::Portable, _) => "portable",
            (Tier::Neon, _) => "neon",
            (Tier::Avx2, false) => "avx2",
            (Tier::Avx2, true) => "avx2 with vnni",
            (Tier::Avx512, false) => "avx512",
            (Tier::Avx512, true) => "avx512 with vnni",
        })
    }
}

/// The best tier of this machine, detected on the first call.
pub fn detect() -> Isa {
    static BEST: OnceLock<Isa> = OnceLock::new();
    *BEST.get_or_init(|| Isa::available().last().unwrap_or(Isa::portable()))
}

#[cfg(target_arch = "x86_64")]
fn supported(tier: Tier) -> bool {
    let avx2 =
        || is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
    match tier {
        Tier::Portable => true,
        Tier::Neon => false,
        Tier::Avx2 => avx2(),
        Tier::Avx512 => {
            avx2()
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn supports_vnni(tier: Tier) -> bool {
    match tier {
        Tier::Portable | Tier::Neon => false,
        Tier::Avx2 => is_x86_feature_detected!("avxvnni"),
        Tier::Avx512 => is_x86_feature_detected!("avx512vnni"),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn supports_vnni(_tier: Tier) -> bool {
    false
}

#[cfg(target_arch = "aarch64")]
fn supported(tier: Tier) -> bool {
    matches!(tier, Tier::Portable | Tier::Neon)
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn supported(tier: Tier) -> bool {
    tier == Tier::Portable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_detected_tier_is_the_last_available() {
        assert_eq!(Isa::available().next(), Some(Isa::portable()));
        assert_eq!(Isa::available().last(), Some(detect()));
        assert!(Isa::available().all(|isa| isa.lanes() % 4 == 0 && !isa.to_string().is_empty()));
    }

    #[test]
    fn every_tier_comes_without_vnni_and_with_it_where_there_is_such() {
        let all: Vec<Isa> = Isa::available_without_vnni_too().collect();
        assert!(Isa::available().all(|isa| all.contains(&isa)));
        for isa in Isa::available() {
            let of_tier: Vec<bool> =
                all.iter().filter(|other| other.tier() == isa.tier()).map(|o| o.has_vnni()).collect();
            assert_eq!(of_tier, if isa.has_vnni() { vec![false, true] } else { vec![false] }, "{isa}");
        }
        assert!(!Isa::portable().has_vnni());
    }

    #[test]
    fn neon_is_the_tier_of_aarch64() {
        assert_eq!(Isa::new(Tier::Neon).is_some(), cfg!(target_arch = "aarch64"));
        assert_eq!(detect().to_string() == "neon", cfg!(target_arch = "aarch64"));
    }
}
