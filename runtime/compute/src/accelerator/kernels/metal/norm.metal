// Root-mean-square normalisation of rows, and its gradients. Agrees with fused/norm.rs.
//
// y = x·r·(w + offset), r = 1/√(mean(x²) + ε); offset is 1 for Gemma, else 0. Rows are contiguous, of `width` numbers;
// weights and r are f32. A kernel comes twice: `…_narrow` with a SIMD group for a row (widths up to 512, heads), and
// with a group for a row. Launch: narrow: 256 threads, ⌈rows / 8⌉ groups; wide: 256 threads, `rows` groups. y may be x.

// The row of a thread, its number among those who share the row, and how many they are.
struct Share {
    u32 row, lane, lanes;
};

inline Share share_of(bool narrow, Here here) {
    Share wide_row = {here.block.x, here.worker, here.workers};
    Share narrow_row = {here.block.x * (here.workers / WARP) + here.worker / WARP, here.worker % WARP, WARP};
    return narrow ? narrow_row : wide_row;
}

// Σ over those who share a row.
inline float row_sum(bool narrow, float value, threadgroup float *parts, Here here) {
    return narrow ? warp_sum(value) : block_sum(value, parts, here);
}

inline void norm_forward(bool narrow, device act *y, device float *rates, device const act *x,
                         device const float *weight, u32 rows, u32 width, float epsilon, float offset,
                         threadgroup float *parts, Here here) {
    Share share = share_of(narrow, here);
    // A whole SIMD group leaves, or a whole group: nobody waits for it.
    if (share.row >= rows) return;
    u64 start = (u64)share.row * width;
    float squares = 0.0f;
    for (u32 at = share.lane; at < width; at += share.lanes) {
        float number = get(x, start + at);
        squares = fma(number, number, squares);
    }
    float rate = 1.0f / sqrt(row_sum(narrow, squares, parts, here) / (float)width + epsilon);
    for (u32 at = share.lane; at < width; at += share.lanes) {
        put(y, start + at, get(x, start + at) * rate * (weight[at] + offset));
    }
    if (share.lane == 0) rates[share.row] = rate;
}

// The norm of x, [rows, width]. rates: r of every row, [rows].
KERNEL(256) rms_norm(device act *y [[buffer(0)]], device float *rates [[buffer(1)]], device const act *x [[buffer(2)]],
                     device const float *weight [[buffer(3)]], constant u32 &rows [[buffer(4)]],
                     constant u32 &width [[buffer(5)]], constant float &epsilon [[buffer(6)]],
                     constant float &offset [[buffer(7)]] WHERE) {
    SHARED float parts[WARP];
    Here here = HERE;
    norm_forward(false, y, rates, x, weight, rows, width, epsilon, offset, parts, here);
}
KERNEL(256) rms_norm_narrow(device act *y [[buffer(0)]], device float *rates [[buffer(1)]],
                            device const act *x [[buffer(2)]], device const float *weight [[buffer(3)]],
                            constant u32 &rows [[buffer(4)]], constant u32 &width [[buffer(5)]],
                            constant float &epsilon [[buffer(6)]], constant float &offset [[buffer(7)]] WHERE) {
    SHARED float parts[WARP];
    Here here = HERE;
    norm_forward(true, y, rates, x, weight, rows, width, epsilon, offset, parts, here);
}

inline void norm_backward(bool narrow, device act *dx, device const act *dy, device const act *x,
                          device const float *weight, device const float *rates, u32 rows, u32 width, float offset,
                          threadgroup float *parts, Here here) {
    Share share = share_of(narrow, here);
    if (share.row >= rows) return;
    u64 start = (u64)share.row * width;
    float products = 0.0f;
    for (u32 at = share.lane; at < width; at += share.lanes) {
        products = fma(get(dy, start + at) * (weight[at] + offset), get(x, start + at), products);
    }
    float rate = rates[share.row];
    float pull = -(row_sum(narrow, products, parts, here) / (float)width) * rate * rate * rate;
    for (u32 at = share.lane; at < width; at += share.lanes) {
        put(dx, start + at, fma(get(x, start + at), pull, get(dy, start + at) * (weight[at] + offset) * rate));
    }
}

// dx = r·dy·w − x·r³·mean(dy·w·x). dx may be dy, not x.
KERNEL(256) rms_norm_backward(device act *dx [[buffer(0)]], device const act *dy [[buffer(1)]],
                              device const act *x [[buffer(2)]], device const float *weight [[buffer(3)]],
                              device const float *rates [[buffer(4)]], constant u32 &rows [[buffer(5)]],
                              constant u32 &width [[buffer(6)]], constant float &offset [[buffer(7)]] WHERE) {
    SHARED float parts[WARP];
    Here here = HERE;
    norm_backward(false, dx, dy, x, weight, rates, rows, width, offset, parts, here);
}
KERNEL(256) rms_norm_backward_narrow(device act *dx [[buffer(0)]], device const act *dy [[buffer(1)]],
                                     device const act *x [[buffer(2)]], device const float *weight [[buffer(3)]],
                                     device const float *rates [[buffer(4)]], constant u32 &rows [[buffer(5)]],
                                     constant u32 &width [[buffer(6)]], constant float &offset [[buffer(7)]] WHERE) {
    SHARED float parts[WARP];
    Here here = HERE;
    norm_backward(true, dx, dy, x, weight, rates, rows, width, offset, parts, here);
}

// parts[part][column] = Σ dy·x·r over the rows of a part, in order; `rates` null stands for ones. Grid: x ⌈width / 256⌉,
// y parts; 256 threads. Follow with `add_parts`.
KERNEL(256) rms_norm_weight_gradient(device float *parts [[buffer(0)]], device const act *dy [[buffer(1)]],
                                     device const act *x [[buffer(2)]], device const float *rates [[buffer(3)]],
                                     constant u32 &rows [[buffer(4)]], constant u32 &width [[buffer(5)]],
                                     constant u32 &rows_of_part [[buffer(6)]] WHERE) {
    Here here = HERE;
    u32 column = here.block.x * here.workers + here.worker, first = here.block.y * rows_of_part;
    bool with_rates = THERE(3, rates);
    if (column >= width) return;
    float sum = 0.0f;
    for (u32 row = first; row < least(rows, first + rows_of_part); ++row) {
        u64 at = (u64)row * width + column;
        sum = fma(get(dy, at) * (with_rates ? rates[row] : 1.0f), get(x, at), sum);
    }
    parts[(u64)here.block.y * width + column] = sum;
}
