//! Low-rank factors of a matrix: its largest singular values with their vectors, and the first columns of a QR
//! decomposition. On the CPU, in f32; results do not depend on the number of threads.

use candle_core::{DType, Device, Tensor};

use crate::error::{Error, Result};
use crate::random::Stream;

/// How many more vectors the subspace iteration uses than the requested rank.
const OVERSAMPLING: usize = 16;
/// The largest shorter side of a matrix that is decomposed whole, without iterations, so that the result is exact up to
/// rounding.
const MAX_WHOLE: usize = 128;
/// Multiplications by WᵀW: each brings the subspace nearer to that of the largest singular values. With 16 of them,
/// rank 16 holds 99.6 to 100 % of the squares of the 16 largest singular values of four matrices of Qwen2.5-Coder-0.5B.
const ITERATIONS: usize = 16;
/// A row counts as a combination of the rows before it if orthogonalization leaves at most this share of its length.
const INDEPENDENT: f64 = 1e-6;
/// The most sweeps of Jacobi rotations; a handful are enough for any matrix.
const MAX_SWEEPS: usize = 30;

/// The largest singular values of a matrix W ≈ U·diag(S)·V.
#[derive(Debug, Clone)]
pub struct TruncatedSvd {
    /// U, `[rows, rank]`.
    pub left: Tensor,
    /// S, in descending order.
    pub values: Vec<f32>,
    /// V, `[rank, columns]`.
    pub right: Tensor,
}

/// Computes the `rank` largest singular values of `matrix` `[rows, columns]`, f32 on the CPU, with their vectors. Signs
/// of a pair of vectors are arbitrary. The vectors of a singular value of 0 may be 0. If the shorter side is above 128
/// and above `rank` + 16, values and vectors are approximate: a subspace iteration from random vectors of a fixed seed
/// (Halko et al. 2011, algorithm 4.4), with 16 vectors more than `rank`.
///
/// # Errors
/// [`Error::Argument`] if the rank is 0 or above the shorter side; also if `matrix` does not have two axes.
pub fn truncated_svd(matrix: &Tensor, rank: usize) -> Result<TruncatedSvd> {
    let (rows, columns) = check_rank(matrix, rank)?;
    let shorter = rows.min(columns);
    let width = if shorter <= MAX_WHOLE { shorter } else { (rank + OVERSAMPLING).min(shorter) };
    // A subspace of all dimensions is exact without iterations.
    let iterations = if width == shorter { 0 } else { ITERATIONS };
    let draws = Stream::new(0, "truncated svd").normals(width * columns);
    // Vectors are rows here, so that each is contiguous.
    let mut basis = Tensor::from_vec(draws, (width, columns), &Device::Cpu)?;
    let transposed = matrix.t()?.contiguous()?;
    for _ in 0..iterations {
        let left = orthonormal_rows(&basis.matmul(&transposed)?)?;
        basis = orthonormal_rows(&left.matmul(matrix)?)?;
    }
    let left = orthonormal_rows(&basis.matmul(&transposed)?)?;
    let small = left.matmul(matrix)?;
    let (squares, rotations) = symmetric_eigen(&small.matmul(&small.t()?)?)?;
    let values: Vec<f32> = squares.iter().take(rank).map(|square| square.max(0.0).sqrt() as f32).collect();
    let rotations = rotations.narrow(0, 0, rank)?.contiguous()?;
    let inverse: Vec<f32> = values.iter().map(|value| if *value > 0.0 { 1.0 / value } else { 0.0 }).collect();
    let inverse = Tensor::from_vec(inverse, (rank, 1), &Device::Cpu)?;
    let right = rotations.matmul(&small)?.broadcast_mul(&inverse)?;
    Ok(TruncatedSvd { left: rotations.matmul(&left)?.t()?.contiguous()?, values, right })
}

/// Computes the first `rank` columns of Q, `[rows, rank]`, and rows of R, `[rank, columns]`, of the decomposition W =
/// Q·R of `matrix` `[rows, columns]`, f32 on the CPU, by Householder reflections in f64. Signs are those of LAPACK.
/// Columns of R from `rank` on are computed in f32 as Qᵀ·W.
///
/// # Errors
/// [`Error::Argument`] if the rank is 0 or above the shorter side; also if `matrix` does not have two axes.
pub fn truncated_qr(matrix: &Tensor, rank: usize) -> Result<(Tensor, Tensor)> {
    let (rows, columns) = check_rank(matrix, rank)?;
    let first = matrix.narrow(1, 0, rank)?.t()?.to_dtype(DType::F64)?.to_vec2::<f64>()?;
    let (reflections, triangle) = reflect_columns(first);
    let mut q = vec![vec![0.0; rows]; rank];
    for (number, column) in q.iter_mut().enumerate() {
        column[number] = 1.0;
        reflections.iter().rev().for_each(|reflection| reflect(column, reflection));
    }
    let q = Tensor::new(q, &Device::Cpu)?.to_dtype(DType::F32)?;
    let r = q.matmul(&matrix.contiguous()?)?;
    // The first columns of R are exact zeros below the diagonal.
    let triangle = Tensor::new(triangle, &Device::Cpu)?.t()?.to_dtype(DType::F32)?;
    let rest = r.narrow(1, rank, columns - rank)?;
    Ok((q.t()?.contiguous()?, Tensor::cat(&[&triangle.contiguous()?, &rest], 1)?))
}

/// Returns (rows, columns) of a matrix. Fails if the tensor does not have two axes, and with [`Error::Argument`] if the
/// rank is 0 or above the shorter side.
fn check_rank(matrix: &Tensor, rank: usize) -> Result<(usize, usize)> {
    let (rows, columns) = matrix.dims2()?;
    if rank == 0 || rank > rows.min(columns) {
        return Err(Error::argument(format!("a matrix [{rows}, {columns}] has no {rank} singular values")));
    }
    Ok((rows, columns))
}

/// Returns a copy of a matrix, f32 on the CPU, with orthonormal rows, by Gram-Schmidt, twice for each row against
/// rounding. A row that is a combination of the rows before it becomes 0.
fn orthonormal_rows(rows: &Tensor) -> Result<Tensor> {
    let (count, width) = rows.dims2()?;
    let basis = Tensor::zeros((count, width), DType::F32, &Device::Cpu)?;
    for number in 0..count {
        let mut row = rows.narrow(0, number, 1)?.contiguous()?;
        let before = euclidean_norm(&row)?;
        if number > 0 {
            let known = basis.narrow(0, 0, number)?;
            for _ in 0..2 {
                row = (&row - row.matmul(&known.t()?)?.matmul(&known)?)?;
            }
        }
        let rest = euclidean_norm(&row)?;
        if rest > INDEPENDENT * before {
            basis.slice_set(&(row / rest)?, 0, number)?;
        }
    }
    Ok(basis)
}

/// The root of the sum of the squares of all numbers of an f32 tensor, in f64.
fn euclidean_norm(tensor: &Tensor) -> Result<f64> {
    let numbers = tensor.flatten_all()?.to_vec1::<f32>()?;
    Ok(numbers.iter().map(|number| f64::from(*number).powi(2)).sum::<f64>().sqrt())
}

/// Returns the eigenvalues of a symmetric matrix, in descending order, and the eigenvectors as the rows of a matrix,
/// f32, in the same order. Uses Jacobi rotations in f64, until the off-diagonal elements vanish or after [`MAX_SWEEPS`]
/// sweeps.
fn symmetric_eigen(matrix: &Tensor) -> Result<(Vec<f64>, Tensor)> {
    let mut a = matrix.to_dtype(DType::F64)?.to_vec2::<f64>()?;
    let count = a.len();
    let unit = |number| (0..count).map(|at| f64::from(u8::from(at == number))).collect();
    let mut vectors: Vec<Vec<f64>> = (0..count).map(unit).collect();
    let scale: f64 = a.iter().flatten().map(|number| number * number).sum();
    for _ in 0..MAX_SWEEPS {
        let off: f64 = (0..count).flat_map(|p| (0..p).map(move |q| (p, q))).map(|(p, q)| a[p][q] * a[p][q]).sum();
        if off <= 1e-28 * scale {
            break;
        }
        for p in 0..count {
            for q in p + 1..count {
                jacobi_rotate(&mut a, &mut vectors, p, q);
            }
        }
    }
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|one, other| a[*other][*other].total_cmp(&a[*one][*one]));
    let sorted: Vec<Vec<f64>> = order.iter().map(|number| std::mem::take(&mut vectors[*number])).collect();
    let values = order.iter().map(|number| a[*number][*number]).collect();
    Ok((values, Tensor::new(sorted, &Device::Cpu)?.to_dtype(DType::F32)?))
}

/// Applies the Jacobi rotation that makes the elements (p, q) and (q, p), p < q, of the symmetric matrix `a` 0, to `a`
/// and to the rows of `vectors`. Does nothing if the element is 0 already.
fn jacobi_rotate(a: &mut [Vec<f64>], vectors: &mut [Vec<f64>], p: usize, q: usize) {
    if a[p][q] == 0.0 {
        return;
    }
    let theta = (a[q][q] - a[p][p]) / (2.0 * a[p][q]);
    let tangent = theta.signum() / (theta.abs() + theta.hypot(1.0));
    let cosine = 1.0 / tangent.hypot(1.0);
    let sine = tangent * cosine;
    for row in a.iter_mut() {
        (row[p], row[q]) = (cosine * row[p] - sine * row[q], sine * row[p] + cosine * row[q]);
    }
    for rows in [a, vectors] {
        let (before, from) = rows.split_at_mut(q);
        for (one, other) in before[p].iter_mut().zip(&mut from[0]) {
            (*one, *other) = (cosine * *one - sine * *other, sine * *one + cosine * *other);
        }
    }
}

/// A Householder reflection x ← x − factor·v·(vᵀx), of the vector v. The factor is 2 / vᵀv, or 0 to change nothing.
struct Reflection {
    vector: Vec<f64>,
    factor: f64,
}

/// Reduces columns, each at least as long as there are columns, to an upper triangle by one reflection each. Returns
/// the reflections in order and, for each column, its numbers in the square triangle, 0 below the diagonal.
fn reflect_columns(mut columns: Vec<Vec<f64>>) -> (Vec<Reflection>, Vec<Vec<f64>>) {
    let count = columns.len();
    let mut reflections = Vec::with_capacity(count);
    for number in 0..count {
        let (before, from) = columns.split_at_mut(number + 1);
        let column = &before[number];
        let norm = column[number..].iter().map(|number| number * number).sum::<f64>().sqrt();
        let head = column[number];
        // If the column is reduced already, v is 0 or the sign would change: LAPACK applies no reflection then.
        let is_reduced = norm == head.abs();
        let diagonal = if head >= 0.0 { -norm } else { norm };
        let mut vector = vec![0.0; column.len()];
        vector[number..].copy_from_slice(&column[number..]);
        vector[number] -= diagonal;
        let square: f64 = vector.iter().map(|number| number * number).sum();
        let reflection = Reflection { vector, factor: if is_reduced { 0.0 } else { 2.0 / square } };
        from.iter_mut().chain([&mut before[number]]).for_each(|column| reflect(column, &reflection));
        reflections.push(reflection);
    }
    let triangle = columns.iter().enumerate().map(|(number, column)| {
        let kept = |at: usize| if at <= number { column[at] } else { 0.0 };
        (0..count).map(kept).collect()
    });
    (reflections, triangle.collect())
}

/// Applies a reflection to `vector` in place; leaves the vector as it is if the reflection's factor is 0.
fn reflect(vector: &mut [f64], reflection: &Reflection) {
    let along: f64 = vector.iter().zip(&reflection.vector).map(|(number, v)| number * v).sum();
    vector.iter_mut().zip(&reflection.vector).for_each(|(number, v)| *number -= reflection.factor * along * v);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(rows: usize, columns: usize) -> Tensor {
        Tensor::from_vec(Stream::new(7, "matrix").normals(rows * columns), (rows, columns), &Device::Cpu).unwrap()
    }

    fn largest(tensor: &Tensor) -> f32 {
        tensor.abs().unwrap().max_all().unwrap().to_scalar().unwrap()
    }

    /// Returns how far rows are from being orthonormal: the largest absolute difference between a number of R·Rᵀ and of
    /// the identity matrix.
    fn skewness(rows: &Tensor) -> f32 {
        let unit = Tensor::eye(rows.dim(0).unwrap(), DType::F32, &Device::Cpu).unwrap();
        largest(&(rows.matmul(&rows.t().unwrap()).unwrap() - unit).unwrap())
    }

    #[test]
    fn all_singular_values_make_the_matrix_again() {
        for (rows, columns) in [(24, 16), (16, 24), (30, 30)] {
            let matrix = random(rows, columns);
            let svd = truncated_svd(&matrix, rows.min(columns)).unwrap();
            assert!(svd.values.is_sorted_by(|one, next| one >= next));
            assert!(skewness(&svd.right) < 1e-5 && skewness(&svd.left.t().unwrap().contiguous().unwrap()) < 1e-5);
            let values = Tensor::new(svd.values.as_slice(), &Device::Cpu).unwrap();
            let product = svd.left.broadcast_mul(&values).unwrap().matmul(&svd.right).unwrap();
            assert!(largest(&(product - matrix).unwrap()) < 1e-5, "{rows} by {columns}");
        }
    }

    #[test]
    fn a_large_matrix_of_low_rank_is_found_whole() {
        let matrix = random(300, 6).matmul(&random(6, 200)).unwrap();
        let svd = truncated_svd(&matrix, 8).unwrap();
        assert!(svd.values[5] > 50.0 && svd.values[6] < 1e-2, "{:?}", svd.values);
        let values = Tensor::new(svd.values.as_slice(), &Device::Cpu).unwrap();
        let product = svd.left.broadcast_mul(&values).unwrap().matmul(&svd.right).unwrap();
        assert!(largest(&(product - matrix).unwrap()) < 1e-3);
    }

    #[test]
    fn columns_of_q_are_orthonormal_and_make_the_first_columns() {
        let matrix = random(40, 30);
        let (q, r) = truncated_qr(&matrix, 5).unwrap();
        assert!(skewness(&q.t().unwrap().contiguous().unwrap()) < 1e-6);
        let difference = (q.matmul(&r).unwrap().narrow(1, 0, 5).unwrap() - matrix.narrow(1, 0, 5).unwrap()).unwrap();
        assert!(largest(&difference) < 1e-5);
        assert_eq!(r.narrow(1, 0, 5).unwrap().to_vec2::<f32>().unwrap()[4][3], 0.0);
    }

    #[test]
    fn a_matrix_of_zeros_has_factors_of_zeros() {
        let zeros = Tensor::zeros((200, 150), DType::F32, &Device::Cpu).unwrap();
        let svd = truncated_svd(&zeros, 3).unwrap();
        assert_eq!(svd.values, [0.0; 3]);
        assert!(largest(&svd.left) == 0.0 && largest(&svd.right) == 0.0);
        assert!(largest(&truncated_qr(&zeros, 3).unwrap().1) == 0.0);
    }

    #[test]
    fn a_rank_above_the_shorter_side_is_refused() {
        for rank in [0, 17] {
            assert!(truncated_svd(&random(24, 16), rank).is_err() && truncated_qr(&random(24, 16), rank).is_err());
        }
    }
}
