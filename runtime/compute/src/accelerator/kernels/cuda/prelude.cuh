// CUDA's side of what `dialect.h` lists: kernels and their arguments, kinds of memory, loops by eights, f64, the fault
// word. machine.cuh, in front, has what is written in PTX.

// A pointer of CUDA may lead to any kind of memory.
#define GLOBAL
#define LOCAL
#define THREAD
#define MEMBER static __device__ __forceinline__
#define SHARED __shared__
#define UNROLL _Pragma("unroll")
#define UNROLL_BY_8 _Pragma("unroll 8")

#define WHERE
#define NUMBER(T) T
#define THERE(index, name) ((name) != nullptr)
#define HERE                                                                                                           \
    {{blockIdx.x, blockIdx.y, blockIdx.z}, {gridDim.x, gridDim.y, gridDim.z}, threadIdx.x, blockDim.x}

// Likeliest words that `choose` keeps in shared memory.
#define NEAREST 4096u

DEVICE float float_of(u32 bits) { return __uint_as_float(bits); }
DEVICE u32 bits_of(float number) { return __float_as_uint(number); }
DEVICE u32 count_bits(u32 word) { return (u32)__popc(word); }
DEVICE u32 lowest_bit(u32 word) { return (u32)__ffs((int)word) - 1; }
DEVICE u32 highest_bit(u32 word) { return 31 - (u32)__clz((int)word); }

// As the processor rounds: no product is fused with a sum.
DEVICE float times(float a, float b) { return __fmul_rn(a, b); }
DEVICE float plus(float a, float b) { return __fadd_rn(a, b); }
DEVICE float minus(float a, float b) { return __fsub_rn(a, b); }

// A number of 16 bits at an even address.
DEVICE float half_at(const u8 *bytes) {
    f16 half = {*(const u16 *)bytes};
    return wide(half);
}

// ---- numbers in memory: one, or eight that begin on a boundary of 16 bytes ----

template <int N> struct Numbers;

template <typename T> DEVICE float get(const T *from, u64 at) { return wide(from[at]); }
template <typename T> DEVICE void put(T *to, u64 at, float number) { to[at] = narrow<T>(number); }
template <typename T> DEVICE T local_get(const T *from, u32 at) { return from[at]; }
template <typename T> DEVICE void local_put(T *to, u32 at, T value) { to[at] = value; }

DEVICE void load_eight(float (&into)[8], const float *from) {
    float4 low = *(const float4 *)from, high = *(const float4 *)(from + 4);
    into[0] = low.x, into[1] = low.y, into[2] = low.z, into[3] = low.w;
    into[4] = high.x, into[5] = high.y, into[6] = high.z, into[7] = high.w;
}

template <typename T> DEVICE void load_eight(float (&into)[8], const T *from) {
    uint4 words = *(const uint4 *)from;
    u32 all[4] = {words.x, words.y, words.z, words.w};
    UNROLL for (int i = 0; i < 4; ++i) into[2 * i] = first_of<T>(all[i]), into[2 * i + 1] = second_of<T>(all[i]);
}

DEVICE void store_eight(float *to, const float (&from)[8]) {
    *(float4 *)to = make_float4(from[0], from[1], from[2], from[3]);
    *(float4 *)(to + 4) = make_float4(from[4], from[5], from[6], from[7]);
}

template <typename T> DEVICE void store_eight(T *to, const float (&from)[8]) {
    *(uint4 *)to = make_uint4(pack<T>(from[0], from[1]), pack<T>(from[2], from[3]), pack<T>(from[4], from[5]),
                              pack<T>(from[6], from[7]));
}

template <int N, typename T> DEVICE Numbers<N> load(const T *from) {
    Numbers<N> into;
    if constexpr (N == 8) {
        load_eight(into.at, from);
    } else {
        UNROLL for (int i = 0; i < N; ++i) into.at[i] = wide(from[i]);
    }
    return into;
}

template <int N, typename T> DEVICE void store(T *to, Numbers<N> from) {
    if constexpr (N == 8) {
        store_eight(to, from.at);
    } else {
        UNROLL for (int i = 0; i < N; ++i) to[i] = narrow<T>(from.at[i]);
    }
}

// Whether all pointers, those that are not null, are on a boundary of 16 bytes.
template <typename... T> DEVICE bool are_aligned(const T *...pointers) { return (((u64)pointers % 16 == 0) && ...); }

// A number that a template takes by its type.
template <int N> struct Count {
    static constexpr int value = N;
};

// Runs `work(at, Count<N>)` for the numbers 0 … width − 1, eight at a time if `eights`, this thread's share of `threads`.
template <typename F> DEVICE void along(u32 width, bool eights, u32 index, u32 threads, F work) {
    if (eights) {
        for (u32 at = index * 8; at < width; at += threads * 8) work(at, Count<8>());
    } else {
        for (u32 at = index; at < width; at += threads) work(at, Count<1>());
    }
}

// Runs `work(at, Count<N>)` for a flat buffer and all threads of a grid of one axis; what eight do not divide comes one
// by one.
template <typename F> DEVICE void everywhere(u64 count, bool eights, F work) {
    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x, threads = (u64)gridDim.x * blockDim.x;
    u64 whole = eights ? count / 8 * 8 : 0;
    for (u64 at = thread * 8; at < whole; at += threads * 8) work(at, Count<8>());
    for (u64 at = whole + thread; at < count; at += threads) work(at, Count<1>());
}

#define ALONG(at, N, width, aligned, here, ...)                                                                        \
    along(width, (width) % 8 == 0 && (aligned), (here).index, (here).threads, [&](u32 at, auto count_of_numbers) {     \
        constexpr int N = decltype(count_of_numbers)::value;                                                           \
        __VA_ARGS__                                                                                                    \
    });
#define EVERYWHERE(at, N, count, aligned, ...)                                                                         \
    everywhere(count, aligned, [&](u64 at, auto count_of_numbers) {                                                    \
        constexpr int N = decltype(count_of_numbers)::value;                                                           \
        __VA_ARGS__                                                                                                    \
    });

// ---- f64 ----

typedef double Double;
typedef double Factor;

DEVICE double get(const double *from, u64 at) { return from[at]; }
DEVICE void put(double *to, u64 at, double number) { to[at] = number; }
DEVICE double to_double(float number) { return (double)number; }
DEVICE float rounded(double number) { return (float)number; }
// What rounding leaves out.
DEVICE float rest_of(double number) { return (float)(number - (double)(float)number); }
DEVICE double plus(double a, double b) { return a + b; }
DEVICE double plus(double a, float b) { return a + (double)b; }
DEVICE double times(double a, double b) { return a * b; }
DEVICE double times(double a, float b) { return a * (double)b; }
DEVICE double product(double a, double b) { return a * b; }
DEVICE double divided(double a, double b) { return a / b; }
DEVICE double negated(double a) { return -a; }
DEVICE double root(double a) { return sqrt(a); }
DEVICE double logarithm(double a) { return log(a); }
DEVICE double exp_of(double a) { return exp(a); }
DEVICE bool above(double a, double b) { return a > b; }

// What a draw below 1 is bounded by, so that it stays below a total whatever their product rounds to.
DEVICE double almost_one() { return 1.0 - 2.220446049250313e-16; }

// bits / 2⁵³.
DEVICE double fraction_of(u64 bits) { return (double)bits / 9007199254740992.0; }

// The fewest of `ties` words of one weight whose sum reaches `missing`, or, if `past`, exceeds it; at least 1.
DEVICE u32 fewest_ties(double missing, float weight, u32 ties, bool past) {
    double quotient = missing / (double)weight;
    double needed = past ? floor(quotient) + 1.0 : ceil(quotient);
    return needed < 1.0 ? 1u : needed < (double)ties ? (u32)needed : ties;
}

// ---- counts in shared memory that all threads raise ----

typedef u32 Counter;

DEVICE void clear(u32 *counter) { *counter = 0; }
DEVICE void raise(u32 *counter) { atomicAdd(counter, 1u); }
DEVICE u32 count_in(const u32 *counter) { return *counter; }

// ---- the fault word ----
//
// One 64-bit word for a device, all ones while nothing is wrong. A kernel that meets an index out of range lowers it
// to `~index`, the upper half 0, and goes on with index 0, so that nothing is read or written out of bounds: what stays
// is the largest index, whatever the order in which threads came. Every read-back of numbers also brings the word (8
// bytes more in the same stream); if it is not all ones the host refuses what it has read, names the index and sets the
// word again. `adamw` writes nothing while the word is set.

#define FAULT_WORD u64 *

DEVICE void fault(u64 *word, u32 index) { atomicMin(word, (u64)~index); }
