//! A step of AdamW as one launch of an accelerator. Of the same gradients it has the bits of the CPU's; of clipped ones
//! where the factor has them, see [`Norm`].

use candle_core::DType;

use super::{AdamW, Constants};
use crate::accelerator::{Accelerator, Argument, arguments, kernel};
use crate::error::Result;
use crate::parameters::{Norm, Parameters};

impl AdamW {
    /// Queues the update of step `self.step + 1`, with the gradients times the clip factor of `norm` (`None` clips
    /// nothing). Also rewrites the operand copy of the values. Does not advance the step counter. The kernel writes
    /// nothing if the norm is not finite, or if a kernel before met an index out of range.
    pub(super) fn launch(
        &self,
        accelerator: &Accelerator,
        parameters: &Parameters,
        rate: f64,
        norm: Option<&Norm>,
    ) -> Result<()> {
        self.fits(parameters)?;
        let constants = Constants::of(&self.settings, self.step + 1, rate).numbers();
        let constants = accelerator.upload(&constants, &[constants.len()])?;
        let (shadow, count) = (parameters.shadow(), self.first.elem_count());
        let arguments = arguments![
            parameters.values(),
            &self.first,
            &self.second,
            parameters.gradients(),
            shadow,
            &constants,
            norm.map(|norm| &norm.factor),
            count as u64,
            Argument::FaultWord
        ];
        let act = shadow.map_or(DType::F32, |shadow| shadow.dtype());
        accelerator.launch(&kernel::ADAMW, act, accelerator.flat(count), &arguments)
    }
}

impl Constants {
    /// Returns the constants in the order of `Step` in `kernels/optimizer.h`.
    fn numbers(&self) -> [f32; 8] {
        let ([keep_first, take_first], [keep_second, take_second]) = (self.first, self.second);
        [keep_first, take_first, keep_second, take_second, self.keep, self.rate, self.root, self.epsilon]
    }
}
