//! Sums of a block in the tile registers of x86 processors (AMX), by inline assembly: Rust has no stable names for
//! these instructions. A register holds 16 rows of 64 bytes.
//!
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18.

#![cfg_attr(
    all(target_arch = "x86_64", target_os = "linux"),
    expect(unsafe_code, reason = "the instructions are assembly, and the system is asked for their registers")
)]

use super::kernel::{Rows, Sums};

/// Asks the system for the tile registers, for all threads of this process. Returns whether the processor multiplies
/// bf16 with them and the system permits it. Always false on systems other than x86-64 Linux.
pub(super) fn request_tile_registers() -> bool {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    {
        /// Bits of EDX of leaf 7: products of bf16 in tiles, and tiles.
        const WANTED: u32 = 1 << 22 | 1 << 24;
        /// The request of `arch_prctl` for a component of a processor's state, and the component of the tiles' data.
        const REQUEST: libc::c_int = 0x1023;
        const TILE_DATA: libc::c_long = 18;
        let leaves = std::arch::x86_64::__cpuid(0).eax;
        let has_tiles = leaves >= 7 && std::arch::x86_64::__cpuid_count(7, 0).edx & WANTED == WANTED;
        // SAFETY: the call takes plain numbers and gives this process a larger state to save, or an error.
        has_tiles && unsafe { libc::syscall(libc::SYS_arch_prctl, REQUEST, TILE_DATA) == 0 }
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    false
}

/// The tile registers of the calling thread, eight of 16 rows of 64 bytes; dropping this releases them.
pub(super) struct TileRegisters(());

impl TileRegisters {
    /// Configures the registers of the calling thread and clears them. [`request`] must have returned true. Does
    /// nothing on systems other than x86-64 Linux.
    pub(super) fn configure() -> Self {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        {
            /// The first palette; 64 bytes a row for each of the first eight registers, from byte 16 on; 16 rows for
            /// each, from byte 48 on.
            static CONFIGURATION: [u8; 64] = {
                let mut bytes = [0; 64];
                bytes[0] = 1;
                let mut register = 0;
                while register < 8 {
                    bytes[16 + 2 * register] = 64;
                    bytes[48 + register] = 16;
                    register += 1;
                }
                bytes
            };
            // SAFETY: the operand is 64 bytes of a valid configuration; registers that it clears are named below.
            unsafe {
                std::arch::asm!(
                    "ldtilecfg [{}]", in(reg) CONFIGURATION.as_ptr(),
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack, readonly, preserves_flags),
                );
            }
        }
        Self(())
    }
}

impl Drop for TileRegisters {
    /// Releases the registers of the calling thread; their content is lost.
    fn drop(&mut self) {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        // SAFETY: nothing is in the registers that is still needed.
        unsafe {
            std::arch::asm!("tilerelease", options(nostack, nomem, preserves_flags));
        }
    }
}

/// Writes the sums of a block of 32 × 32 by `tdpbf16ps`, from its rows and a panel, in `steps` steps of 32 numbers.
/// Four registers hold the sums, each a square of 16 × 16. The caller has checked the rows and holds [`TileRegisters`].
/// Panics if the panel is too short or `steps` is 0. Does nothing on systems other than x86-64 Linux.
#[cfg_attr(
    not(all(target_arch = "x86_64", target_os = "linux")),
    expect(unused_variables, reason = "no such processor")
)]
pub(super) fn sum(rows: Rows<'_>, panel: &[u32], steps: usize, sums: &mut Sums) {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    {
        use super::kernel::COLUMNS;
        assert!(steps > 0 && panel.len() >= steps * 16 * COLUMNS, "pairs of a panel");
        let upper = rows.numbers.as_ptr();
        let lower = upper.wrapping_add(16 * rows.stride);
        // SAFETY: a step reads 64 bytes of each of 32 rows, 2 · stride bytes apart, and 16 rows of 128 bytes of the
        // panel, all inside their slices by the checks; the sums are 32 rows of 128 bytes; the registers are
        // configured.
        unsafe {
            std::arch::asm!(
                "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
                "2:",
                "tileloadd tmm4, [{upper} + {row}*1]",
                "tileloadd tmm6, [{panel} + {line}*1]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tileloadd tmm7, [{panel} + {line}*1 + 64]",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tileloadd tmm5, [{lower} + {row}*1]",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "add {upper}, 64", "add {lower}, 64", "add {panel}, 2048",
                "dec {steps}", "jnz 2b",
                "tilestored [{sums} + {line}*1], tmm0",
                "tilestored [{sums} + {line}*1 + 64], tmm1",
                "tilestored [{sums} + {line}*1 + 2048], tmm2",
                "tilestored [{sums} + {line}*1 + 2112], tmm3",
                upper = inout(reg) upper => _, lower = inout(reg) lower => _, panel = inout(reg) panel.as_ptr() => _,
                row = in(reg) 2 * rows.stride, line = in(reg) 4 * COLUMNS, sums = in(reg) sums.as_mut_ptr(),
                steps = inout(reg) steps => _,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }
}
