//! What a launch is made of: what its text is compiled for, its grid, and what the kernel is given.

use candle_core::{DType, Tensor};

use crate::error::{Error, Result};

/// What a text is compiled for: each is a module of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Build {
    /// The type of activations.
    pub(crate) act: DType,
    /// Features of a head that registers hold, for attention; 0 where no kernel asks.
    pub(crate) head: u32,
    /// Query heads of a key-value head, for generation; 0 where no kernel asks.
    pub(crate) group: u32,
}

impl From<DType> for Build {
    fn from(act: DType) -> Self {
        Self { act, head: 0, group: 0 }
    }
}

/// How many blocks of how many threads, and the shared memory of each block in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grid {
    pub(crate) blocks: (u32, u32, u32),
    pub(crate) threads: u32,
    pub(crate) shared: u32,
}

impl Grid {
    /// A grid of `blocks` blocks on the x axis with `threads` threads each, without dynamic shared memory.
    pub(crate) fn of(blocks: u32, threads: u32) -> Self {
        Self { blocks: (blocks, 1, 1), threads, shared: 0 }
    }

    /// A grid of `x` × `y` blocks with `threads` threads each, without dynamic shared memory.
    pub(crate) fn square(x: u32, y: u32, threads: u32) -> Self {
        Self { blocks: (x, y, 1), threads, shared: 0 }
    }

    /// A grid of blocks on three axes with `threads` threads each and `shared` bytes of dynamic shared memory a block.
    pub(crate) fn cube(blocks: (u32, u32, u32), threads: u32, shared: u32) -> Self {
        Self { blocks, threads, shared }
    }

    /// Whether the grid has no block on some axis, so that there is nothing to launch.
    pub(super) fn is_empty(self) -> bool {
        self.blocks.0 == 0 || self.blocks.1 == 0 || self.blocks.2 == 0
    }
}

/// What a kernel is given.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Argument<'a> {
    /// The first number of a contiguous tensor of the device, to read or to write.
    Tensor(&'a Tensor),
    /// A null pointer, where a kernel takes an optional tensor.
    Nothing,
    /// The word in which a kernel notes that an index was out of range.
    FaultWord,
    /// A `u32`.
    Count(u32),
    /// A length that the launch refuses if it does not fit into a `u32`.
    Size(usize),
    /// A `u64`.
    Long(u64),
    /// An `f32`.
    Number(f32),
}

macro_rules! argument_from {
    ($($type:ty => $variant:ident),*) => {$(
        impl<'a> From<$type> for Argument<'a> {
            fn from(value: $type) -> Self {
                Self::$variant(value)
            }
        }
    )*};
}

argument_from!(&'a Tensor => Tensor, u32 => Count, usize => Size, u64 => Long, f32 => Number);

impl<'a> From<Option<&'a Tensor>> for Argument<'a> {
    fn from(tensor: Option<&'a Tensor>) -> Self {
        tensor.map_or(Self::Nothing, Self::Tensor)
    }
}

/// An array of [`Argument`]s in the order of a kernel's parameters: tensors, `Option`s of tensors and numbers as they are.
macro_rules! arguments {
    ($($value:expr),* $(,)?) => {
        [$($crate::accelerator::Argument::from($value)),*]
    };
}
pub(crate) use arguments;

/// Converts a length to `u32`, the type in which kernels and grids take it.
///
/// # Errors
/// [`Error::Shape`] for 2³² and more.
pub(crate) fn extent(number: usize) -> Result<u32> {
    let most = u32::MAX;
    u32::try_from(number)
        .map_err(|_| Error::shape(format!("{number} is too many for a device, which counts to {most}")))
}
