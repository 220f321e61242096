// Index checks for operations of the wall, so that nothing waits for an index to be looked at. Would agree with
// ops/check.rs `indices` in what is refused; the refusal comes when a result is read.
//
// The engine launches none of these so far: the wall computes on the processor, and its operations check their indices
// there. They wait for operations of the wall on the device.
//
// The fault word, which the kernels of the model have too, is one u64 a device, all ones. Every read-back of numbers
// also brings it (one copy more of 8 bytes in the same stream). Not all ones: ~(word & 0xffffffff) is the largest index
// out of range, which the host names as it refuses what it has read, and sets the word again. word >> 32 is the number of
// the operation that found it, 0 for all so far: the host checks indices before it uploads them, so a fault is a mistake
// of ours, and has no words of its own. `adamw` writes nothing while the word is set.

// Copies an index and puts 0 where it is out of range, so that kernels of the tensor library, which do not look, stay
// in bounds. clean may be index. Flat (see elementwise.cu), one number a thread and turn.
KERNEL void check_indices(u32 *clean, const u32 *index, u64 count, u32 bound, u64 *word, u32 place) {
    everywhere(count, false, [&](u64 at, auto) { clean[at] = inside(index[at], bound, word, place); });
}

// Sets a fault where a number is not finite; its index is the lower 32 bits of its place. Flat.
KERNEL void check_finite(const act *x, u64 count, u64 *word, u32 place) {
    everywhere(count, even(x), [&](u64 at, auto n) {
        float numbers[n.value];
        load(numbers, x + at);
#pragma unroll
        for (int i = 0; i < n.value; ++i) {
            if (!finite(numbers[i])) fault(word, place, (u32)(at + i));
        }
    });
}

// y[o][j][i] = x[o][index[j]][i]: index_select along an axis. x: [outer, bound, inner], index: [count],
// y: [outer, count, inner]. Flat over outer · count · inner. ops/index.rs `index_select`.
KERNEL void select_along(float *y, const float *x, const u32 *index, u64 outer, u32 bound, u64 inner, u32 count,
                         u64 *word, u32 place) {
    everywhere(outer * count * inner, false, [&](u64 at, auto) {
        u64 i = at % inner, j = at / inner % count, o = at / inner / count;
        y[at] = x[(o * bound + inside(index[j], bound, word, place)) * inner + i];
    });
}

// y[o][j][i] = x[o][index[o][j][i]][i]: gather along an axis. index and y: [outer, count, inner]. Flat over them.
KERNEL void gather_along(float *y, const float *x, const u32 *index, u64 outer, u32 bound, u64 inner, u32 count,
                         u64 *word, u32 place) {
    everywhere(outer * count * inner, false, [&](u64 at, auto) {
        u64 i = at % inner, o = at / inner / count;
        y[at] = x[(o * bound + inside(index[at], bound, word, place)) * inner + i];
    });
}

// y = x, then y[o][index[j]][i] += source[o][j][i] in the order of j: index_add and segment_sum, deterministic, one
// thread for each (o, i). y and x: [outer, bound, inner], source: [outer, count, inner]; y may be x. Flat over
// outer · inner. For the wall's small tensors; what the model adds by number goes through embedding.cu.
KERNEL void add_along(float *y, const float *x, const float *source, const u32 *index, u64 outer, u32 bound, u64 inner,
                      u32 count, u64 *word, u32 place) {
    everywhere(outer * inner, false, [&](u64 at, auto) {
        u64 i = at % inner, o = at / inner;
        if (y != x) {
            for (u32 row = 0; row < bound; ++row) y[(o * bound + row) * inner + i] = x[(o * bound + row) * inner + i];
        }
        for (u32 j = 0; j < count; ++j) {
            y[(o * bound + inside(index[j], bound, word, place)) * inner + i] += source[(o * count + j) * inner + i];
        }
    });
}

// The same for an index of its own for each number: y[o][index[o][j][i]][i] += source[o][j][i] (the gradient of gather).
KERNEL void scatter_along(float *y, const float *source, const u32 *index, u64 outer, u32 bound, u64 inner, u32 count,
                          u64 *word, u32 place) {
    everywhere(outer * inner, false, [&](u64 at, auto) {
        u64 i = at % inner, o = at / inner;
        for (u32 j = 0; j < count; ++j) {
            u64 from = (o * count + j) * inner + i;
            y[(o * bound + inside(index[from], bound, word, place)) * inner + i] += source[from];
        }
    });
}
