// Rows by number, and sums of rows by number. Agrees with fused/embedding.rs and fused/rows.rs. Quantized tables:
// unpack.metal reads their rows by number.

template <typename T>
void rows_by_number(device act *y, device const T *table, device const u32 *ids, u32 count, u32 width, u32 known,
                    float scale, FAULT_WORD word, u32 place, Here here) {
    for (u32 row = here.block.x; row < count; row += here.blocks.x) {
        u64 from = (u64)inside(ids[row], known, word, place) * width, to = (u64)row * width;
        for (u32 at = here.worker; at < width; at += here.workers) put(y, to + at, get(table, from + at) * scale);
    }
}

// y[row] = scale · table[ids[row]]: ids [count], table [known, width], y [count, width]. Grid: x over rows; 128 threads.
#define EMBED(name, T)                                                                                                 \
    KERNEL(128) name(device act *y [[buffer(0)]], device const T *table [[buffer(1)]],                                 \
                     device const u32 *ids [[buffer(2)]], constant u32 &count [[buffer(3)]],                           \
                     constant u32 &width [[buffer(4)]], constant u32 &known [[buffer(5)]],                             \
                     constant float &scale [[buffer(6)]], FAULT_WORD word [[buffer(7)]],                               \
                     constant u32 &place [[buffer(8)]] WHERE) {                                                        \
        Here here = HERE;                                                                                              \
        rows_by_number(y, table, ids, count, width, known, scale, word, place, here);                                  \
    }

EMBED(embed_f32, float)
EMBED(embed_bf16, bf16)
EMBED(embed_f16, f16)

template <typename T>
void sums_by_number(device T *sum, device const act *dy, device const u32 *order, device const u32 *starts,
                    device const u32 *numbers, u32 runs, u32 width, u32 known, u32 rows, float scale, float keep,
                    FAULT_WORD word, u32 place, Here here) {
    u32 column = here.block.y * here.workers + here.worker;
    if (column >= width) return;
    for (u32 run = here.block.x; run < runs; run += here.blocks.x) {
        u64 to = (u64)inside(numbers[run], known, word, place) * width + column;
        float total = keep != 0.0f ? get((device const T *)sum, to) : 0.0f;
        u32 end = starts[run + 1];
        for (u32 at = starts[run]; at < end; ++at) {
            total = fma(get(dy, (u64)inside(order[at], rows, word, place) * width + column), scale, total);
        }
        put(sum, to, total);
    }
}

// sum[numbers[run]] = keep · sum[numbers[run]] + scale · Σ dy[order[at]] for at in starts[run] … starts[run + 1] − 1, in
// that order. The host sorts the ids, stably: `order` [rows] are the rows of dy by id, `numbers` [runs] the ids that
// occur, each once, `starts` [runs + 1] where each one's rows begin. dy: [rows, width]. Rows of `sum` that no id names
// are left alone. Grid: x over runs (at most 65535), y ⌈width / 128⌉; 128 threads. `scatter_rows`: the same into rows of
// activations; clear `sum` before.
#define SUMS(name, T)                                                                                                  \
    KERNEL(128) name(device T *sum [[buffer(0)]], device const act *dy [[buffer(1)]],                                  \
                     device const u32 *order [[buffer(2)]], device const u32 *starts [[buffer(3)]],                    \
                     device const u32 *numbers [[buffer(4)]], constant u32 &runs [[buffer(5)]],                        \
                     constant u32 &width [[buffer(6)]], constant u32 &known [[buffer(7)]],                             \
                     constant u32 &rows [[buffer(8)]], constant float &scale [[buffer(9)]],                            \
                     constant float &keep [[buffer(10)]], FAULT_WORD word [[buffer(11)]],                              \
                     constant u32 &place [[buffer(12)]] WHERE) {                                                       \
        Here here = HERE;                                                                                              \
        sums_by_number(sum, dy, order, starts, numbers, runs, width, known, rows, scale, keep, word, place, here);     \
    }

SUMS(embed_gradient, float)
SUMS(scatter_rows, act)
