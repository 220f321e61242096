//! Processors without the instructions.

use std::ops::Range;

use crate::fused::product::Tile;
use crate::fused::stored::View;

/// What is found out about tokens: nothing.
pub(in crate::fused) struct Whole;

impl Whole {
    pub(in crate::fused) fn new() -> Self {
        Self
    }
}

/// There is none.
pub(in crate::fused) enum Fixed {}

impl Fixed {
    pub(in crate::fused) fn of(_: &View<'_>, _: &[f32], _: &Whole) -> Option<Self> {
        None
    }

    pub(in crate::fused) fn write(&self, _: Range<usize>, _: &mut Tile<'_>) {
        match *self {}
    }
}
