//! The number formats of GGUF files: which format each tensor gets, by the rules of llama.cpp's `llama-quantize`.

use candle_core::quantized::GgmlDType;

/// A choice of number formats for the tensors of a GGUF file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantization {
    /// 32 bits.
    F32,
    /// 16 bits with a 5-bit exponent.
    F16,
    /// 16 bits with the exponent of `F32`.
    Bf16,
    /// 8 bits, in blocks of 32 with one scale.
    Q8_0,
    /// 6.6 bits, in blocks of 256.
    Q6K,
    /// About 5.7 bits: mostly 5-bit blocks, some matrices with 6 bits.
    Q5KM,
    /// About 4.8 bits: mostly 4-bit blocks, some matrices with 6 bits.
    Q4KM,
}

impl Quantization {
    /// The largest difference of a token's log-probability, in nats, that rounding to this format explains. Each limit
    /// is 1.6 to 8 times the larger of what was measured on Qwen2.5-Coder 0.5B and on the sample model; a wrong order
    /// of rows or a missing scale gives many times as much.
    #[must_use]
    pub fn limit(self) -> f32 {
        match self {
            Self::F32 => 0.01,
            Self::F16 => 0.05,
            Self::Bf16 => 0.5,
            Self::Q8_0 => 0.75,
            Self::Q6K => 1.5,
            Self::Q5KM => 2.5,
            Self::Q4KM => 4.0,
        }
    }

    /// The number of this choice in `general.file_type`.
    pub(super) fn file_type(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q8_0 => 7,
            Self::Q4KM => 15,
            Self::Q5KM => 17,
            Self::Q6K => 18,
            Self::Bf16 => 32,
        }
    }

    /// The format of the tensor `name`, a GGUF name such as `blk.0.attn_v.weight`, of this shape, in a model of so many
    /// `layers`. Vectors and routers are `F32`. The matrix that makes the logits is `output.weight`, or, if that is
    /// missing (`is_tied`), `token_embd.weight`. Rows that are not whole blocks get a format with smaller blocks.
    pub(super) fn dtype(self, name: &str, shape: &[usize], layers: usize, is_tied: bool) -> GgmlDType {
        let &[.., _, columns] = shape else { return GgmlDType::F32 };
        if name.ends_with("ffn_gate_inp.weight") {
            return GgmlDType::F32;
        }
        let is_head = name == if is_tied { "token_embd.weight" } else { "output.weight" };
        let wanted = match self {
            Self::F32 => GgmlDType::F32,
            Self::F16 => GgmlDType::F16,
            Self::Bf16 => GgmlDType::BF16,
            Self::Q8_0 => GgmlDType::Q8_0,
            Self::Q6K => GgmlDType::Q6K,
            Self::Q5KM | Self::Q4KM if is_head || has_more_bits(name, layers) => GgmlDType::Q6K,
            Self::Q5KM => GgmlDType::Q5K,
            Self::Q4KM => GgmlDType::Q4K,
        };
        fit(wanted, columns)
    }
}

/// Whether the `_M` choices give the tensor `name` more bits: the matrix of the attention's values, alone or fused, and
/// the last one of the feed-forward part, in the first and the last eighth of the blocks and in every third block
/// between.
fn has_more_bits(name: &str, layers: usize) -> bool {
    let Some((layer, part)) = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) else { return false };
    let Ok(layer) = layer.parse::<usize>() else { return false };
    let eighth = layers / 8;
    let is_chosen = layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
    is_chosen && ["attn_v.weight", "attn_qkv.weight", "ffn_down.weight", "ffn_down_exps.weight"].contains(&part)
}

/// The format for rows of so many columns: `wanted` if they are whole blocks of it, else the nearest with blocks of 32,
/// else `F16`.
fn fit(wanted: GgmlDType, columns: usize) -> GgmlDType {
    let is_whole = |dtype: GgmlDType| columns.is_multiple_of(dtype.block_size());
    let smaller = match wanted {
        GgmlDType::Q4K => GgmlDType::Q5_0,
        GgmlDType::Q5K => GgmlDType::Q5_1,
        _ => GgmlDType::Q8_0,
    };
    [wanted, smaller].into_iter().find(|dtype| is_whole(*dtype)).unwrap_or(GgmlDType::F16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_get_the_formats_that_llama_quantize_gives_them() {
        let four = |name: &str, columns| Quantization::Q4KM.dtype(name, &[8, columns], 24, true);
        assert_eq!(four("token_embd.weight", 512), GgmlDType::Q6K, "it makes the logits");
        assert_eq!(four("blk.0.attn_q.weight", 512), GgmlDType::Q4K);
        assert_eq!(four("blk.0.attn_q.weight", 896), GgmlDType::Q5_0, "no whole blocks of 256");
        assert_eq!(four("blk.0.attn_q.weight", 24), GgmlDType::F16, "no whole blocks of 32");
        let more: Vec<usize> =
            (0..24).filter(|layer| four(&format!("blk.{layer}.ffn_down.weight"), 512) == GgmlDType::Q6K).collect();
        assert_eq!(more, [0, 1, 2, 5, 8, 11, 14, 17, 20, 21, 22, 23]);
        assert_eq!(Quantization::Q4KM.dtype("token_embd.weight", &[8, 512], 24, false), GgmlDType::Q4K);
        assert_eq!(Quantization::Q4KM.dtype("blk.0.attn_norm.weight", &[512], 24, true), GgmlDType::F32);
    }
}
