// Rows by number, and sums of rows by number. Agrees with fused/embedding.rs and fused/rows.rs. Quantized tables:
// unpack.h reads their rows by number.

// y[row] = scale · table[ids[row]]: ids [count], table [known, width], y [count, width]. Grid: x over rows; 128 threads.
#define EMBED(name, T)                                                                                                 \
    KERNEL(128) name(GLOBAL act *y, GLOBAL const T *table, GLOBAL const u32 *ids, NUMBER(u32) count,                   \
                     NUMBER(u32) width, NUMBER(u32) known, NUMBER(float) scale, FAULT_WORD word WHERE) {               \
        Here here = HERE;                                                                                              \
        for (u32 row = here.block.x; row < count; row += here.blocks.x) {                                              \
            GLOBAL const T *from = table + (u64)inside(ids[row], known, word) * width;                                 \
            GLOBAL act *to = y + (u64)row * width;                                                                     \
            ALONG(at, N, width, are_aligned(from, to), here, { store(to + at, scaled(load<N>(from + at), scale)); })   \
        }                                                                                                              \
    }

EMBED(embed_f32, float)
EMBED(embed_bf16, bf16)
EMBED(embed_f16, f16)

// sum[numbers[run]] = keep · sum[numbers[run]] + scale · Σ dy[order[at]] for at in starts[run] … starts[run + 1] − 1, in
// that order. The host sorts the ids, stably: `order` [rows] are the rows of dy by id, `numbers` [runs] the ids that
// occur, each once, `starts` [runs + 1] where each one's rows begin. dy: [rows, width]. Rows of `sum` that no id names
// are left alone. Grid: x over runs (at most 65535), y ⌈width / 128⌉; 128 threads. `embed_gradient` sums into f32,
// `scatter_rows` into rows of activations, for gradients of selected rows back at their places (rows.rs
// `scatter_rows`); clear `sum` before.
//
// A fault in `numbers` would let two blocks write row 0; the results are thrown away then.
#define SUMS(name, T)                                                                                                  \
    KERNEL(128) name(GLOBAL T *sum, GLOBAL const act *dy, GLOBAL const u32 *order, GLOBAL const u32 *starts,           \
                     GLOBAL const u32 *numbers, NUMBER(u32) runs, NUMBER(u32) width, NUMBER(u32) known,                \
                     NUMBER(u32) rows, NUMBER(float) scale, NUMBER(float) keep, FAULT_WORD word WHERE) {               \
        Here here = HERE;                                                                                              \
        u32 column = here.block.y * here.threads + here.index;                                                         \
        if (column >= width) return;                                                                                   \
        for (u32 run = here.block.x; run < runs; run += here.blocks.x) {                                               \
            u64 to = (u64)inside(numbers[run], known, word) * width + column;                                          \
            float total = keep != 0.0f ? get(sum, to) : 0.0f;                                                          \
            u32 end = starts[run + 1];                                                                                 \
            UNROLL_BY_8 for (u32 at = starts[run]; at < end; ++at) {                                                   \
                total = fmaf(get(dy, (u64)inside(order[at], rows, word) * width + column), scale, total);              \
            }                                                                                                          \
            put(sum, to, total);                                                                                       \
        }                                                                                                              \
    }

SUMS(embed_gradient, float)
SUMS(scatter_rows, act)
