//! Products of quantized weights with a few tokens in integers, for decoding.
//!
//! The codes of a format are small integers, so the tokens are rounded to integers too: 32 of a token share a scale, in
//! steps of 1/32512 of the largest of them. Sums of products inside such a part are exact; parts are added in f32 in
//! their order. So nothing is widened, and a token has the same bits alone and in a batch.
//!
//! A number of a token is off by half a step at most. Where the numbers of a part are of one size (normal ones, say), a
//! dot product is off by about 2·10⁻⁵ of the root of the sum of its squared terms, a hundredth of what rounding the
//! tokens to bf16 costs; beside one number a thousand times as large, the others are off more than in bf16, and their
//! terms count as little beside its own.
//!
//! Needs AVX-512 with dot products of bytes (VNNI), or AVX2, which give the same bits. Elsewhere there is no
//! [`IntegerProduct`], and the numbers are widened.

#[cfg(not(target_arch = "x86_64"))]
mod fallback;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(not(target_arch = "x86_64"))]
pub(super) use fallback::{IntegerProduct, IntegerTokens};
#[cfg(target_arch = "x86_64")]
pub(super) use x86::{IntegerProduct, IntegerTokens};
