//! The list of kernels that can be launched: the name of each, its module, and the kinds of its arguments.
//!
//! Every launch is checked against this list, and a test checks the list against the kernels' sources in `kernels/`. So
//! a kernel never reads a scalar as a pointer, nor elements of one type as another.

use candle_core::DType;

use super::argument::{Argument, Build};
use crate::error::{Error, Result};

/// A group of kernels that are compiled together as one source, after the prelude of the language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Module {
    /// Attention over packed sequences. Compiled once for each head size.
    Attention,
    /// Writing to the key-value cache, and attention to it. Compiled once for each head size and number of query heads
    /// for each key-value head.
    Cached,
    /// Random numbers: dropout, and sampling of the next token.
    Random,
    /// Matrix products of Metal. They are not in the list of kernels below: the `multiply` of Metal launches them.
    #[cfg(any(test, target_os = "macos"))]
    Product,
    /// All other kernels: element-wise operations, norms, RoPE, embedding, output head, optimizer and others.
    Step,
    /// Dequantization of weights to the activation type.
    Unpack,
}

impl Module {
    /// The modules that have kernels in the list: all but `Product`.
    #[cfg(test)]
    pub(super) const ALL: [Self; 5] = [Self::Attention, Self::Cached, Self::Random, Self::Step, Self::Unpack];
}

/// A kernel that `Accelerator::launch` can launch.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) name: &'static str,
    pub(crate) module: Module,
    /// The kinds of the arguments in order, one letter for each. Pointers: `a` to elements of the activation type, `f`
    /// to f32, `d` to f64 (on a device without f64, to pairs of f32), `b` to bf16, `h` to f16, `u` to 32-bit words, `y`
    /// to bytes, `w` to 64-bit words (the fault word). Scalars: `n` u32, `l` u64, `x` f32.
    pub(super) signature: &'static str,
}

macro_rules! kernels {
    ($($constant:ident = $text:ident . $name:literal ( $takes:literal );)*) => {
        $(pub(crate) const $constant: Kernel = Kernel { name: $name, module: Module::$text, signature: $takes };)*

        /// All kernels of the list.
        #[cfg(test)]
        pub(super) const ALL: &[&Kernel] = &[$(&$constant),*];
    };
}

kernels! {
    ATTENTION = Attention."attention"("afaaauulllnnnxxn");
    ATTENTION_DELTA = Attention."attention_delta"("faannn");
    ATTENTION_DKV = Attention."attention_dkv"("aafnnaaaaffuulllnnnxxn");
    ATTENTION_DQ = Attention."attention_dq"("aaaaaffuulllnnnxxn");
    ATTENTION_PLAIN = Attention."attention_plain"("afaaauulllnnnxxn");
    ATTENTION_PLAIN_DKV = Attention."attention_plain_dkv"("aaaaaaffuulllnnnxxn");
    ATTENTION_PLAIN_DQ = Attention."attention_plain_dq"("aaaaaffuulllnnnxxn");
    ATTENTION_CACHED = Cached."attention_cached"("ffaaauunnnnxxn");
    ATTENTION_CACHED_MERGE = Cached."attention_cached_merge"("affunnn");
    CACHE_APPEND = Cached."cache_append"("aaaauuuunnnllw");
    CHOOSE = Random."choose"("ufunnxxn");
    DROPOUT = Random."dropout"("aaullxx");
    ACCUMULATE = Step."accumulate"("faxl");
    ADAMW = Step."adamw"("ffffafflw");
    ADD = Step."add"("aaal");
    ADD_BIAS = Step."add_bias"("afnnl");
    ADD_PARTS = Step."add_parts"("ffnnxx");
    BF16_TO_F16 = Step."bf16_to_f16"("hbxl");
    BF16_TO_F32 = Step."bf16_to_f32"("fbxl");
    CLIP_FACTOR = Step."clip_factor"("ffdnx");
    COPY_COLUMNS = Step."copy_columns"("aannll");
    EMBED_BF16 = Step."embed_bf16"("abunnnxw");
    EMBED_F16 = Step."embed_f16"("ahunnnxw");
    EMBED_F32 = Step."embed_f32"("afunnnxw");
    EMBED_GRADIENT = Step."embed_gradient"("fauuunnnnxxw");
    F16_TO_BF16 = Step."f16_to_bf16"("bhxl");
    F16_TO_F32 = Step."f16_to_f32"("fhxl");
    F32_TO_BF16 = Step."f32_to_bf16"("bfxl");
    F32_TO_F16 = Step."f32_to_f16"("hfxl");
    FILL = Step."fill"("fxl");
    GATED = Step."gated"("aaannln");
    GATED_BACKWARD = Step."gated_backward"("aaaaaannln");
    HEAD_ACCUMULATE = Step."head_accumulate"("afufffddddnnnnnnxxnnw");
    HEAD_SOFT_CAP = Step."head_soft_cap"("fnnnxx");
    HEAD_FINISH = Step."head_finish"("ffddddfffffffnn");
    HEAD_GRADIENT = Step."head_gradient"("afufffffnnnnnxxx");
    HEAD_LOGPROB_GRADIENTS = Step."head_logprob_gradients"("fafdnnxx");
    HEAD_STATISTICS = Step."head_statistics"("fuffddddnnnnnxxnnw");
    NARROW_TO_ACT = Step."narrow_to_act"("afxl");
    PATCH_ADD = Step."patch_add"("aaffnn");
    PATCH_ALONG = Step."patch_along"("aafxnn");
    QUOTIENTS = Step."quotients"("fffl");
    RMS_NORM = Step."rms_norm"("afafnnxx");
    RMS_NORM_BACKWARD = Step."rms_norm_backward"("aaaffannx");
    RMS_NORM_BACKWARD_NARROW = Step."rms_norm_backward_narrow"("aaaffannx");
    RMS_NORM_NARROW = Step."rms_norm_narrow"("afafnnxx");
    RMS_NORM_WEIGHT_GRADIENT = Step."rms_norm_weight_gradient"("faafnnn");
    ROOT_SUMS = Step."root_sums"("fffl");
    ROPE = Step."rope"("aauffnnnnnnllnxw");
    ROPE_EIGHTS = Step."rope_eights"("aauffnnnnnnllnxw");
    ROW_DOTS = Step."row_dots"("fffnnxx");
    SCALE_COLUMNS = Step."scale_columns"("aafnn");
    SCALE_ROWS = Step."scale_rows"("affnn");
    SCATTER_ROWS = Step."scatter_rows"("aauuunnnnxxw");
    SQUARE_SUMS = Step."square_sums"("dfl");
    SUM_ROWS_IN_PARTS = Step."sum_rows_in_parts"("fannn");
    WIDEN = Step."widen"("faxl");
    UNPACK_NF4 = Unpack."unpack_nf4"("ayunnnnxffxw");
    UNPACK_Q4_0 = Unpack."unpack_q4_0"("ayunnnnxffxw");
    UNPACK_Q4_1 = Unpack."unpack_q4_1"("ayunnnnxffxw");
    UNPACK_Q4_K = Unpack."unpack_q4_k"("ayunnnnxffxw");
    UNPACK_Q5_0 = Unpack."unpack_q5_0"("ayunnnnxffxw");
    UNPACK_Q5_1 = Unpack."unpack_q5_1"("ayunnnnxffxw");
    UNPACK_Q5_K = Unpack."unpack_q5_k"("ayunnnnxffxw");
    UNPACK_Q6_K = Unpack."unpack_q6_k"("ayunnnnxffxw");
    UNPACK_Q8_0 = Unpack."unpack_q8_0"("ayunnnnxffxw");
}

impl Kernel {
    /// The element type of the kernel's result, the tensor that its first argument points to. Activations have the type
    /// `build.act`.
    ///
    /// # Errors
    /// [`Error::Argument`] if the first argument is not a tensor.
    pub(super) fn result_dtype(&self, build: Build) -> Result<DType> {
        let dtype = self.signature.chars().next().and_then(|letter| pointee(letter, build.act));
        dtype.ok_or_else(|| {
            Error::argument(format!("kernel `{}` takes `{}`: it has no result", self.name, self.signature))
        })
    }

    /// Checks number, kinds and tensor types of `arguments` against the kernel's signature, with activations of the
    /// type `build.act`.
    ///
    /// # Errors
    /// [`Error::Argument`] with what the kernel takes and what it was given.
    pub(super) fn check(&self, build: Build, arguments: &[Argument<'_>]) -> Result<()> {
        let mut taken = self.signature.chars();
        let fit = arguments.iter().all(|argument| taken.next().is_some_and(|letter| fits(letter, argument, build.act)));
        if fit && taken.next().is_none() {
            return Ok(());
        }
        let given: Vec<String> = arguments.iter().map(describe).collect();
        let given = given.join(", ");
        Err(Error::argument(format!("kernel `{}` takes `{}`, it was given {given}", self.name, self.signature)))
    }
}

/// Whether an argument is of the kind that `letter` stands for in [`Kernel::signature`], with activations of type
/// `act`. A tensor fits a pointer to its element type, and [`Argument::Nothing`] every pointer. An f32 tensor `[…, 2]`
/// also fits `d`: its pairs stand for f64. [`Argument::Size`] fits `n`, whatever its value.
fn fits(letter: char, argument: &Argument<'_>, act: DType) -> bool {
    match argument {
        Argument::Tensor(tensor) => {
            let pairs = letter == 'd' && tensor.dtype() == DType::F32 && tensor.dims().last() == Some(&2);
            pairs || pointee(letter, act) == Some(tensor.dtype())
        }
        Argument::Nothing => pointee(letter, act).is_some(),
        Argument::FaultWord => letter == 'w',
        Argument::Count(_) | Argument::Size(_) => letter == 'n',
        Argument::Long(_) => letter == 'l',
        Argument::Number(_) => letter == 'x',
    }
}

/// The element type behind a pointer with this letter of [`Kernel::signature`], with activations of type `act`. `None`
/// if the letter stands for a scalar or for nothing.
fn pointee(letter: char, act: DType) -> Option<DType> {
    Some(match letter {
        'a' => act,
        'f' => DType::F32,
        'd' => DType::F64,
        'b' => DType::BF16,
        'h' => DType::F16,
        'u' => DType::U32,
        'y' => DType::U8,
        'w' => DType::I64,
        _ => return None,
    })
}

/// Describes an argument for an error: the type and shape of a tensor, else the kind of the argument and its value.
fn describe(argument: &Argument<'_>) -> String {
    match argument {
        Argument::Tensor(tensor) => format!("{} {:?}", tensor.dtype().as_str(), tensor.dims()),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests;
