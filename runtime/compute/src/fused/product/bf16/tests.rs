use super::kernel::{Sums, portable};
use super::pack::{join, pack, pack_transposed, transpose};
use super::*;
use crate::random::Stream;

fn numbers(count: usize, name: &str) -> Vec<f32> {
    Stream::new(7, name).normals(count)
}

fn rounded(numbers: &[f32]) -> Vec<bf16> {
    numbers.iter().map(|number| bf16::from_bits(round(*number))).collect()
}

#[test]
fn rounding_is_that_of_the_standard() {
    let special = [0.0, -0.0, 1.0 + 1.0 / 256.0, 1.0 + 3.0 / 256.0, f32::INFINITY, f32::MAX, f32::MIN_POSITIVE, 1e-40];
    for number in numbers(10_000, "any").into_iter().chain(special).chain(special.map(|number| -number)) {
        assert_eq!(round(number), bf16::from_f32(number).to_bits(), "{number}");
    }
    assert!(bf16::from_bits(round(f32::NAN)).is_nan() && bf16::from_bits(round(f32::from_bits(0x7f80_0001))).is_nan());
}

/// The sums of a block as `tdpbf16ps` computes them, written out.
fn tiles_written_out(rows: Rows<'_>, panel: &[u32], pairs: usize, sums: &mut Sums) {
    for (row, sums) in sums.iter_mut().enumerate() {
        for (column, sum) in sums.iter_mut().enumerate() {
            *sum = 0.0;
            for step in steps(0..pairs, DEPTH_UNIT / 2) {
                let mut parts = [0f32; 2];
                for pair in step {
                    let numbers = &rows.numbers[row * rows.stride + 2 * pair..][..2];
                    let packed = panel[pair * COLUMNS + column];
                    let across = [f32::from_bits(packed << 16), f32::from_bits(packed & 0xffff_0000)];
                    (0..2).for_each(|at| parts[at] = widen(numbers[at]).mul_add(across[at], parts[at]));
                }
                *sum += parts[0] + parts[1];
            }
        }
    }
}

/// Asserts that the sums of a kernel's blocks, of every size, have the bits of the same sums written out.
fn compare(kernel: Kernel, written_out: impl Fn(Rows<'_>, &[u32], usize, &mut Sums)) {
    let count = MOST_ROWS * ROW;
    let (numbers, panel) = (rounded(&numbers(count, "rows")), rounded(&numbers(2 * PAIRS * COLUMNS, "panel")));
    let panel: Vec<u32> = panel.as_chunks::<2>().0.iter().map(|[a, b]| join(a.to_bits(), b.to_bits())).collect();
    let _tiles = kernel.prepare();
    for pairs in [1, 2, 16, 31, 48, PAIRS].into_iter().filter(|pairs| (2 * pairs).is_multiple_of(kernel.depth_unit())) {
        for (rows, columns) in (1..=MOST_ROWS).flat_map(|rows| [1, 16, 17, 32].map(|columns| (rows, columns))) {
            let (block, height) = kernel.blocks(rows, columns).next().unwrap();
            let rows = Rows { numbers: &numbers, stride: ROW, count: height };
            let mut found = vec![0.0; block.len() * columns];
            let tile = Tile::from_slice(&mut found, block.len(), columns);
            kernel.multiply(rows, &panel, pairs, Target { tile, accumulate: false, factor: 1.0 });
            let mut sums = [[0.0; COLUMNS]; MOST_ROWS];
            written_out(rows, &panel, pairs, &mut sums);
            let wanted = sums[..block.len()].iter().flat_map(|row| &row[..columns]);
            assert!(
                found.iter().map(|sum| sum.to_bits()).eq(wanted.map(|sum| sum.to_bits())),
                "{kernel:?}, {pairs} pairs, {height} × {columns}"
            );
        }
    }
}

#[test]
fn blocks_are_all_rows_in_order() {
    for kernel in [Kernel::Tiles, Kernel::Vectors, Kernel::Portable] {
        for (rows, columns) in (0..200).flat_map(|rows| [(rows, 16), (rows, 32)]) {
            let blocks: Vec<_> = kernel.blocks(rows, columns).collect();
            assert!(blocks.iter().all(|(block, height)| (1..=*height).contains(&block.len())), "{kernel:?}, {rows}");
            assert!(blocks.iter().flat_map(|(block, _)| block.clone()).eq(0..rows), "{kernel:?}, {rows}");
        }
    }
}

#[test]
#[ignore = "needs AMX"]
fn sums_in_tiles_have_the_bits_of_those_written_out() {
    assert!(
        Kernel::of_this_processor() == Kernel::Tiles,
        "absent `AMX`: this processor has no products of bf16 in tiles"
    );
    compare(Kernel::Tiles, tiles_written_out);
}

#[test]
#[ignore = "needs AVX-512 BF16"]
fn sums_in_vectors_have_the_bits_of_those_written_out() {
    assert!(kernel::has_vectors(), "absent `AVX-512 BF16`: this processor has no products of bf16 in vectors");
    compare(Kernel::Vectors, portable);
}

#[test]
fn columns_are_packed_in_vectors_as_one_by_one() {
    let numbers = numbers(40 * 100, "columns");
    for (depth, columns) in [(1, 1), (32, 16), (33, 17), (70, 32), (100, 31)] {
        let mut panels = [[7u32; PAIRS * COLUMNS]; 2];
        pack(&numbers, (1, 100), [depth, columns], &mut panels[0], round);
        pack_transposed(&numbers, 100, [depth, columns], &mut panels[1], round, transpose);
        assert!(panels[0] == panels[1], "{depth} × {columns}");
        let at = |row: usize| if row < depth { u32::from(round(numbers[(columns - 1) * 100 + row])) } else { 0 };
        let last = (depth - 1) / 2;
        assert_eq!(panels[0][last * COLUMNS + columns - 1], at(2 * last) | at(2 * last + 1) << 16);
    }
}

/// Every way in which operands may lie, at sizes around the edges of blocks, against f64 sums of the rounded numbers.
#[test]
fn products_agree_with_f64_within_the_rounding_of_their_sums() {
    for (rows, columns, depth) in [(1, 1, 1), (3, 5, 7), (14, 32, 2), (15, 33, 511), (29, 257, 513), (16, 300, 1030)] {
        let (left, right, before) =
            (numbers(rows * depth, "left"), numbers(columns * depth, "right"), numbers(rows * columns, "before"));
        let (left_half, right_half) = (rounded(&left), rounded(&right));
        let exact = |half: &[bf16], index: usize| half[index].to_f64();
        for (turned_left, turned_right) in [(false, false), (false, true), (true, false), (true, true)] {
            let view = |data, [rows, columns]: [usize; 2], turned: bool| match turned {
                false => Matrix::new(data, rows, columns, columns),
                true => Matrix::new(data, columns, rows, rows).transposed(),
            };
            for (left_data, right_data) in [
                (Data::Bf16(&left_half), Data::Bf16(&right_half)),
                (Data::F32(&left), Data::Bf16(&right_half)),
                (Data::Bf16(&left_half), Data::F32(&right)),
            ] {
                let mut found = before.clone();
                let (a, b) =
                    (view(left_data, [rows, depth], turned_left), view(right_data, [depth, columns], turned_right));
                Tile::from_slice(&mut found, rows, columns).multiply(true, 0.5, a, b);
                for (index, found) in found.iter().enumerate() {
                    let (row, column) = (index / columns, index % columns);
                    let at = |turned: bool, [i, j]: [usize; 2], [rows, columns]: [usize; 2]| {
                        if turned { j * rows + i } else { i * columns + j }
                    };
                    let terms = (0..depth).map(|k| {
                        exact(&left_half, at(turned_left, [row, k], [rows, depth]))
                            * exact(&right_half, at(turned_right, [k, column], [depth, columns]))
                    });
                    let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
                    let wanted = f64::from(before[index]) + 0.5 * sum;
                    // Rounding errors of a chain of sums grow as its length; most cancel, so a tenth of it bounds them.
                    let bound = (2.0 + 0.1 * depth as f64) * f64::from(f32::EPSILON) * (size + wanted.abs());
                    let error = (f64::from(*found) - wanted).abs();
                    assert!(error <= bound, "{rows}×{columns}×{depth} at {index}: {error} > {bound}");
                }
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_alone_and_among_others() {
    let (rows, columns, depth) = (40, 70, 600);
    let (left, right) = (rounded(&numbers(rows * depth, "left")), rounded(&numbers(columns * depth, "right")));
    let product = |range: Range<usize>| {
        let mut result = vec![0.0; range.len() * columns];
        let left = Matrix::new(Data::Bf16(&left[range.start * depth..]), range.len(), depth, depth);
        let right = Matrix::new(Data::Bf16(&right), columns, depth, depth).transposed();
        Tile::from_slice(&mut result, range.len(), columns).multiply_batch_invariant(false, 1.0, left, right);
        result.into_iter().map(f32::to_bits).collect::<Vec<u32>>()
    };
    let whole = product(0..rows);
    for range in [0..1, 3..17, 13..40] {
        assert_eq!(product(range.clone()), whole[range.start * columns..range.end * columns]);
    }
}
