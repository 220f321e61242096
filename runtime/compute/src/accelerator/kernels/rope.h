// Rotary positions, and the way back. Agrees with fused/rope.rs.
//
// In each head, features i · step and i · step + apart turn together, for i below half: i and i + half, or the adjacent
// ones 2i and 2i + 1. Features past 2 · half stay. cos and sin are [known, half] f32, attention factor included. x is
// [tokens, heads · head_dim] with rows `x_stride` apart (so it may be a part of a fused product), y likewise; y may be
// x, in place.

// A thread turns N pairs of features. sign is 1 forward, −1 for the gradient. positions: [tokens]; one of `known` or above
// is a fault, and turns by 0. Launch: 256 threads; grid x: ⌈tokens · heads · half / N / 256⌉; each head's first thread
// copies the features past 2 · half.
template <int N>
DEVICE void turn(GLOBAL act *y, GLOBAL const act *x, GLOBAL const u32 *positions, GLOBAL const float *cosines,
                 GLOBAL const float *sines, u32 tokens, u32 heads, u32 head_dim, u32 half_dim, u32 step, u32 apart,
                 u64 x_stride, u64 y_stride, u32 known, float sign, FAULT_WORD word, Here here) {
    u32 pieces = half_dim / N;
    u64 number = (u64)here.block.x * here.threads + here.index;
    u32 piece = (u32)(number % pieces), head = (u32)(number / pieces % heads);
    u64 token = number / pieces / heads;
    if (token >= tokens) return;
    u64 angle = (u64)inside(positions[token], known, word) * half_dim + piece * N;
    GLOBAL const act *from = x + token * x_stride + head * head_dim;
    GLOBAL act *to = y + token * y_stride + head * head_dim;
    u32 at = piece * N * step;
    Numbers<N> low = load<N>(from + at), high = load<N>(from + at + apart), first, second;
    Numbers<N> c = load<N>(cosines + angle), s = load<N>(sines + angle);
    UNROLL for (int i = 0; i < N; ++i) {
        first.at[i] = low.at[i] * c.at[i] - high.at[i] * s.at[i] * sign;
        second.at[i] = high.at[i] * c.at[i] + low.at[i] * s.at[i] * sign;
    }
    store(to + at, first);
    store(to + at + apart, second);
    if (piece == 0 && to != from) {
        for (u32 rest = 2 * half_dim; rest < head_dim; ++rest) put(to, rest, get(from, rest));
    }
}

// `rope`: one pair a thread, any shape. `rope_eights`: eight pairs; step is 1; half, head_dim and both strides are
// multiples of 8, all pointers on 16 bytes.
#define ROPE(name, pairs)                                                                                              \
    KERNEL(256) name(GLOBAL act *y, GLOBAL const act *x, GLOBAL const u32 *positions, GLOBAL const float *cosines,     \
                     GLOBAL const float *sines, NUMBER(u32) tokens, NUMBER(u32) heads, NUMBER(u32) head_dim,           \
                     NUMBER(u32) half_dim, NUMBER(u32) step, NUMBER(u32) apart, NUMBER(u64) x_stride,                  \
                     NUMBER(u64) y_stride, NUMBER(u32) known,                                                          \
                     NUMBER(float) sign, FAULT_WORD word WHERE) {                                                      \
        turn<pairs>(y, x, positions, cosines, sines, tokens, heads, head_dim, half_dim, step, apart, x_stride,         \
                    y_stride, known, sign, word, HERE);                                                                \
    }

ROPE(rope, 1)
ROPE(rope_eights, 8)
