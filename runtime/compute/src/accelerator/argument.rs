//! What a kernel launch takes (compile-time constants, a grid, arguments), and the operands of a matrix product: plain,
//! transposed, or with gaps between rows.

use candle_core::{DType, Tensor};

use crate::error::{Error, Result};

/// The constants that a module of kernels is compiled with. Each combination is compiled and loaded separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Build {
    /// The element type of activations: f32, bf16 or f16.
    pub(crate) act: DType,
    /// The head size in features, for attention kernels: rounded up to a multiple of 16, above 128 of 32. 0 for other
    /// kernels.
    pub(crate) head: u32,
    /// The number of query heads for each key-value head, for kernels of the key-value cache. 0 for other kernels.
    pub(crate) group: u32,
}

impl From<DType> for Build {
    /// Sets the activation type alone: `head` and `group` are 0.
    fn from(act: DType) -> Self {
        Self { act, head: 0, group: 0 }
    }
}

/// The grid of a launch: the number of blocks on the axes x, y and z, the threads of each block, and (on CUDA alone)
/// the bytes of dynamic shared memory of each block.
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

    /// A grid of `blocks` = (x, y, z) blocks with `threads` threads and `shared` bytes of dynamic shared memory each.
    pub(crate) fn cube(blocks: (u32, u32, u32), threads: u32, shared: u32) -> Self {
        Self { blocks, threads, shared }
    }

    /// Whether the grid has no block on some axis, so that there is nothing to launch.
    pub(super) fn is_empty(self) -> bool {
        self.blocks.0 == 0 || self.blocks.1 == 0 || self.blocks.2 == 0
    }
}

/// An argument of a kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Argument<'a> {
    /// A pointer to the first element of a contiguous tensor on the device, which the kernel reads or writes. A view
    /// may begin inside its storage.
    Tensor(&'a Tensor),
    /// A null pointer, where a kernel takes an optional tensor.
    Nothing,
    /// A pointer to the device's fault word: 64 bits in which a kernel records an index that is out of range.
    FaultWord,
    /// A `u32`.
    Count(u32),
    /// A length, passed as a `u32`. The launch fails if it does not fit.
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
    /// Converts `None` to a null pointer.
    fn from(tensor: Option<&'a Tensor>) -> Self {
        tensor.map_or(Self::Nothing, Self::Tensor)
    }
}

/// Creates an array of [`Argument`]s in the order of a kernel's parameters. Each value is a `&Tensor`, an
/// `Option<&Tensor>` (`None` is a null pointer), a `u32`, a `usize` (passed as a `u32`), a `u64` or an `f32`.
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

/// An operand or the result of a matrix product: a tensor of two axes, taken as it is stored or transposed. A result
/// cannot be transposed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MatrixView<'a> {
    pub(crate) matrix: &'a Tensor,
    pub(crate) transposed: bool,
}

impl<'a> MatrixView<'a> {
    /// Views a matrix as it is stored. Its rows may have gaps between them.
    pub(crate) fn plain(matrix: &'a Tensor) -> Self {
        Self { matrix, transposed: false }
    }

    /// Views the transpose of a matrix without copying.
    pub(crate) fn transposed(matrix: &'a Tensor) -> Self {
        Self { matrix, transposed: true }
    }

    /// The element type of the matrix.
    pub(super) fn dtype(&self) -> DType {
        self.matrix.dtype()
    }

    /// Returns (rows, columns), exchanged if the view is transposed.
    ///
    /// # Errors
    /// [`Error::Shape`] if the tensor does not have two axes.
    pub(crate) fn dims(&self) -> Result<(usize, usize)> {
        match (self.matrix.dims(), self.transposed) {
            (&[rows, columns], false) | (&[columns, rows], true) => Ok((rows, columns)),
            (other, _) => Err(Error::shape(format!("a product takes matrices, this has shape {other:?}"))),
        }
    }

    /// The distance between the beginnings of consecutive rows of the stored (not transposed) matrix, in elements, at
    /// least 1. For a single row, the length of the row.
    ///
    /// # Errors
    /// [`Error::Shape`] when the elements of a row have gaps, rows overlap, or the tensor does not have two axes.
    pub(super) fn row_stride(&self) -> Result<usize> {
        let (&[rows, columns], &[pitch, step]) = (self.matrix.dims(), self.matrix.stride()) else {
            return Err(Error::shape("a product takes matrices"));
        };
        if (columns > 1 && step != 1) || (rows > 1 && pitch < columns) {
            let shape = self.matrix.dims();
            return Err(Error::shape(format!("a matrix {shape:?} of a product has gaps within its rows")));
        }
        // The stride of a single row says nothing.
        Ok(if rows > 1 { pitch } else { columns }.max(1))
    }

    /// Checks the operands of `into ← left · right` and returns `[rows, columns, depth]`: the shape of the result, and
    /// the number of terms that each of its elements sums.
    ///
    /// # Errors
    /// [`Error::Shape`] when the shapes do not fit or `into` is transposed; [`Error::Dtype`] when the operands differ
    /// in element type, or the type of the result is neither that of the operands nor f32.
    pub(super) fn product_dims(into: &Self, left: &Self, right: &Self) -> Result<[usize; 3]> {
        let ((rows, depth), (same, columns)) = (left.dims()?, right.dims()?);
        if depth != same || into.dims()? != (rows, columns) || into.transposed {
            let [left, right, into] = [left, right, into].map(|side| side.dims().unwrap_or_default());
            return Err(Error::shape(format!("a product of {left:?} and {right:?} is not {into:?}")));
        }
        let [first, second, result] = [left, right, into].map(Self::dtype);
        if first != second || (result != first && result != DType::F32) {
            let [first, second, result] = [first, second, result].map(|dtype| dtype.as_str());
            return Err(Error::dtype(format!("no product of `{first}` and `{second}` is `{result}`")));
        }
        Ok([rows, columns, depth])
    }
}

impl<'a> From<&'a Tensor> for MatrixView<'a> {
    /// Views the matrix as it is stored, not transposed.
    fn from(matrix: &'a Tensor) -> Self {
        Self::plain(matrix)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    fn zeros(rows: usize, columns: usize, dtype: DType) -> Tensor {
        Tensor::zeros((rows, columns), dtype, &Device::Cpu).unwrap()
    }

    #[test]
    fn sides_that_meet_give_the_three_numbers_of_a_product() {
        let (x, weight, y) = (zeros(5, 3, DType::F32), zeros(7, 3, DType::F32), zeros(5, 7, DType::F32));
        let (x, plain, turned) = (MatrixView::plain(&x), MatrixView::plain(&weight), MatrixView::transposed(&weight));
        assert_eq!(MatrixView::product_dims(&(&y).into(), &x, &turned).unwrap(), [5, 7, 3]);
        assert!(MatrixView::product_dims(&(&y).into(), &x, &plain).is_err());
        assert!(MatrixView::product_dims(&MatrixView::transposed(&y), &x, &turned).is_err());
    }

    #[test]
    fn types_that_no_product_has_are_refused() {
        let (single, half) = (zeros(2, 2, DType::F32), zeros(2, 2, DType::BF16));
        let [single, half] = [MatrixView::plain(&single), MatrixView::plain(&half)];
        assert!(MatrixView::product_dims(&single, &half, &half).is_ok());
        assert!(MatrixView::product_dims(&half, &half, &half).is_ok());
        assert!(MatrixView::product_dims(&half, &single, &single).is_err());
        assert!(MatrixView::product_dims(&single, &half, &single).is_err());
    }

    #[test]
    fn rows_of_a_longer_matrix_have_its_pitch_and_columns_of_one_have_gaps() {
        let joined = zeros(4, 10, DType::F32);
        let (part, column) = (joined.narrow(1, 3, 5).unwrap(), joined.t().unwrap());
        assert_eq!(MatrixView::plain(&part).row_stride().unwrap(), 10);
        assert!(MatrixView::plain(&column).row_stride().is_err());
        let single = joined.narrow(0, 2, 1).unwrap();
        assert_eq!(MatrixView::plain(&single).row_stride().unwrap(), 10);
    }
}
