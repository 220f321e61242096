//! Processors without the instructions.

use std::ops::Range;

use crate::fused::product::Tile;
use crate::fused::stored::View;

/// Nothing: tokens are not rounded here.
#[derive(Default)]
pub(in crate::fused) struct IntegerTokens(());

/// A product in integers, which this processor cannot compute: no value exists.
pub(in crate::fused) enum IntegerProduct {}

impl IntegerProduct {
    /// Always `None`: this processor has no dot products of bytes.
    pub(in crate::fused) fn of(_: &View<'_>, _: &[f32], _: &IntegerTokens) -> Option<Self> {
        None
    }

    /// Cannot be called, since no value of the type exists.
    pub(in crate::fused) fn write(&self, _: Range<usize>, _: &mut Tile<'_>) {
        match *self {}
    }
}
