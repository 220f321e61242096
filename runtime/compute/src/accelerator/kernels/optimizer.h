// AdamW over one flat buffer, the norm of the gradient and its clip. Agrees with optimizer.rs and parameters/flat.rs,
// the update bit for bit. All buffers f32 unless said; all passes "flat" as in elementwise.h.

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
// `factor`: what `clip_factor` left, or null for 1. `operand_copy`: where not null, w in the type of activations too,
// for products. Nothing is written if the fault word is set or the factor is not finite: a broken step changes no
// weight. Gradients stay as they are. Flat.
KERNEL(256) adamw(GLOBAL float *values, GLOBAL float *first, GLOBAL float *second, GLOBAL const float *gradients,
                  GLOBAL act *operand_copy, GLOBAL const Step *step, GLOBAL const float *factor, NUMBER(u64) count,
                  GLOBAL const u64 *word WHERE) {
    if (*word != ~(u64)0) return;
    float scale = THERE(6, factor) ? *factor : 1.0f;
    if (!is_finite(scale)) return;
    bool with_operand_copy = THERE(4, operand_copy);
    float beta1 = step->beta1, take1 = step->take1, beta2 = step->beta2, take2 = step->take2;
    float keep = step->keep, pace = step->pace, root_share = step->root, epsilon = step->epsilon;
    EVERYWHERE(at, N, count, are_aligned(values, first, second, gradients, operand_copy), {
        Numbers<N> w = load<N>(values + at), m = load<N>(first + at), v = load<N>(second + at);
        Numbers<N> g = load<N>(gradients + at);
        UNROLL for (int i = 0; i < N; ++i) {
            // Rounded one by one: the processor's loops fuse nothing here.
            float slope = times(g.at[i], scale);
            m.at[i] = plus(times(beta1, m.at[i]), times(take1, slope));
            v.at[i] = plus(times(beta2, v.at[i]), times(take2, times(slope, slope)));
            float below = plus(sqrtf(v.at[i]) / root_share, epsilon);
            w.at[i] = minus(times(keep, w.at[i]), times(pace, m.at[i]) / below);
        }
        store(first + at, m);
        store(second + at, v);
        store(values + at, w);
        if (with_operand_copy) store(operand_copy + at, w);
    })
}

// Numbers of one part of the norm.
#define NORM_PART 65536

// parts[block] = Σ x² over part `block` of NORM_PART numbers. Grid: x ⌈count / 65536⌉; 256 threads.
KERNEL(256) square_sums(GLOBAL Double *parts, GLOBAL const float *x, NUMBER(u64) count WHERE) {
    SHARED Double sums[WARP];
    Here here = HERE;
    u64 start = (u64)here.block.x * NORM_PART;
    u32 length = count - start < NORM_PART ? (u32)(count - start) : NORM_PART;
    Double sum = to_double(0.0f);
    ALONG(at, N, length, are_aligned(x + start), here, {
        Numbers<N> numbers = load<N>(x + start + at);
        UNROLL for (int i = 0; i < N; ++i) sum = plus(sum, product(numbers.at[i], numbers.at[i]));
    })
    sum = block_sum(sum, sums, here);
    if (here.index == 0) put(parts, here.block.x, sum);
}

// norm[0] + norm[1] = √Σ parts: two floats, since not every machine has doubles. factor[0] = min(1, limit / (norm +
// 10⁻⁶)), and not a number for a norm that is not finite, with which `adamw` writes nothing: the caller reads the norm
// after the step and decides. limit 0 clips nothing. One block of 256 threads.
KERNEL(256) clip_factor(GLOBAL float *norm, GLOBAL float *factor, GLOBAL const Double *parts, NUMBER(u32) count,
                        NUMBER(float) limit WHERE) {
    SHARED Double sums[WARP];
    Here here = HERE;
    Double sum = to_double(0.0f);
    u32 share = div_ceil(count, here.threads);
    for (u32 at = here.index * share; at < least(count, (here.index + 1) * share); ++at) sum = plus(sum, get(parts, at));
    sum = block_sum(sum, sums, here);
    if (here.index != 0) return;
    Double length = root(sum);
    float ratio = rounded(divided(to_double(limit), plus(length, (Factor)1e-6)));
    bool whole = is_finite(rounded(length));
    norm[0] = rounded(length), norm[1] = whole ? rest_of(length) : 0.0f;
    *factor = !whole ? float_of(0x7fc00000u) : limit > 0.0f && ratio < 1.0f ? ratio : 1.0f;
}
