// Changes of activations at a site, and the row sums of DoRA. Agrees with the model's decoder/hook.rs and
// decoder/magnitude.rs. Launch of all: `rows` blocks of 128 threads, no dynamic shared memory.

// x[row] += marks[row] · vector: x [rows, width], vector [width] f32, marks [rows] f32, or null for all. hook.rs `Add`.
KERNEL void patch_add(act *x, const float *vector, const float *marks, u32 rows, u32 width) {
    u32 row = blockIdx.x;
    float mark = marks ? marks[row] : 1.0f;
    act *line = x + (u64)row * width;
    if (mark == 0.0f) return;
    along(width, width % 8 == 0 && even(line) && even(vector), threadIdx.x, blockDim.x, [&](u32 at, auto n) {
        float numbers[n.value], more[n.value];
        load(numbers, line + at);
        load(more, vector + at);
#pragma unroll
        for (int i = 0; i < n.value; ++i) numbers[i] = fmaf(mark, more[i], numbers[i]);
        store(line + at, numbers);
    });
}

// x[row] += (value − x[row]·r)·r for r of length 1, [width] f32: removes what lies along r (value 0) or sets it. The
// gradient of both is the removal. hook.rs `Remove`, `Set`.
KERNEL void patch_along(act *x, const float *direction, float value, u32 rows, u32 width) {
    act *line = x + (u64)blockIdx.x * width;
    bool eights = width % 8 == 0 && even(line) && even(direction);
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
        store(line + at, numbers);
    });
}

// sums[row] = keep · sums[row] + scale · Σ a[row]·b[row]; a, b [rows, width] f32, sums [rows] f32. keep is 0 or 1.
// magnitude.rs `adapted_norm`, row by row.
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
