// Rotary positions in the half-rotation form, and the way back. Agrees with fused/rope.rs.
//
// In each head, features i and i + half turn together; features past 2 · half stay. cos and sin are [known, half] f32,
// attention factor included. x is [tokens, heads · head_dim] with rows `x_stride` apart, y likewise; y may be x, in place.

// sign is 1 forward, −1 for the gradient. positions: [tokens]; one of `known` or above is a fault, and turns by 0. A
// thread turns N pairs. Launch: 256 threads; grid x: ⌈tokens · heads · half / N / 256⌉; each head's first thread copies
// the tail.
template <u32 N>
void turn(device act *y, device const act *x, device const u32 *positions, device const float *cosines,
          device const float *sines, u32 tokens, u32 heads, u32 head_dim, u32 half_dim, u64 x_stride, u64 y_stride,
          u32 known, float sign, FAULT_WORD word, u32 place, Here here) {
    u32 pieces = half_dim / N;
    u64 number = (u64)here.block.x * here.workers + here.worker;
    u32 piece = (u32)(number % pieces), head = (u32)(number / pieces % heads);
    u64 token = number / pieces / heads;
    if (token >= tokens) return;
    u64 angle = (u64)inside(positions[token], known, word, place) * half_dim + piece * N;
    u64 from = token * x_stride + head * head_dim, to = token * y_stride + head * head_dim;
    for (u32 i = 0; i < N; ++i) {
        u32 at = piece * N + i;
        float low = get(x, from + at), high = get(x, from + half_dim + at);
        float c = cosines[angle + i], s = sines[angle + i];
        put(y, to + at, low * c - high * s * sign);
        put(y, to + half_dim + at, high * c + low * s * sign);
    }
    if (piece == 0) {
        for (u32 at = 2 * half_dim; at < head_dim; ++at) put(y, to + at, get(x, from + at));
    }
}

// One pair a thread, any shape.
KERNEL(256) rope(device act *y [[buffer(0)]], device const act *x [[buffer(1)]],
                 device const u32 *positions [[buffer(2)]], device const float *cos [[buffer(3)]],
                 device const float *sin [[buffer(4)]], constant u32 &tokens [[buffer(5)]],
                 constant u32 &heads [[buffer(6)]], constant u32 &head_dim [[buffer(7)]],
                 constant u32 &half_dim [[buffer(8)]], constant u64 &x_stride [[buffer(9)]],
                 constant u64 &y_stride [[buffer(10)]], constant u32 &known [[buffer(11)]],
                 constant float &sign [[buffer(12)]], FAULT_WORD word [[buffer(13)]],
                 constant u32 &place [[buffer(14)]] WHERE) {
    Here here = HERE;
    turn<1>(y, x, positions, cos, sin, tokens, heads, head_dim, half_dim, x_stride, y_stride, known, sign, word, place,
            here);
}

// Eight pairs a thread: half is a multiple of 8.
KERNEL(256) rope_eights(device act *y [[buffer(0)]], device const act *x [[buffer(1)]],
                        device const u32 *positions [[buffer(2)]], device const float *cos [[buffer(3)]],
                        device const float *sin [[buffer(4)]], constant u32 &tokens [[buffer(5)]],
                        constant u32 &heads [[buffer(6)]], constant u32 &head_dim [[buffer(7)]],
                        constant u32 &half_dim [[buffer(8)]], constant u64 &x_stride [[buffer(9)]],
                        constant u64 &y_stride [[buffer(10)]], constant u32 &known [[buffer(11)]],
                        constant float &sign [[buffer(12)]], FAULT_WORD word [[buffer(13)]],
                        constant u32 &place [[buffer(14)]] WHERE) {
    Here here = HERE;
    turn<8>(y, x, positions, cos, sin, tokens, heads, head_dim, half_dim, x_stride, y_stride, known, sign, word, place,
            here);
}
