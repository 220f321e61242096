// AdamW over one flat buffer, the norm of the gradient and its clip. Agrees with optimizer.rs and parameters/flat.rs,
// the update bit for bit. All buffers f32 unless said; all passes "flat" as in elementwise.cu.

// Constants of one step, in device memory so that a captured graph can be run again with others.
struct Step {
    float beta1, take1; // β₁, 1 − β₁
    float beta2, take2; // β₂, 1 − β₂
    float keep;         // 1 − rate · λ
    float pace;         // rate / (1 − β₁ᵗ)
    float root;         // √(1 − β₂ᵗ)
    float epsilon;
};

// m ← β₁m + (1−β₁)g; v ← β₂v + (1−β₂)g²; w ← keep·w − pace·m / (√v / root + ε), with g = factor · gradient.
// `factor`: what `clip_factor` left, or null for 1. `shadow`: where not null, w in the type of activations too, for
// products. Nothing is written if the fault word is set or the factor is not finite: a broken step changes no weight.
// Gradients stay as they are. Flat.
KERNEL void adamw(float *values, float *first, float *second, const float *gradients, act *shadow, const Step *step,
                  const float *factor, u64 count, const u64 *word) {
    if (*word != ~0ull) return;
    Step s = *step;
    float scale = factor ? *factor : 1.0f;
    if (!finite(scale)) return;
    bool eights = even(values) && even(first) && even(second) && even(gradients) && even(shadow);
    everywhere(count, eights, [&](u64 at, auto n) {
        float w[n.value], m[n.value], v[n.value], g[n.value];
        load(w, values + at);
        load(m, first + at);
        load(v, second + at);
        load(g, gradients + at);
#pragma unroll
        for (int i = 0; i < n.value; ++i) {
            // Rounded one by one: the processor's loops fuse nothing here.
            float slope = __fmul_rn(g[i], scale);
            m[i] = __fadd_rn(__fmul_rn(s.beta1, m[i]), __fmul_rn(s.take1, slope));
            v[i] = __fadd_rn(__fmul_rn(s.beta2, v[i]), __fmul_rn(s.take2, __fmul_rn(slope, slope)));
            float below = __fadd_rn(__fdiv_rn(__fsqrt_rn(v[i]), s.root), s.epsilon);
            w[i] = __fsub_rn(__fmul_rn(s.keep, w[i]), __fdiv_rn(__fmul_rn(s.pace, m[i]), below));
        }
        store(first + at, m);
        store(second + at, v);
        store(values + at, w);
        if (shadow) store(shadow + at, w);
    });
}

// Numbers of one part of the norm.
#define NORM_PART 65536

// parts[block] = Σ x² over part `block` of NORM_PART numbers, in f64. Grid: x ⌈count / 65536⌉; 256 threads.
KERNEL void square_sums(double *parts, const float *x, u64 count) {
    u64 start = (u64)blockIdx.x * NORM_PART;
    u32 length = count - start < NORM_PART ? (u32)(count - start) : NORM_PART;
    double sum = 0.0;
    along(length, length % 8 == 0 && even(x + start), threadIdx.x, blockDim.x, [&](u32 at, auto n) {
        float numbers[n.value];
        load(numbers, x + start + at);
#pragma unroll
        for (int i = 0; i < n.value; ++i) sum += (double)numbers[i] * (double)numbers[i];
    });
    sum = block_sum(sum);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

// norm[0] + norm[1] = √Σ parts: two floats, since not every machine has doubles. factor[0] = min(1, limit / (norm +
// 10⁻⁶)), and not a number for a norm that is not finite, with which `adamw` writes nothing: the caller reads the norm
// after the step and decides. limit 0 clips nothing. One block of 256 threads.
KERNEL void clip_factor(float *norm, float *factor, const double *parts, u32 count, float limit) {
    double sum = 0.0;
    u32 share = divided_up(count, blockDim.x);
    for (u32 at = threadIdx.x * share; at < least(count, (threadIdx.x + 1) * share); ++at) sum += parts[at];
    sum = block_sum(sum);
    if (threadIdx.x != 0) return;
    double length = sqrt(sum), ratio = (double)limit / (length + 1e-6);
    float high = (float)length;
    bool whole = finite(high);
    norm[0] = high, norm[1] = whole ? (float)(length - (double)high) : 0.0f;
    *factor = !whole ? __int_as_float(0x7fc00000) : limit > 0.0f && ratio < 1.0 ? (float)ratio : 1.0f;
}

// x ← factor[0] · x, and x as it is where the factor is not finite. Flat.
KERNEL void scale_by(float *x, const float *factor, u64 count) {
    float scale = *factor;
    if (scale == 1.0f || !finite(scale)) return;
    everywhere(count, even(x), [&](u64 at, auto n) {
        float numbers[n.value];
        load(numbers, x + at);
#pragma unroll
        for (int i = 0; i < n.value; ++i) numbers[i] *= scale;
        store(x + at, numbers);
    });
}
