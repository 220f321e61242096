// Passes over flat buffers and over rows: sums, scales, casts, biases, gates.
//
// "Flat" and "rows" are grids of any size that threads walk over with a stride, on one axis; 256 threads. Any length, any
// alignment; 16-byte boundaries are faster. Outputs may be inputs unless a kernel says no.

// y = a + b. fused/residual.rs. Flat.
KERNEL(256) add(GLOBAL act *y, GLOBAL const act *a, GLOBAL const act *b, NUMBER(u64) count WHERE) {
    EVERYWHERE(at, N, count, are_aligned(y, a, b), { store(y + at, sum_of(load<N>(a + at), load<N>(b + at))); })
}

// sum = sum + scale · x; sum is f32. parameters/flat.rs `Add`. Flat.
KERNEL(256) accumulate(GLOBAL float *sum, GLOBAL const act *x, NUMBER(float) scale, NUMBER(u64) count WHERE) {
    EVERYWHERE(at, N, count, are_aligned(sum, x), {
        Numbers<N> total = load<N>(sum + at), more = load<N>(x + at);
        UNROLL for (int i = 0; i < N; ++i) total.at[i] = plus(total.at[i], times(scale, more.at[i]));
        store(sum + at, total);
    })
}

// y = scale · x from one type to another; scale 1 changes no bit. Flat.
#define CAST(name, To, From)                                                                                           \
    KERNEL(256) name(GLOBAL To *y, GLOBAL const From *x, NUMBER(float) scale, NUMBER(u64) count WHERE) {               \
        EVERYWHERE(at, N, count, are_aligned(y, x), { store(y + at, scaled(load<N>(x + at), scale)); })                \
    }

CAST(widen, float, act)
CAST(narrow_to_act, act, float)
CAST(bf16_to_f32, float, bf16)
CAST(f16_to_f32, float, f16)
CAST(f32_to_bf16, bf16, float)
CAST(f32_to_f16, f16, float)
CAST(f16_to_bf16, bf16, f16)
CAST(bf16_to_f16, f16, bf16)

// x = number everywhere; x is f32. parameters/flat.rs `Fill`. Flat.
KERNEL(256) fill(GLOBAL float *x, NUMBER(float) number, NUMBER(u64) count WHERE) {
    EVERYWHERE(at, N, count, are_aligned(x), {
        Numbers<N> numbers;
        UNROLL for (int i = 0; i < N; ++i) numbers.at[i] = number;
        store(x + at, numbers);
    })
}

// y[row][column] = x[row][column]: rows are y_stride and x_stride numbers apart, so that columns are cut out of a wider
// matrix or put into one; no bit changes. y and x do not overlap. Rows.
KERNEL(256) copy_columns(GLOBAL act *y, GLOBAL const act *x, NUMBER(u32) rows, NUMBER(u32) columns,
                         NUMBER(u64) y_stride, NUMBER(u64) x_stride WHERE) {
    Here here = HERE;
    for (u32 row = here.block.x; row < rows; row += here.blocks.x) {
        GLOBAL act *to = y + row * y_stride;
        GLOBAL const act *from = x + row * x_stride;
        ALONG(at, N, columns, are_aligned(to, from), here, { store(to + at, load<N>(from + at)); })
    }
}

// x[row][column] += bias[column]: x is [rows, columns], rows `stride` numbers apart. For products without an epilogue.
// fused/linear.rs `apply`. Rows.
KERNEL(256) add_bias(GLOBAL act *x, GLOBAL const float *bias, NUMBER(u32) rows, NUMBER(u32) columns,
                     NUMBER(u64) stride WHERE) {
    Here here = HERE;
    for (u32 row = here.block.x; row < rows; row += here.blocks.x) {
        GLOBAL act *line = x + row * stride;
        ALONG(at, N, columns, are_aligned(line, bias), here, {
            store(line + at, sum_of(load<N>(line + at), load<N>(bias + at)));
        })
    }
}

// y[row][column] = x[row][column] · factors[row]; x is f32. For gradients of log-probabilities by their rows.
// fused/head/logprob_gradients.rs `scale_head_gradient`. Rows.
KERNEL(256) scale_rows(GLOBAL act *y, GLOBAL const float *x, GLOBAL const float *factors, NUMBER(u32) rows,
                       NUMBER(u32) columns WHERE) {
    Here here = HERE;
    for (u32 row = here.block.x; row < rows; row += here.blocks.x) {
        GLOBAL act *to = y + (u64)row * columns;
        GLOBAL const float *from = x + (u64)row * columns;
        float factor = factors[row];
        ALONG(at, N, columns, are_aligned(to, from), here, { store(to + at, scaled(load<N>(from + at), factor)); })
    }
}

// y[row][column] = x[row][column] · factors[column]; for the lengths of DoRA's rows. Rows.
KERNEL(256) scale_columns(GLOBAL act *y, GLOBAL const act *x, GLOBAL const float *factors, NUMBER(u32) rows,
                          NUMBER(u32) columns WHERE) {
    Here here = HERE;
    for (u32 row = here.block.x; row < rows; row += here.blocks.x) {
        GLOBAL act *to = y + (u64)row * columns;
        GLOBAL const act *from = x + (u64)row * columns;
        ALONG(at, N, columns, are_aligned(to, from, factors), here, {
            Numbers<N> numbers = load<N>(from + at), scales = load<N>(factors + at);
            UNROLL for (int i = 0; i < N; ++i) numbers.at[i] *= scales.at[i];
            store(to + at, numbers);
        })
    }
}

// ---- the gate of a feed-forward block: fused/gated.rs ----

#define GELU_SLOPE 0.7978846f
#define GELU_CUBIC 0.044715f

// Activation 0 is SiLU, x·σ(x), and 1 GELU in its tanh form; each with its derivative. From the tail on the nearer side
// both keep their digits.
DEVICE void activate(u32 activation, float x, THREAD float &value, THREAD float &slope) {
    if (activation == 0) {
        float open = sigmoid(x);
        value = x * open;
        slope = open * fmaf(x, 1.0f - open, 1.0f);
    } else {
        float square = x * x;
        float inner = GELU_SLOPE * fmaf(3.0f * GELU_CUBIC, square, 1.0f);
        float angle = 2.0f * GELU_SLOPE * x * fmaf(GELU_CUBIC, square, 1.0f);
        float tail = expf(-fabsf(angle));
        float near = 1.0f / (1.0f + tail);
        float open = angle < 0.0f ? tail * near : near;
        value = x * open;
        slope = fmaf(2.0f * x * inner, tail * near * near, open);
    }
}

// y = activation(gate) · up. y is [rows, columns], contiguous; gate and up have rows `stride` apart, so that both may lie
// in the result of one product. Rows.
KERNEL(256) gated(GLOBAL act *y, GLOBAL const act *gate, GLOBAL const act *up, NUMBER(u32) rows, NUMBER(u32) columns,
                  NUMBER(u64) stride, NUMBER(u32) activation WHERE) {
    Here here = HERE;
    for (u32 row = here.block.x; row < rows; row += here.blocks.x) {
        GLOBAL act *to = y + (u64)row * columns;
        GLOBAL const act *gates = gate + row * stride, *ups = up + row * stride;
        ALONG(at, N, columns, are_aligned(to, gates, ups), here, {
            Numbers<N> g = load<N>(gates + at), u = load<N>(ups + at);
            UNROLL for (int i = 0; i < N; ++i) {
                float value, slope;
                activate(activation, g.at[i], value, slope);
                g.at[i] = value * u.at[i];
            }
            store(to + at, g);
        })
    }
}

// dgate = dy·up·activation'(gate), dup = dy·activation(gate), and once more y = activation(gate)·up unless it is null. dgate
// and dup may be gate and up: they have the same `stride`. dy and y are contiguous, and may be the same. Rows.
KERNEL(256) gated_backward(GLOBAL act *dgate, GLOBAL act *dup, GLOBAL act *y, GLOBAL const act *dy,
                           GLOBAL const act *gate, GLOBAL const act *up, NUMBER(u32) rows, NUMBER(u32) columns,
                           NUMBER(u64) stride, NUMBER(u32) activation WHERE) {
    Here here = HERE;
    for (u32 row = here.block.x; row < rows; row += here.blocks.x) {
        GLOBAL const act *seeds = dy + (u64)row * columns, *gates = gate + row * stride, *ups = up + row * stride;
        GLOBAL act *to_gate = dgate + row * stride, *to_up = dup + row * stride;
        bool again = THERE(2, y);
        GLOBAL act *to = again ? y + (u64)row * columns : to_gate;
        ALONG(at, N, columns, are_aligned(seeds, gates, ups, to_gate, to_up, to), here, {
            Numbers<N> d = load<N>(seeds + at), g = load<N>(gates + at), u = load<N>(ups + at), result;
            UNROLL for (int i = 0; i < N; ++i) {
                float value, slope;
                activate(activation, g.at[i], value, slope);
                result.at[i] = value * u.at[i];
                g.at[i] = d.at[i] * u.at[i] * slope;
                u.at[i] = d.at[i] * value;
            }
            if (again) store(to + at, result);
            store(to_gate + at, g);
            store(to_up + at, u);
        })
    }
}

// ---- sums over rows ----

// parts[part][column] = Σ x[row][column] over the rows of a part, in order; f32. The gradient of a bias. Rows of a part:
// `rows_of_part`. Grid: x ⌈columns / 256⌉, y parts; 256 threads. Follow with `add_parts`. fused/linear.rs
// `bias_gradient`.
KERNEL(256) sum_rows_in_parts(GLOBAL float *parts, GLOBAL const act *x, NUMBER(u32) rows, NUMBER(u32) columns,
                              NUMBER(u32) rows_of_part WHERE) {
    Here here = HERE;
    u32 column = here.block.x * here.threads + here.index, first = here.block.y * rows_of_part;
    if (column >= columns) return;
    float sum = 0.0f;
    for (u32 row = first; row < least(rows, first + rows_of_part); ++row) sum += get(x, (u64)row * columns + column);
    parts[(u64)here.block.y * columns + column] = sum;
}

// sum[column] = keep · sum[column] + scale · Σ parts[part][column], parts in order. keep is 0 or 1; with 0 what `sum`
// held is not read. Grid: x ⌈columns / 256⌉; 256 threads.
KERNEL(256) add_parts(GLOBAL float *sum, GLOBAL const float *parts, NUMBER(u32) count, NUMBER(u32) columns,
                      NUMBER(float) keep, NUMBER(float) scale WHERE) {
    Here here = HERE;
    u32 column = here.block.x * here.threads + here.index;
    if (column >= columns) return;
    float total = 0.0f;
    for (u32 part = 0; part < count; ++part) total += parts[(u64)part * columns + column];
    sum[column] = keep != 0.0f ? sum[column] + scale * total : scale * total;
}
