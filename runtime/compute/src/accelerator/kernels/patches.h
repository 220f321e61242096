// Changes of activations at a site, and the sums of DoRA. Agrees with fused/patch.rs and fused/lengths.rs. Launch unless a
// kernel says otherwise: `rows` blocks of 128 threads.

// y[row] = x[row] + marks[row] · vector: x, y [rows, width], vector [width] f32, marks [rows] f32, or null for all. y may
// be x. fused/patch.rs `add_vector`.
KERNEL(128) patch_add(GLOBAL act *y, GLOBAL const act *x, GLOBAL const float *vector, GLOBAL const float *marks,
                      NUMBER(u32) rows, NUMBER(u32) width WHERE) {
    Here here = HERE;
    float mark = THERE(3, marks) ? marks[here.block.x] : 1.0f;
    GLOBAL const act *line = x + (u64)here.block.x * width;
    GLOBAL act *to = y + (u64)here.block.x * width;
    ALONG(at, N, width, are_aligned(line, to, vector), here, {
        store(to + at, fused(mark, load<N>(vector + at), load<N>(line + at)));
    })
}

// y[row] = x[row] + (value − x[row]·r)·r for r of length 1, [width] f32: removes what lies along r (value 0) or sets it.
// The gradient of both is the removal. y may be x. fused/patch.rs `remove_along`, `set_along`.
KERNEL(128) patch_along(GLOBAL act *y, GLOBAL const act *x, GLOBAL const float *direction, NUMBER(float) value,
                        NUMBER(u32) rows, NUMBER(u32) width WHERE) {
    SHARED float parts[WARP];
    Here here = HERE;
    GLOBAL const act *line = x + (u64)here.block.x * width;
    GLOBAL act *to = y + (u64)here.block.x * width;
    float sum = 0.0f;
    ALONG(at, N, width, are_aligned(line, to, direction), here, {
        sum = dot(load<N>(line + at), load<N>(direction + at), sum);
    })
    float missing = value - block_sum(sum, parts, here);
    ALONG(at, N, width, are_aligned(line, to, direction), here, {
        store(to + at, fused(missing, load<N>(direction + at), load<N>(line + at)));
    })
}

// sums[row] = keep · sums[row] + scale · Σ a[row]·b[row]; a, b [rows, width] f32, sums [rows] f32. keep is 0 or 1.
// fused/lengths.rs `adapted_lengths`, row by row.
KERNEL(128) row_dots(GLOBAL float *sums, GLOBAL const float *a, GLOBAL const float *b, NUMBER(u32) rows,
                     NUMBER(u32) width, NUMBER(float) keep, NUMBER(float) scale WHERE) {
    SHARED float parts[WARP];
    Here here = HERE;
    u32 row = here.block.x;
    GLOBAL const float *left = a + (u64)row * width, *right = b + (u64)row * width;
    float sum = 0.0f;
    ALONG(at, N, width, are_aligned(left, right), here, { sum = dot(load<N>(left + at), load<N>(right + at), sum); })
    sum = block_sum(sum, parts, here);
    if (here.index == 0) sums[row] = keep != 0.0f ? sums[row] + scale * sum : scale * sum;
}

// y = √max(0, a + b): rounding can leave the square of a length a little below zero. fused/lengths.rs. Flat.
KERNEL(256) root_sums(GLOBAL float *y, GLOBAL const float *a, GLOBAL const float *b, NUMBER(u64) count WHERE) {
    EVERYWHERE(at, N, count, are_aligned(y, a, b), {
        Numbers<N> sums = sum_of(load<N>(a + at), load<N>(b + at));
        UNROLL for (int i = 0; i < N; ++i) sums.at[i] = sqrtf(fmaxf(sums.at[i], 0.0f));
        store(y + at, sums);
    })
}

// y = a / b. fused/lengths.rs `quotient`. Flat.
KERNEL(256) quotients(GLOBAL float *y, GLOBAL const float *a, GLOBAL const float *b, NUMBER(u64) count WHERE) {
    EVERYWHERE(at, N, count, are_aligned(y, a, b), {
        Numbers<N> left = load<N>(a + at), right = load<N>(b + at);
        UNROLL for (int i = 0; i < N; ++i) left.at[i] /= right.at[i];
        store(y + at, left);
    })
}
