//! What of this processor the operations use.

use super::bf16_instruction;
use super::simd::dispatch;

/// Returns the instruction sets of this CPU on which bits of results depend, such as `AVX2, FMA, AVX-512, AVX-512
/// BF16`; empty if it has none of them.
#[must_use]
pub fn instruction_sets() -> String {
    #[cfg(target_arch = "x86_64")]
    let vectors = [
        ("AVX2", is_x86_feature_detected!("avx2")),
        ("FMA", is_x86_feature_detected!("fma")),
        ("AVX-512", is_x86_feature_detected!("avx512f")),
        ("AVX-512 VNNI", is_x86_feature_detected!("avx512vnni")),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let vectors = [("NEON", cfg!(target_arch = "aarch64"))];
    let present = vectors.into_iter().filter(|(_, is_present)| *is_present).map(|(name, _)| name);
    present.chain(bf16_instruction()).collect::<Vec<_>>().join(", ")
}

/// Returns how many f32 numbers the loops of this program compute with one instruction on this CPU: 16 with AVX-512, 8
/// with AVX2, 4 with NEON, and 1 if the program uses no vectors.
#[must_use]
pub fn vector_lanes() -> usize {
    /// Returns the number of f32 numbers in a vector.
    struct CountLanes;

    impl pulp::WithSimd for CountLanes {
        type Output = usize;

        fn with_simd<S: pulp::Simd>(self, _: S) -> usize {
            S::F32_LANES
        }
    }

    dispatch(CountLanes)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn work_is_compiled_for_the_widest_vectors_of_this_processor() {
        let lanes = match () {
            () if is_x86_feature_detected!("avx512f") => 16,
            () if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") => 8,
            () => 1,
        };
        assert_eq!(vector_lanes(), lanes);
    }
}
