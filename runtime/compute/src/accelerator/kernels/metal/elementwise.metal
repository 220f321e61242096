// Passes over flat buffers and over rows: sums, scales, casts, biases, gates. "Flat" and "rows" are grids of any size
// that threads walk over with a stride. Outputs may be inputs unless a kernel says no.

// y = a + b. Flat.
KERNEL(256) add(device act *y [[buffer(0)]], device const act *a [[buffer(1)]], device const act *b [[buffer(2)]],
                constant u64 &count [[buffer(3)]] WHERE) {
    Here here = HERE;
    u64 step = (u64)here.blocks.x * here.workers;
    for (u64 at = (u64)here.block.x * here.workers + here.worker; at < count; at += step) {
        put(y, at, get(a, at) + get(b, at));
    }
}

// sum = sum + scale · x; sum is f32. Flat.
KERNEL(256) accumulate(device float *sum [[buffer(0)]], device const act *x [[buffer(1)]],
                       constant float &scale [[buffer(2)]], constant u64 &count [[buffer(3)]] WHERE) {
    Here here = HERE;
    u64 step = (u64)here.blocks.x * here.workers;
    for (u64 at = (u64)here.block.x * here.workers + here.worker; at < count; at += step) {
        sum[at] = plus(sum[at], times(scale, get(x, at)));
    }
}

template <typename To, typename From>
void cast(device To *y, device const From *x, float scale, u64 count, Here here) {
    u64 step = (u64)here.blocks.x * here.workers;
    for (u64 at = (u64)here.block.x * here.workers + here.worker; at < count; at += step) {
        put(y, at, scale * get(x, at));
    }
}

// y = scale · x from one type to another; scale 1 changes no bit. Flat.
#define CAST(name, To, From)                                                                                           \
    KERNEL(256) name(device To *y [[buffer(0)]], device const From *x [[buffer(1)]],                                   \
                     constant float &scale [[buffer(2)]], constant u64 &count [[buffer(3)]] WHERE) {                   \
        Here here = HERE;                                                                                              \
        cast(y, x, scale, count, here);                                                                                \
    }

CAST(widen, float, act)
CAST(narrow_to_act, act, float)
CAST(bf16_to_f32, float, bf16)
CAST(f16_to_f32, float, f16)
CAST(f32_to_bf16, bf16, float)
CAST(f32_to_f16, f16, float)
CAST(f16_to_bf16, bf16, f16)
CAST(bf16_to_f16, f16, bf16)

// x = number everywhere. Flat.
KERNEL(256) fill(device float *x [[buffer(0)]], constant float &number [[buffer(1)]],
                 constant u64 &count [[buffer(2)]] WHERE) {
    Here here = HERE;
    u64 step = (u64)here.blocks.x * here.workers;
    for (u64 at = (u64)here.block.x * here.workers + here.worker; at < count; at += step) x[at] = number;
}

// y[row] = x[row], `columns` numbers of rows that lie y_stride and x_stride apart. Grid: x over rows; 256 threads.
KERNEL(256) copy_columns(device act *y [[buffer(0)]], device const act *x [[buffer(1)]],
                         constant u32 &rows [[buffer(2)]], constant u32 &columns [[buffer(3)]],
                         constant u64 &y_stride [[buffer(4)]], constant u64 &x_stride [[buffer(5)]] WHERE) {
    Here here = HERE;
    for (u32 row = here.block.x; row < rows; row += here.blocks.x) {
        device act *to = y + row * y_stride;
        device const act *from = x + row * x_stride;
        for (u32 at = here.worker; at < columns; at += here.workers) put(to, at, get(from, at));
    }
}

// x[row][column] += bias[column]: x is [rows, columns], rows `stride` numbers apart. Grid: x over rows; 256 threads.
KERNEL(256) add_bias(device act *x [[buffer(0)]], device const float *bias [[buffer(1)]],
                     constant u32 &rows [[buffer(2)]], constant u32 &columns [[buffer(3)]],
                     constant u64 &stride [[buffer(4)]] WHERE) {
    Here here = HERE;
    for (u32 row = here.block.x; row < rows; row += here.blocks.x) {
        device act *line = x + row * stride;
        for (u32 at = here.worker; at < columns; at += here.workers) put(line, at, get(line, at) + bias[at]);
    }
}

// y[row][column] = x[row][column] · factors[row]; x is f32. Grid: x over rows; 256 threads.
KERNEL(256) scale_rows(device act *y [[buffer(0)]], device const float *x [[buffer(1)]],
                       device const float *factors [[buffer(2)]], constant u32 &rows [[buffer(3)]],
                       constant u32 &columns [[buffer(4)]] WHERE) {
    Here here = HERE;
    for (u32 row = here.block.x; row < rows; row += here.blocks.x) {
        u64 start = (u64)row * columns;
        float factor = factors[row];
        for (u32 at = here.worker; at < columns; at += here.workers) put(y, start + at, x[start + at] * factor);
    }
}

// y[row][column] = x[row][column] · factors[column]. Grid: x over rows; 256 threads.
KERNEL(256) scale_columns(device act *y [[buffer(0)]], device const act *x [[buffer(1)]],
                          device const float *factors [[buffer(2)]], constant u32 &rows [[buffer(3)]],
                          constant u32 &columns [[buffer(4)]] WHERE) {
    Here here = HERE;
    for (u32 row = here.block.x; row < rows; row += here.blocks.x) {
        u64 start = (u64)row * columns;
        for (u32 at = here.worker; at < columns; at += here.workers) put(y, start + at, get(x, start + at) * factors[at]);
    }
}

// ---- the gate of a feed-forward block ----

#define GELU_SLOPE 0.7978846f
#define GELU_CUBIC 0.044715f

// x·σ(x) and its derivative, or the tanh form of GELU and its; from the tail on the nearer side both keep their digits.
inline void activate(u32 activation, float x, thread float &value, thread float &slope) {
    if (activation == 0) {
        float open = sigmoid(x);
        value = x * open;
        slope = open * fma(x, 1.0f - open, 1.0f);
    } else {
        float square = x * x;
        float inner = GELU_SLOPE * fma(3.0f * GELU_CUBIC, square, 1.0f);
        float angle = 2.0f * GELU_SLOPE * x * fma(GELU_CUBIC, square, 1.0f);
        float tail = exp(-fabs(angle));
        float near = 1.0f / (1.0f + tail);
        float half_open = angle < 0.0f ? tail * near : near;
        value = x * half_open;
        slope = fma(2.0f * x * inner, tail * near * near, half_open);
    }
}

// y = activation(gate) · up; 0 is SiLU, 1 GELU in its tanh form. y is [rows, columns], contiguous; gate and up have rows
// `stride` apart. Grid: x over rows; 256 threads.
KERNEL(256) gated(device act *y [[buffer(0)]], device const act *gate [[buffer(1)]], device const act *up [[buffer(2)]],
                  constant u32 &rows [[buffer(3)]], constant u32 &columns [[buffer(4)]],
                  constant u64 &stride [[buffer(5)]], constant u32 &activation [[buffer(6)]] WHERE) {
    Here here = HERE;
    for (u32 row = here.block.x; row < rows; row += here.blocks.x) {
        u64 to = (u64)row * columns, from = row * stride;
        for (u32 at = here.worker; at < columns; at += here.workers) {
            float value, slope;
            activate(activation, get(gate, from + at), value, slope);
            put(y, to + at, value * get(up, from + at));
        }
    }
}

// dgate = dy·up·activation'(gate), dup = dy·activation(gate). dgate and dup may be gate and up: they have the same
// `stride`. dy is contiguous. Grid: x over rows; 256 threads.
KERNEL(256) gated_backward(device act *dgate [[buffer(0)]], device act *dup [[buffer(1)]],
                           device const act *dy [[buffer(2)]], device const act *gate [[buffer(3)]],
                           device const act *up [[buffer(4)]], constant u32 &rows [[buffer(5)]],
                           constant u32 &columns [[buffer(6)]], constant u64 &stride [[buffer(7)]],
                           constant u32 &activation [[buffer(8)]] WHERE) {
    Here here = HERE;
    for (u32 row = here.block.x; row < rows; row += here.blocks.x) {
        u64 seeds = (u64)row * columns, line = row * stride;
        for (u32 at = here.worker; at < columns; at += here.workers) {
            float value, slope, seed = get(dy, seeds + at), other = get(up, line + at);
            activate(activation, get(gate, line + at), value, slope);
            put(dgate, line + at, seed * other * slope);
            put(dup, line + at, seed * value);
        }
    }
}

// ---- sums over rows ----

// parts[part][column] = Σ x[row][column] over the rows of a part, in order; f32. Grid: x ⌈columns / 256⌉, y parts;
// 256 threads. Follow with `add_parts`.
KERNEL(256) sum_rows_in_parts(device float *parts [[buffer(0)]], device const act *x [[buffer(1)]],
                              constant u32 &rows [[buffer(2)]], constant u32 &columns [[buffer(3)]],
                              constant u32 &rows_of_part [[buffer(4)]] WHERE) {
    Here here = HERE;
    u32 column = here.block.x * here.workers + here.worker, first = here.block.y * rows_of_part;
    if (column >= columns) return;
    float sum = 0.0f;
    for (u32 row = first; row < least(rows, first + rows_of_part); ++row) sum += get(x, (u64)row * columns + column);
    parts[(u64)here.block.y * columns + column] = sum;
}

// sum[column] = keep · sum[column] + scale · Σ parts[part][column], parts in order. keep is 0 or 1; with 0 what `sum`
// held is not read. Grid: x ⌈columns / 256⌉; 256 threads.
KERNEL(256) add_parts(device float *sum [[buffer(0)]], device const float *parts [[buffer(1)]],
                      constant u32 &count [[buffer(2)]], constant u32 &columns [[buffer(3)]],
                      constant float &keep [[buffer(4)]], constant float &scale [[buffer(5)]] WHERE) {
    Here here = HERE;
    u32 column = here.block.x * here.workers + here.worker;
    if (column >= columns) return;
    float total = 0.0f;
    for (u32 part = 0; part < count; ++part) total += parts[(u64)part * columns + column];
    sum[column] = keep != 0.0f ? sum[column] + scale * total : scale * total;
}
