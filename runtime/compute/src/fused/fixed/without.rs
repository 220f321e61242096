//! Processors without the instructions.

use std::ops::Range;

use crate::fused::product::Tile;
use crate::fused::stored::View;

/// What is found out about tokens: nothing.
pub(in crate::fused) struct FixedTokens;

impl FixedTokens {
    /// Tokens that no weight has met.
    pub(in crate::fused) fn new() -> Self {
        Self
    }
}

/// There is none.
pub(in crate::fused) enum Fixed {}

impl Fixed {
    /// Always none: this processor has no dot products of bytes.
    pub(in crate::fused) fn of(_: &View<'_>, _: &[f32], _: &FixedTokens) -> Option<Self> {
        None
    }

    /// Cannot be called, since no value of the type exists.
    pub(in crate::fused) fn write(&self, _: Range<usize>, _: &mut Tile<'_>) {
        match *self {}
    }
}
