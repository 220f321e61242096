// Rotary positions in the half-rotation form, and the way back. Agrees with fused/rope.rs.
//
// In each head, features i and i + half turn together; features past 2 · half stay. cos and sin are [known, half] f32,
// attention factor included. x is [tokens, heads · head_dim] with rows `x_stride` apart (so it may be a part of a fused
// product), y likewise; y may be x, in place.

// sign is 1 forward, −1 for the gradient. positions: [tokens]; one of `known` or above is a fault, and turns by 0.
// Launch: 256 threads; grid x: ⌈tokens · heads · pieces / 256⌉ where pieces = half / 8 if half, head_dim, the strides
// and the pointers allow eights, else half; plus nothing for the tail, which each head's first piece copies.
template <int N>
DEVICE void turn(act *y, const act *x, const u32 *positions, const float *cos, const float *sin, u32 tokens, u32 heads,
                 u32 head_dim, u32 half, u64 x_stride, u64 y_stride, u32 known, float sign, u64 *word, u32 place) {
    u32 pieces = half / N;
    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u32 piece = (u32)(thread % pieces), head = (u32)(thread / pieces % heads);
    u64 token = thread / pieces / heads;
    if (token >= tokens) return;
    u64 angle = (u64)inside(positions[token], known, word, place) * half + piece * N;
    const act *from = x + token * x_stride + head * head_dim;
    act *to = y + token * y_stride + head * head_dim;
    float low[N], high[N], c[N], s[N], first[N], second[N];
    load(low, from + piece * N);
    load(high, from + half + piece * N);
    load(c, cos + angle);
    load(s, sin + angle);
#pragma unroll
    for (int i = 0; i < N; ++i) {
        first[i] = low[i] * c[i] - high[i] * s[i] * sign;
        second[i] = high[i] * c[i] + low[i] * s[i] * sign;
    }
    store(to + piece * N, first);
    store(to + half + piece * N, second);
    if (piece == 0 && to != from) {
        for (u32 at = 2 * half; at < head_dim; ++at) to[at] = from[at];
    }
}

// One pair a thread, any shape. `pieces` = half.
KERNEL void rope(act *y, const act *x, const u32 *positions, const float *cos, const float *sin, u32 tokens, u32 heads,
                 u32 head_dim, u32 half, u64 x_stride, u64 y_stride, u32 known, float sign, u64 *word, u32 place) {
    turn<1>(y, x, positions, cos, sin, tokens, heads, head_dim, half, x_stride, y_stride, known, sign, word, place);
}

// Eight pairs a thread: half, head_dim and both strides are multiples of 8, all pointers on 16 bytes. `pieces` = half/8.
KERNEL void rope_eights(act *y, const act *x, const u32 *positions, const float *cos, const float *sin, u32 tokens,
                        u32 heads, u32 head_dim, u32 half, u64 x_stride, u64 y_stride, u32 known, float sign, u64 *word,
                        u32 place) {
    turn<8>(y, x, positions, cos, sin, tokens, heads, head_dim, half, x_stride, y_stride, known, sign, word, place);
}
