// Root-mean-square normalisation of rows, and its gradients. Agrees with fused/norm.rs.
//
// y = x·r·(w + offset), r = 1/√(mean(x²) + ε); offset is 1 for Gemma, else 0. Rows are contiguous, of `width` numbers;
// weights and r are f32. A kernel comes twice: `…_narrow` with a warp for a row (widths up to 512, heads), and with a
// block for a row. Launch: narrow: 256 threads, ⌈rows / 8⌉ blocks; wide: 256 threads, `rows` blocks. No dynamic shared
// memory. y may be x.

// Σ over those who share a row.
template <bool NARROW> DEVICE float row_sum(float value) {
    if constexpr (NARROW) {
        return warp_sum(value);
    } else {
        return block_sum(value);
    }
}

template <bool NARROW, typename F> DEVICE void each_row(u32 rows, F work) {
    if constexpr (NARROW) {
        u32 row = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
        if (row < rows) work(row, threadIdx.x % WARP, (u32)WARP);
    } else {
        work(blockIdx.x, threadIdx.x, blockDim.x);
    }
}

template <bool NARROW>
DEVICE void norm_forward(act *y, float *rates, const act *x, const float *weight, u32 rows, u32 width, float epsilon,
                         float offset) {
    bool eights = width % 8 == 0 && even(y) && even(x) && even(weight);
    each_row<NARROW>(rows, [&](u32 row, u32 lane, u32 lanes) {
        const act *line = x + (u64)row * width;
        float squares = 0.0f;
        along(width, eights, lane, lanes, [&](u32 at, auto n) {
            float numbers[n.value];
            load(numbers, line + at);
#pragma unroll
            for (int i = 0; i < n.value; ++i) squares = fmaf(numbers[i], numbers[i], squares);
        });
        float rate = 1.0f / sqrtf(row_sum<NARROW>(squares) / (float)width + epsilon);
        along(width, eights, lane, lanes, [&](u32 at, auto n) {
            float numbers[n.value], weights[n.value];
            load(numbers, line + at);
            load(weights, weight + at);
#pragma unroll
            for (int i = 0; i < n.value; ++i) numbers[i] = numbers[i] * rate * (weights[i] + offset);
            store(y + (u64)row * width + at, numbers);
        });
        if (lane == 0) rates[row] = rate;
    });
}

// The norm of x, [rows, width]. rates: r of every row, [rows].
KERNEL void rms_norm(act *y, float *rates, const act *x, const float *weight, u32 rows, u32 width, float epsilon,
                     float offset) {
    norm_forward<false>(y, rates, x, weight, rows, width, epsilon, offset);
}
KERNEL void rms_norm_narrow(act *y, float *rates, const act *x, const float *weight, u32 rows, u32 width,
                            float epsilon, float offset) {
    norm_forward<true>(y, rates, x, weight, rows, width, epsilon, offset);
}

template <bool NARROW>
DEVICE void norm_backward(act *dx, const act *dy, const act *x, const float *weight, const float *rates, u32 rows,
                          u32 width, float offset) {
    bool eights = width % 8 == 0 && even(dx) && even(dy) && even(x) && even(weight);
    each_row<NARROW>(rows, [&](u32 row, u32 lane, u32 lanes) {
        u64 start = (u64)row * width;
        float products = 0.0f;
        along(width, eights, lane, lanes, [&](u32 at, auto n) {
            float seeds[n.value], numbers[n.value], weights[n.value];
            load(seeds, dy + start + at);
            load(numbers, x + start + at);
            load(weights, weight + at);
#pragma unroll
            for (int i = 0; i < n.value; ++i) products = fmaf(seeds[i] * (weights[i] + offset), numbers[i], products);
        });
        float rate = rates[row];
        float pull = -(row_sum<NARROW>(products) / (float)width) * rate * rate * rate;
        along(width, eights, lane, lanes, [&](u32 at, auto n) {
            float seeds[n.value], numbers[n.value], weights[n.value];
            load(seeds, dy + start + at);
            load(numbers, x + start + at);
            load(weights, weight + at);
#pragma unroll
            for (int i = 0; i < n.value; ++i) {
                numbers[i] = fmaf(numbers[i], pull, seeds[i] * (weights[i] + offset) * rate);
            }
            store(dx + start + at, numbers);
        });
    });
}

// dx = r·dy·w − x·r³·mean(dy·w·x). dx may be dy, not x.
KERNEL void rms_norm_backward(act *dx, const act *dy, const act *x, const float *weight, const float *rates, u32 rows,
                              u32 width, float offset) {
    norm_backward<false>(dx, dy, x, weight, rates, rows, width, offset);
}
KERNEL void rms_norm_backward_narrow(act *dx, const act *dy, const act *x, const float *weight, const float *rates,
                                     u32 rows, u32 width, float offset) {
    norm_backward<true>(dx, dy, x, weight, rates, rows, width, offset);
}

// parts[part][column] = Σ dy·x·r over the rows of a part, in order; `rates` null stands for ones, for the gradient of
// DoRA's lengths. Grid: x ⌈width / 256⌉, y parts; 256 threads. Follow
// with `add_parts` (elementwise.cu). 64 rows a part is a fair start; the parts take parts · width · 4 bytes.
KERNEL void rms_norm_weight_gradient(float *parts, const act *dy, const act *x, const float *rates, u32 rows, u32 width,
                                     u32 rows_of_part) {
    u32 column = blockIdx.x * blockDim.x + threadIdx.x, first = blockIdx.y * rows_of_part;
    if (column >= width) return;
    float sum = 0.0f;
    for (u32 row = first; row < least(rows, first + rows_of_part); ++row) {
        u64 at = (u64)row * width + column;
        sum = fmaf(wide(dy[at]) * (rates ? rates[row] : 1.0f), wide(x[at]), sum);
    }
    parts[(u64)blockIdx.y * width + column] = sum;
}
