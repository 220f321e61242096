// Root-mean-square normalization of rows, and its gradients. Agrees with fused/norm.rs.
//
// y = x·r·(w + offset), r = 1/√(mean(x²) + ε); offset is 1 for Gemma, else 0. Rows are contiguous, of `width` numbers;
// weights and r are f32. A kernel comes twice: `…_narrow` with a warp for a row (widths up to 1024), and with a
// block for a row. Launch: narrow: 256 threads, ⌈rows / 8⌉ blocks; wide: 256 threads, `rows` blocks. y may be x.

// The threads that share a row as if they were a block, its number the row.
DEVICE Here row_share(bool narrow, Here here) {
    if (!narrow) return here;
    here.block.x = here.block.x * (here.threads / WARP) + here.index / WARP;
    here.index %= WARP, here.threads = WARP;
    return here;
}

// Σ over those who share a row.
DEVICE float row_sum(bool narrow, float value, LOCAL float *parts, Here here) {
    return narrow ? warp_sum(value) : block_sum(value, parts, here);
}

DEVICE void norm_forward(bool narrow, GLOBAL act *y, GLOBAL float *rates, GLOBAL const act *x,
                         GLOBAL const float *weight, u32 rows, u32 width, float epsilon, float offset,
                         LOCAL float *parts, Here here) {
    Here share = row_share(narrow, here);
    u32 row = share.block.x;
    // A whole warp leaves, or a whole block: no other thread waits for it.
    if (row >= rows) return;
    GLOBAL const act *from = x + (u64)row * width;
    GLOBAL act *to = y + (u64)row * width;
    float squares = 0.0f;
    ALONG(at, N, width, are_aligned(to, from, weight), share, {
        Numbers<N> numbers = load<N>(from + at);
        squares = dot(numbers, numbers, squares);
    })
    float rate = 1.0f / sqrtf(row_sum(narrow, squares, parts, here) / (float)width + epsilon);
    ALONG(at, N, width, are_aligned(to, from, weight), share, {
        Numbers<N> numbers = load<N>(from + at), weights = load<N>(weight + at);
        UNROLL for (int i = 0; i < N; ++i) numbers.at[i] = numbers.at[i] * rate * (weights.at[i] + offset);
        store(to + at, numbers);
    })
    if (share.index == 0) rates[row] = rate;
}

DEVICE void norm_backward(bool narrow, GLOBAL act *dx, GLOBAL const act *dy, GLOBAL const act *x,
                          GLOBAL const float *weight, GLOBAL const float *rates, GLOBAL const act *plus, bool adds,
                          u32 rows, u32 width, float offset, LOCAL float *parts, Here here) {
    Here share = row_share(narrow, here);
    u32 row = share.block.x;
    if (row >= rows) return;
    GLOBAL const act *from = x + (u64)row * width, *seed = dy + (u64)row * width;
    GLOBAL const act *more = adds ? plus + (u64)row * width : seed;
    GLOBAL act *to = dx + (u64)row * width;
    float products = 0.0f;
    ALONG(at, N, width, are_aligned(to, seed, from, weight), share, {
        Numbers<N> seeds = load<N>(seed + at), numbers = load<N>(from + at), weights = load<N>(weight + at);
        UNROLL for (int i = 0; i < N; ++i) seeds.at[i] *= weights.at[i] + offset;
        products = dot(seeds, numbers, products);
    })
    float rate = rates[row];
    float pull = -(row_sum(narrow, products, parts, here) / (float)width) * rate * rate * rate;
    ALONG(at, N, width, are_aligned(to, seed, from, weight, more), share, {
        Numbers<N> seeds = load<N>(seed + at), numbers = load<N>(from + at), weights = load<N>(weight + at);
        UNROLL for (int i = 0; i < N; ++i) {
            numbers.at[i] = fmaf(numbers.at[i], pull, seeds.at[i] * (weights.at[i] + offset) * rate);
        }
        if (adds) numbers = sum_of(numbers, load<N>(more + at));
        store(to + at, numbers);
    })
}

// The norm of x, [rows, width]. rates: r of every row, [rows].
#define RMS_NORM(name, narrow)                                                                                         \
    KERNEL(256) name(GLOBAL act *y, GLOBAL float *rates, GLOBAL const act *x, GLOBAL const float *weight,              \
                     NUMBER(u32) rows, NUMBER(u32) width, NUMBER(float) epsilon, NUMBER(float) offset WHERE) {         \
        SHARED float parts[WARP];                                                                                      \
        norm_forward(narrow, y, rates, x, weight, rows, width, epsilon, offset, parts, HERE);                          \
    }

RMS_NORM(rms_norm, false)
RMS_NORM(rms_norm_narrow, true)

// dx = r·dy·w − x·r³·mean(dy·w·x), + plus where it is not null. dx may be dy or plus, not x.
#define RMS_NORM_BACKWARD(name, narrow)                                                                                \
    KERNEL(256) name(GLOBAL act *dx, GLOBAL const act *dy, GLOBAL const act *x, GLOBAL const float *weight,            \
                     GLOBAL const float *rates, GLOBAL const act *plus, NUMBER(u32) rows, NUMBER(u32) width,           \
                     NUMBER(float) offset WHERE) {                                                                     \
        SHARED float parts[WARP];                                                                                      \
        norm_backward(narrow, dx, dy, x, weight, rates, plus, THERE(5, plus), rows, width, offset, parts, HERE);       \
    }

RMS_NORM_BACKWARD(rms_norm_backward, false)
RMS_NORM_BACKWARD(rms_norm_backward_narrow, true)

// parts[part][column] = Σ dy·x·r over the rows of a part, in order; `rates` null stands for ones, for the gradient of
// DoRA's lengths. Grid: x ⌈width / 256⌉, y parts; 256 threads. Follow with `add_parts` (elementwise.h). 64 rows a part is
// a fair start; the parts take parts · width · 4 bytes.
KERNEL(256) rms_norm_weight_gradient(GLOBAL float *parts, GLOBAL const act *dy, GLOBAL const act *x,
                                     GLOBAL const float *rates, NUMBER(u32) rows, NUMBER(u32) width,
                                     NUMBER(u32) rows_of_part WHERE) {
    Here here = HERE;
    u32 column = here.block.x * here.threads + here.index, first = here.block.y * rows_of_part;
    bool with_rates = THERE(3, rates);
    if (column >= width) return;
    float sum = 0.0f;
    for (u32 row = first; row < least(rows, first + rows_of_part); ++row) {
        u64 at = (u64)row * width + column;
        sum = fmaf(get(dy, at) * (with_rates ? rates[row] : 1.0f), get(x, at), sum);
    }
    parts[(u64)here.block.y * width + column] = sum;
}
