// Changes of activations at a site, and the sums of DoRA. Agrees with fused/patch.rs and fused/lengths.rs. Launch unless a
// kernel says otherwise: `rows` groups of 128 threads.

// y[row] = x[row] + marks[row] · vector: x, y [rows, width], vector [width] f32, marks [rows] f32, or null for all. y may
// be x. fused/patch.rs `add_vector`.
KERNEL(128) patch_add(device act *y [[buffer(0)]], device const act *x [[buffer(1)]],
                      device const float *vector [[buffer(2)]], device const float *marks [[buffer(3)]],
                      constant u32 &rows [[buffer(4)]], constant u32 &width [[buffer(5)]] WHERE) {
    Here here = HERE;
    float mark = THERE(3, marks) ? marks[here.block.x] : 1.0f;
    u64 start = (u64)here.block.x * width;
    for (u32 at = here.worker; at < width; at += here.workers) {
        put(y, start + at, fma(mark, vector[at], get(x, start + at)));
    }
}

// y[row] = x[row] + (value − x[row]·r)·r for r of length 1, [width] f32: removes what lies along r (value 0) or sets it.
// The gradient of both is the removal. y may be x. fused/patch.rs `remove_along`, `set_along`.
KERNEL(128) patch_along(device act *y [[buffer(0)]], device const act *x [[buffer(1)]],
                        device const float *direction [[buffer(2)]], constant float &value [[buffer(3)]],
                        constant u32 &rows [[buffer(4)]], constant u32 &width [[buffer(5)]] WHERE) {
    SHARED float parts[WARP];
    Here here = HERE;
    u64 start = (u64)here.block.x * width;
    float sum = 0.0f;
    for (u32 at = here.worker; at < width; at += here.workers) sum = fma(get(x, start + at), direction[at], sum);
    float missing = value - block_sum(sum, parts, here);
    for (u32 at = here.worker; at < width; at += here.workers) {
        put(y, start + at, fma(missing, direction[at], get(x, start + at)));
    }
}

// sums[row] = keep · sums[row] + scale · Σ a[row]·b[row]; a, b [rows, width] f32, sums [rows] f32. keep is 0 or 1.
// fused/lengths.rs `adapted_lengths`, row by row.
KERNEL(128) row_dots(device float *sums [[buffer(0)]], device const float *a [[buffer(1)]],
                     device const float *b [[buffer(2)]], constant u32 &rows [[buffer(3)]],
                     constant u32 &width [[buffer(4)]], constant float &keep [[buffer(5)]],
                     constant float &scale [[buffer(6)]] WHERE) {
    SHARED float parts[WARP];
    Here here = HERE;
    u64 start = (u64)here.block.x * width;
    float sum = 0.0f;
    for (u32 at = here.worker; at < width; at += here.workers) sum = fma(a[start + at], b[start + at], sum);
    sum = block_sum(sum, parts, here);
    if (here.worker == 0) {
        sums[here.block.x] = keep != 0.0f ? sums[here.block.x] + scale * sum : scale * sum;
    }
}

// y = √max(0, a + b): rounding can leave the square of a length a little below zero. fused/lengths.rs. Flat.
KERNEL(256) root_sums(device float *y [[buffer(0)]], device const float *a [[buffer(1)]],
                      device const float *b [[buffer(2)]], constant u64 &count [[buffer(3)]] WHERE) {
    Here here = HERE;
    u64 step = (u64)here.blocks.x * here.workers;
    for (u64 at = (u64)here.block.x * here.workers + here.worker; at < count; at += step) {
        float square = a[at] + b[at];
        y[at] = square > 0.0f ? sqrt(square) : 0.0f;
    }
}

// y = a / b. fused/lengths.rs `quotient`. Flat.
KERNEL(256) quotients(device float *y [[buffer(0)]], device const float *a [[buffer(1)]],
                      device const float *b [[buffer(2)]], constant u64 &count [[buffer(3)]] WHERE) {
    Here here = HERE;
    u64 step = (u64)here.blocks.x * here.workers;
    for (u64 at = (u64)here.block.x * here.workers + here.worker; at < count; at += step) y[at] = a[at] / b[at];
}
