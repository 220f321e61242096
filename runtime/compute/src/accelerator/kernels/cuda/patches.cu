// Changes of activations at a site, and the sums of DoRA. Agrees with fused/patch.rs and fused/lengths.rs. Launch unless a
// kernel says otherwise: `rows` blocks of 128 threads, no dynamic shared memory.

// y[row] = x[row] + marks[row] · vector: x, y [rows, width], vector [width] f32, marks [rows] f32, or null for all. y may
// be x. fused/patch.rs `add_vector`.
KERNEL void patch_add(act *y, const act *x, const float *vector, const float *marks, u32 rows, u32 width) {
    u32 row = blockIdx.x;
    float mark = marks ? marks[row] : 1.0f;
    const act *line = x + (u64)row * width;
    act *to = y + (u64)row * width;
    bool eights = width % 8 == 0 && even(line) && even(to) && even(vector);
    along(width, eights, threadIdx.x, blockDim.x, [&](u32 at, auto n) {
        float numbers[n.value], more[n.value];
        load(numbers, line + at);
        load(more, vector + at);
#pragma unroll
        for (int i = 0; i < n.value; ++i) numbers[i] = fmaf(mark, more[i], numbers[i]);
        store(to + at, numbers);
    });
}

// y[row] = x[row] + (value − x[row]·r)·r for r of length 1, [width] f32: removes what lies along r (value 0) or sets it.
// The gradient of both is the removal. y may be x. fused/patch.rs `remove_along`, `set_along`.
KERNEL void patch_along(act *y, const act *x, const float *direction, float value, u32 rows, u32 width) {
    const act *line = x + (u64)blockIdx.x * width;
    act *to = y + (u64)blockIdx.x * width;
    bool eights = width % 8 == 0 && even(line) && even(to) && even(direction);
    float sum = 0.0f;
    along(width, eights, threadIdx.x, blockDim.x, [&](u32 at, auto n) {
        float numbers[n.value], other[n.value];
        load(numbers, line + at);
        load(other, direction + at);
#pragma unroll
        for (int i = 0; i < n.value; ++i) sum = fmaf(numbers[i], other[i], sum);
    });
    float missing = value - block_sum(sum);
    along(width, eights, threadIdx.x, blockDim.x, [&](u32 at, auto n) {
        float numbers[n.value], other[n.value];
        load(numbers, line + at);
        load(other, direction + at);
#pragma unroll
        for (int i = 0; i < n.value; ++i) numbers[i] = fmaf(missing, other[i], numbers[i]);
        store(to + at, numbers);
    });
}

// sums[row] = keep · sums[row] + scale · Σ a[row]·b[row]; a, b [rows, width] f32, sums [rows] f32. keep is 0 or 1.
// fused/lengths.rs `adapted_lengths`, row by row.
KERNEL void row_dots(float *sums, const float *a, const float *b, u32 rows, u32 width, float keep, float scale) {
    u32 row = blockIdx.x;
    const float *left = a + (u64)row * width, *right = b + (u64)row * width;
    float sum = 0.0f;
    along(width, width % 8 == 0 && even(left) && even(right), threadIdx.x, blockDim.x, [&](u32 at, auto n) {
        float numbers[n.value], other[n.value];
        load(numbers, left + at);
        load(other, right + at);
#pragma unroll
        for (int i = 0; i < n.value; ++i) sum = fmaf(numbers[i], other[i], sum);
    });
    sum = block_sum(sum);
    if (threadIdx.x == 0) sums[row] = keep != 0.0f ? sums[row] + scale * sum : scale * sum;
}

// y = √max(0, a + b): rounding can leave the square of a length a little below zero. fused/lengths.rs. Flat.
KERNEL void root_sums(float *y, const float *a, const float *b, u64 count) {
    everywhere(count, even(y) && even(a) && even(b), [&](u64 at, auto n) {
        float left[n.value], right[n.value];
        load(left, a + at);
        load(right, b + at);
#pragma unroll
        for (int i = 0; i < n.value; ++i) left[i] = sqrtf(fmaxf(left[i] + right[i], 0.0f));
        store(y + at, left);
    });
}

// y = a / b. fused/lengths.rs `quotient`. Flat.
KERNEL void quotients(float *y, const float *a, const float *b, u64 count) {
    everywhere(count, even(y) && even(a) && even(b), [&](u64 at, auto n) {
        float left[n.value], right[n.value];
        load(left, a + at);
        load(right, b + at);
#pragma unroll
        for (int i = 0; i < n.value; ++i) left[i] /= right[i];
        store(y + at, left);
    });
}
