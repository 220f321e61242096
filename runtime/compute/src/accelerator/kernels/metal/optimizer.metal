// AdamW over one flat buffer, the norm of the gradient and its clip. Agrees with optimizer.rs and parameters/flat.rs.
// All buffers f32 unless said; all passes "flat" as in elementwise.metal.

// Constants of one step.
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
KERNEL(256) adamw(device float *values [[buffer(0)]], device float *first [[buffer(1)]],
                  device float *second [[buffer(2)]], device const float *gradients [[buffer(3)]],
                  device act *shadow [[buffer(4)]], device const Step *step [[buffer(5)]],
                  device const float *factor [[buffer(6)]], constant u64 &count [[buffer(7)]],
                  device const u64 *word [[buffer(8)]] WHERE) {
    Here here = HERE;
    if (*word != ~(u64)0) return;
    float scale = THERE(6, factor) ? *factor : 1.0f;
    if (!finite(scale)) return;
    bool with_shadow = THERE(4, shadow);
    float beta1 = step->beta1, take1 = step->take1, beta2 = step->beta2, take2 = step->take2;
    float keep = step->keep, pace = step->pace, root_share = step->root, epsilon = step->epsilon;
    u64 stride = (u64)here.blocks.x * here.workers;
    for (u64 at = (u64)here.block.x * here.workers + here.worker; at < count; at += stride) {
        // Rounded one by one: the processor's loops fuse nothing here.
        float slope = times(gradients[at], scale);
        float m = plus(times(beta1, first[at]), times(take1, slope));
        float v = plus(times(beta2, second[at]), times(take2, times(slope, slope)));
        float below = plus(sqrt(v) / root_share, epsilon);
        float w = minus(times(keep, values[at]), times(pace, m) / below);
        first[at] = m, second[at] = v, values[at] = w;
        if (with_shadow) put(shadow, at, w);
    }
}

// Numbers of one part of the norm.
#define NORM_PART 65536

// parts[block] = Σ x² over part `block` of NORM_PART numbers, as a pair. Grid: x ⌈count / 65536⌉; 256 threads.
KERNEL(256) square_sums(device Pair *parts [[buffer(0)]], device const float *x [[buffer(1)]],
                        constant u64 &count [[buffer(2)]] WHERE) {
    SHARED Pair sums[WARP];
    Here here = HERE;
    u64 start = (u64)here.block.x * NORM_PART;
    u32 length = count - start < NORM_PART ? (u32)(count - start) : NORM_PART;
    Pair sum = pair(0.0f, 0.0f);
    for (u32 at = here.worker; at < length; at += here.workers) {
        float number = x[start + at];
        sum = plus(sum, exact_product(number, number));
    }
    sum = block_sum(sum, sums, here);
    if (here.worker == 0) put(parts, (u64)here.block.x, sum);
}

// norm[0] + norm[1] = √Σ parts. factor[0] = min(1, limit / (norm + 10⁻⁶)), and not a number for a norm that is not
// finite, with which `adamw` writes nothing: the caller reads the norm after the step and decides. limit 0 clips
// nothing. One group of 256 threads.
KERNEL(256) clip_factor(device float *norm [[buffer(0)]], device float *factor [[buffer(1)]],
                        device const Pair *parts [[buffer(2)]], constant u32 &count [[buffer(3)]],
                        constant float &limit [[buffer(4)]] WHERE) {
    SHARED Pair sums[WARP];
    Here here = HERE;
    Pair sum = pair(0.0f, 0.0f);
    u32 share = divided_up(count, here.workers);
    for (u32 at = here.worker * share; at < least(count, (here.worker + 1) * share); ++at) {
        sum = plus(sum, get(parts, (u64)at));
    }
    sum = block_sum(sum, sums, here);
    if (here.worker != 0) return;
    Pair length = root(sum);
    float ratio = divided(pair(limit, 0.0f), plus(length, 1e-6f)).high;
    bool whole = finite(length.high);
    norm[0] = length.high, norm[1] = whole ? length.low : 0.0f;
    *factor = !whole ? as_type<float>(0x7fc00000u) : limit > 0.0f && ratio < 1.0f ? ratio : 1.0f;
}

// x ← factor[0] · x, and x as it is where the factor is not finite. Flat.
KERNEL(256) scale_by(device float *x [[buffer(0)]], device const float *factor [[buffer(1)]],
                     constant u64 &count [[buffer(2)]] WHERE) {
    Here here = HERE;
    float scale = *factor;
    if (scale == 1.0f || !finite(scale)) return;
    u64 stride = (u64)here.blocks.x * here.workers;
    for (u64 at = (u64)here.block.x * here.workers + here.worker; at < count; at += stride) x[at] *= scale;
}
