// Rotary positions in the half-rotation form, and the way back. Agrees with fused/rope.rs.
//
// In each head, features i and i + half turn together; features past 2 · half stay. cos and sin are [known, half] f32,
// attention factor included. x is [tokens, heads · head_dim] with rows `x_stride` apart (so it may be a part of a fused
// product), y likewise; y may be x, in place.

// A thread turns N pairs of features. sign is 1 forward, −1 for the gradient. positions: [tokens]; one of `known` or above
// is a fault, and turns by 0. Launch: 256 threads; grid x: ⌈tokens · heads · half / N / 256⌉; each head's first thread
// copies the features past 2 · half.
template <int N>
DEVICE void turn(GLOBAL act *y, GLOBAL const act *x, GLOBAL const u32 *positions, GLOBAL const float *cosines,
                 GLOBAL const float *sines, u32 tokens, u32 heads, u32 head_dim, u32 half_dim, u64 x_stride,
                 u64 y_stride, u32 known, float sign, FAULT_WORD word, Here here) {
    u32 pieces = half_dim / N;
    u64 number = (u64)here.block.x * here.threads + here.index;
    u32 piece = (u32)(number % pieces), head = (u32)(number / pieces % heads);
    u64 token = number / pieces / heads;
    if (token >= tokens) return;
    u64 angle = (u64)inside(positions[token], known, word) * half_dim + piece * N;
    GLOBAL const act *from = x + token * x_stride + head * head_dim;
    GLOBAL act *to = y + token * y_stride + head * head_dim;
    Numbers<N> low = load<N>(from + piece * N), high = load<N>(from + half_dim + piece * N), first, second;
    Numbers<N> c = load<N>(cosines + angle), s = load<N>(sines + angle);
    UNROLL for (int i = 0; i < N; ++i) {
        first.at[i] = low.at[i] * c.at[i] - high.at[i] * s.at[i] * sign;
        second.at[i] = high.at[i] * c.at[i] + low.at[i] * s.at[i] * sign;
    }
    store(to + piece * N, first);
    store(to + half_dim + piece * N, second);
    if (piece == 0 && to != from) {
        for (u32 at = 2 * half_dim; at < head_dim; ++at) put(to, at, get(from, at));
    }
}

// `rope`: one pair a thread, any shape. `rope_eights`: eight pairs; half, head_dim and both strides are multiples of 8,
// all pointers on 16 bytes.
#define ROPE(name, pairs)                                                                                              \
    KERNEL(256) name(GLOBAL act *y, GLOBAL const act *x, GLOBAL const u32 *positions, GLOBAL const float *cosines,     \
                     GLOBAL const float *sines, NUMBER(u32) tokens, NUMBER(u32) heads, NUMBER(u32) head_dim,           \
                     NUMBER(u32) half_dim, NUMBER(u64) x_stride, NUMBER(u64) y_stride, NUMBER(u32) known,              \
                     NUMBER(float) sign, FAULT_WORD word WHERE) {                                                      \
        turn<pairs>(y, x, positions, cosines, sines, tokens, heads, head_dim, half_dim, x_stride, y_stride, known,     \
                    sign, word, HERE);                                                                                 \
    }

ROPE(rope, 1)
ROPE(rope_eights, 8)
