// Rows by number, and sums of rows by number. Agrees with fused/embedding.rs and fused/rows.rs. Quantized tables:
// unpack.cu reads their rows by number.

template <typename T>
DEVICE void rows_by_number(act *y, const T *table, const u32 *ids, u32 count, u32 width, u32 known, float scale,
                           u64 *word, u32 place) {
    for (u32 row = blockIdx.x; row < count; row += gridDim.x) {
        const T *from = table + (u64)inside(ids[row], known, word, place) * width;
        act *to = y + (u64)row * width;
        along(width, width % 8 == 0 && even(from) && even(to), threadIdx.x, blockDim.x, [&](u32 at, auto n) {
            float numbers[n.value];
            load(numbers, from + at);
#pragma unroll
            for (int i = 0; i < n.value; ++i) numbers[i] *= scale;
            store(to + at, numbers);
        });
    }
}

// y[row] = scale · table[ids[row]]: ids [count], table [known, width], y [count, width]. Grid: x over rows; 128 threads.
KERNEL void embed_f32(act *y, const float *table, const u32 *ids, u32 count, u32 width, u32 known, float scale,
                      u64 *word, u32 place) {
    rows_by_number(y, table, ids, count, width, known, scale, word, place);
}
KERNEL void embed_bf16(act *y, const bf16 *table, const u32 *ids, u32 count, u32 width, u32 known, float scale,
                       u64 *word, u32 place) {
    rows_by_number(y, table, ids, count, width, known, scale, word, place);
}
KERNEL void embed_f16(act *y, const f16 *table, const u32 *ids, u32 count, u32 width, u32 known, float scale,
                      u64 *word, u32 place) {
    rows_by_number(y, table, ids, count, width, known, scale, word, place);
}

template <typename T>
DEVICE void sums_by_number(T *sum, const act *dy, const u32 *order, const u32 *starts, const u32 *numbers, u32 runs,
                           u32 width, u32 known, u32 rows, float scale, float keep, u64 *word, u32 place) {
    u32 column = blockIdx.y * blockDim.x + threadIdx.x;
    if (column >= width) return;
    for (u32 run = blockIdx.x; run < runs; run += gridDim.x) {
        T *to = sum + (u64)inside(numbers[run], known, word, place) * width + column;
        float total = keep != 0.0f ? wide(*to) : 0.0f;
        u32 end = starts[run + 1];
#pragma unroll 8
        for (u32 at = starts[run]; at < end; ++at) {
            total = fmaf(wide(dy[(u64)inside(order[at], rows, word, place) * width + column]), scale, total);
        }
        *to = narrow<T>(total);
    }
}

// sum[numbers[run]] = keep · sum[numbers[run]] + scale · Σ dy[order[at]] for at in starts[run] … starts[run + 1] − 1, in
// that order. The host sorts the ids, stably: `order` [rows] are the rows of dy by id, `numbers` [runs] the ids that
// occur, each once, `starts` [runs + 1] where each one's rows begin. dy: [rows, width]. Rows of `sum` that no id names
// are left alone. Grid: x over runs (at most 65535), y ⌈width / 128⌉; 128 threads.
//
// A fault in `numbers` would let two blocks write row 0; the results are thrown away then.
KERNEL void embed_gradient(float *sum, const act *dy, const u32 *order, const u32 *starts, const u32 *numbers, u32 runs,
                           u32 width, u32 known, u32 rows, float scale, float keep, u64 *word, u32 place) {
    sums_by_number(sum, dy, order, starts, numbers, runs, width, known, rows, scale, keep, word, place);
}

// The same into rows of activations, for gradients of selected rows back at their places (rows.rs `scatter_rows`); clear
// `sum` before.
KERNEL void scatter_rows(act *sum, const act *dy, const u32 *order, const u32 *starts, const u32 *numbers, u32 runs,
                        u32 width, u32 known, u32 rows, float scale, float keep, u64 *word, u32 place) {
    sums_by_number(sum, dy, order, starts, numbers, runs, width, known, rows, scale, keep, word, place);
}
