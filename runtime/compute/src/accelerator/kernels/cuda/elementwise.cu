// Passes over flat buffers and over rows: sums, scales, casts, biases, gates, dropout.
//
// Launch of all kernels that say "flat": 256 threads, min(⌈count / 2048⌉, 16 · multiprocessors) blocks, no shared
// memory. Any length, any alignment; 16-byte boundaries are faster. Outputs may be inputs unless a kernel says no.

// y = a + b. fused/residual.rs. Flat.
KERNEL void add(act *y, const act *a, const act *b, u64 count) {
    everywhere(count, even(y) && even(a) && even(b), [&](u64 at, auto n) {
        float left[n.value], right[n.value];
        load(left, a + at);
        load(right, b + at);
#pragma unroll
        for (int i = 0; i < n.value; ++i) left[i] += right[i];
        store(y + at, left);
    });
}

// sum = sum + scale · x; sum is f32. parameters/flat.rs `Add`. Flat.
KERNEL void accumulate(float *sum, const act *x, float scale, u64 count) {
    everywhere(count, even(sum) && even(x), [&](u64 at, auto n) {
        float total[n.value], more[n.value];
        load(total, sum + at);
        load(more, x + at);
#pragma unroll
        for (int i = 0; i < n.value; ++i) total[i] = __fadd_rn(total[i], __fmul_rn(scale, more[i]));
        store(sum + at, total);
    });
}

template <typename To, typename From> DEVICE void cast(To *y, const From *x, float scale, u64 count) {
    everywhere(count, even(y) && even(x), [&](u64 at, auto n) {
        float numbers[n.value];
        load(numbers, x + at);
#pragma unroll
        for (int i = 0; i < n.value; ++i) numbers[i] *= scale;
        store(y + at, numbers);
    });
}

// y = scale · x from one type to another; scale 1 changes no bit. Flat.
KERNEL void widen(float *y, const act *x, float scale, u64 count) { cast(y, x, scale, count); }
KERNEL void narrow_to_act(act *y, const float *x, float scale, u64 count) { cast(y, x, scale, count); }
KERNEL void bf16_to_f32(float *y, const bf16 *x, float scale, u64 count) { cast(y, x, scale, count); }
KERNEL void f16_to_f32(float *y, const f16 *x, float scale, u64 count) { cast(y, x, scale, count); }
KERNEL void f32_to_bf16(bf16 *y, const float *x, float scale, u64 count) { cast(y, x, scale, count); }
KERNEL void f32_to_f16(f16 *y, const float *x, float scale, u64 count) { cast(y, x, scale, count); }
KERNEL void f16_to_bf16(bf16 *y, const f16 *x, float scale, u64 count) { cast(y, x, scale, count); }
KERNEL void bf16_to_f16(f16 *y, const bf16 *x, float scale, u64 count) { cast(y, x, scale, count); }

// x = number in every place; x is f32. parameters/flat.rs `Fill`. Flat.
KERNEL void fill(float *x, float number, u64 count) {
    everywhere(count, even(x), [&](u64 at, auto n) {
        float numbers[n.value];
#pragma unroll
        for (int i = 0; i < n.value; ++i) numbers[i] = number;
        store(x + at, numbers);
    });
}

// y[row][column] = x[row][column]: rows are y_stride and x_stride numbers apart, so that columns are cut out of a wider
// matrix or put into one; no bit changes. y and x do not overlap. Grid: x over rows; 256 threads.
KERNEL void copy_columns(act *y, const act *x, u32 rows, u32 columns, u64 y_stride, u64 x_stride) {
    for (u32 row = blockIdx.x; row < rows; row += gridDim.x) {
        act *to = y + row * y_stride;
        const act *from = x + row * x_stride;
        along(columns, columns % 8 == 0 && even(to) && even(from), threadIdx.x, blockDim.x, [&](u32 at, auto n) {
            float numbers[n.value];
            load(numbers, from + at);
            store(to + at, numbers);
        });
    }
}

// x[row][column] += bias[column]: x is [rows, columns], rows `stride` numbers apart. For cuBLAS calls without an
// epilogue. fused/linear.rs `apply`. Grid: x over rows; 256 threads.
KERNEL void add_bias(act *x, const float *bias, u32 rows, u32 columns, u64 stride) {
    for (u32 row = blockIdx.x; row < rows; row += gridDim.x) {
        act *line = x + row * stride;
        along(columns, columns % 8 == 0 && even(line) && even(bias), threadIdx.x, blockDim.x, [&](u32 at, auto n) {
            float numbers[n.value], more[n.value];
            load(numbers, line + at);
            load(more, bias + at);
#pragma unroll
            for (int i = 0; i < n.value; ++i) numbers[i] += more[i];
            store(line + at, numbers);
        });
    }
}

// x[row][column] *= factors[row] (f32 rows); for gradients of log-probabilities by their rows. fused/head/slopes.rs
// `scale_head_gradient`. y may be another type than x: y is act, x is f32. Grid: x over rows; 256 threads.
KERNEL void scale_rows(act *y, const float *x, const float *factors, u32 rows, u32 columns) {
    for (u32 row = blockIdx.x; row < rows; row += gridDim.x) {
        act *to = y + (u64)row * columns;
        const float *from = x + (u64)row * columns;
        float factor = factors[row];
        along(columns, columns % 8 == 0 && even(to) && even(from), threadIdx.x, blockDim.x, [&](u32 at, auto n) {
            float numbers[n.value];
            load(numbers, from + at);
#pragma unroll
            for (int i = 0; i < n.value; ++i) numbers[i] *= factor;
            store(to + at, numbers);
        });
    }
}

// y[row][column] = x[row][column] · factors[column]; for the lengths of DoRA's rows. Grid: x over rows; 256 threads.
KERNEL void scale_columns(act *y, const act *x, const float *factors, u32 rows, u32 columns) {
    for (u32 row = blockIdx.x; row < rows; row += gridDim.x) {
        act *to = y + (u64)row * columns;
        const act *from = x + (u64)row * columns;
        bool eights = columns % 8 == 0 && even(to) && even(from) && even(factors);
        along(columns, eights, threadIdx.x, blockDim.x, [&](u32 at, auto n) {
            float numbers[n.value], scales[n.value];
            load(numbers, from + at);
            load(scales, factors + at);
#pragma unroll
            for (int i = 0; i < n.value; ++i) numbers[i] *= scales[i];
            store(to + at, numbers);
        });
    }
}

// ---- the gate of a feed-forward block: fused/gated.rs ----

#define GELU_SLOPE 0.7978846f
#define GELU_CUBIC 0.044715f

// x·σ(x) and its derivative.
DEVICE void silu(float x, float &value, float &slope) {
    float open = sigmoid(x);
    value = x * open;
    slope = open * fmaf(x, 1.0f - open, 1.0f);
}

// The tanh form of GELU and its derivative; from the tail on the nearer side both keep their digits.
DEVICE void gelu(float x, float &value, float &slope) {
    float square = x * x;
    float inner = GELU_SLOPE * fmaf(3.0f * GELU_CUBIC, square, 1.0f);
    float angle = 2.0f * GELU_SLOPE * x * fmaf(GELU_CUBIC, square, 1.0f);
    float tail = expf(-fabsf(angle));
    float near = 1.0f / (1.0f + tail);
    float half = angle < 0.0f ? tail * near : near;
    value = x * half;
    slope = fmaf(2.0f * x * inner, tail * near * near, half);
}

DEVICE void activate(u32 activation, float x, float &value, float &slope) {
    if (activation == 0) {
        silu(x, value, slope);
    } else {
        gelu(x, value, slope);
    }
}

// y = activation(gate) · up; activation 0 is SiLU, 1 GELU in its tanh form. y is [rows, columns], contiguous; gate and
// up have rows `stride` apart, so that both may lie in the result of one product. Grid: x over rows; 256 threads.
KERNEL void gated(act *y, const act *gate, const act *up, u32 rows, u32 columns, u64 stride, u32 activation) {
    for (u32 row = blockIdx.x; row < rows; row += gridDim.x) {
        act *to = y + (u64)row * columns;
        const act *gates = gate + row * stride, *ups = up + row * stride;
        bool eights = columns % 8 == 0 && even(to) && even(gates) && even(ups);
        along(columns, eights, threadIdx.x, blockDim.x, [&](u32 at, auto n) {
            float g[n.value], u[n.value];
            load(g, gates + at);
            load(u, ups + at);
#pragma unroll
            for (int i = 0; i < n.value; ++i) {
                float value, slope;
                activate(activation, g[i], value, slope);
                g[i] = value * u[i];
            }
            store(to + at, g);
        });
    }
}

// dgate = dy·up·activation'(gate), dup = dy·activation(gate). dgate and dup may be gate and up: they have the same
// `stride`. dy is contiguous. Grid: x over rows; 256 threads.
KERNEL void gated_backward(act *dgate, act *dup, const act *dy, const act *gate, const act *up, u32 rows, u32 columns,
                           u64 stride, u32 activation) {
    for (u32 row = blockIdx.x; row < rows; row += gridDim.x) {
        const act *seeds = dy + (u64)row * columns, *gates = gate + row * stride, *ups = up + row * stride;
        act *to_gate = dgate + row * stride, *to_up = dup + row * stride;
        bool eights = columns % 8 == 0 && even(seeds) && even(gates) && even(ups) && even(to_gate) && even(to_up);
        along(columns, eights, threadIdx.x, blockDim.x, [&](u32 at, auto n) {
            float d[n.value], g[n.value], u[n.value];
            load(d, seeds + at);
            load(g, gates + at);
            load(u, ups + at);
#pragma unroll
            for (int i = 0; i < n.value; ++i) {
                float value, slope;
                activate(activation, g[i], value, slope);
                g[i] = d[i] * u[i] * slope;
                u[i] = d[i] * value;
            }
            store(to_gate + at, g);
            store(to_up + at, u);
        });
    }
}

// ---- sums over rows ----

// parts[part][column] = Σ x[row][column] over the rows of a part, in order; f32. The gradient of a bias, and the first
// half of that of a norm's weight (see norm.cu). Rows of a part: `rows_of_part`. Grid: x ⌈columns / 256⌉, y parts;
// 256 threads. Follow with `add_parts`. fused/linear.rs `bias_gradient`.
KERNEL void sum_rows_in_parts(float *parts, const act *x, u32 rows, u32 columns, u32 rows_of_part) {
    u32 column = blockIdx.x * blockDim.x + threadIdx.x, first = blockIdx.y * rows_of_part;
    if (column >= columns) return;
    float sum = 0.0f;
    for (u32 row = first; row < least(rows, first + rows_of_part); ++row) sum += wide(x[(u64)row * columns + column]);
    parts[(u64)blockIdx.y * columns + column] = sum;
}

// sum[column] = keep · sum[column] + scale · Σ parts[part][column], parts in order. keep is 0 or 1; with 0 what `sum`
// held is not read. Grid: x ⌈columns / 256⌉; 256 threads.
KERNEL void add_parts(float *sum, const float *parts, u32 count, u32 columns, float keep, float scale) {
    u32 column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    float total = 0.0f;
    for (u32 part = 0; part < count; ++part) total += parts[(u64)part * columns + column];
    sum[column] = keep != 0.0f ? sum[column] + scale * total : scale * total;
}
