// What kernels ask of the machine: numbers of 16 bits, warps, tensor cores, copies into shared memory.
//
// All PTX is in this file; `machine.h` of the tests stands in for it where kernels are run on a processor, and defines
// EMULATED. No header of the toolkit is needed. Compute capability 8.0 and up.

#ifndef EMULATED

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// Dynamic shared memory under a name of the kernel's own.
#define SHARED_BYTES(name) extern __shared__ __align__(16) unsigned char name[]

#define DEVICE __device__ __forceinline__
// A kernel of at most so many threads a block, and of at least so many blocks a multiprocessor if a second number is given.
#define KERNEL(...) extern "C" __global__ __launch_bounds__(__VA_ARGS__) void

// A number of 16 bits: 8 bits of exponent, 7 of mantissa.
struct bf16 {
    u16 bits;
};

// A number of 16 bits: 5 bits of exponent, 10 of mantissa.
struct f16 {
    u16 bits;
};

DEVICE float wide(float number) { return number; }
DEVICE float wide(bf16 number) { return __uint_as_float((u32)number.bits << 16); }
DEVICE float wide(f16 number) {
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(number.bits));
    return result;
}

// The nearest number of another type, the even one of two.
template <typename T> DEVICE T narrow(float number);
template <> DEVICE float narrow<float>(float number) { return number; }
template <> DEVICE bf16 narrow<bf16>(float number) {
    bf16 result;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(number));
    return result;
}
template <> DEVICE f16 narrow<f16>(float number) {
    f16 result;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(number));
    return result;
}

// Two numbers of 16 bits in one word, the first in the lower half.
template <typename T> DEVICE u32 pack(float first, float second);
template <> DEVICE u32 pack<bf16>(float first, float second) {
    u32 word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
}
template <> DEVICE u32 pack<f16>(float first, float second) {
    u32 word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
}

template <typename T> DEVICE float first_of(u32 word);
template <typename T> DEVICE float second_of(u32 word);
template <> DEVICE float first_of<bf16>(u32 word) { return __uint_as_float(word << 16); }
template <> DEVICE float second_of<bf16>(u32 word) { return __uint_as_float(word & 0xffff0000u); }
template <> DEVICE float first_of<f16>(u32 word) {
    f16 half = {(u16)word};
    return wide(half);
}
template <> DEVICE float second_of<f16>(u32 word) {
    f16 half = {(u16)(word >> 16)};
    return wide(half);
}

// 2ˣ within two units in the last place; 0 for −∞.
DEVICE float power_of_two(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

DEVICE float reciprocal(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// What the lane whose number differs by `mask` has.
template <typename T> DEVICE T shuffle_xor(T value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
// What some lane has.
template <typename T> DEVICE T shuffle(T value, int lane) { return __shfl_sync(0xffffffffu, value, lane); }
// A bit for every lane.
DEVICE u32 ballot(bool yes) { return __ballot_sync(0xffffffffu, yes); }
DEVICE void sync_warp() { __syncwarp(); }
DEVICE void sync_block() { __syncthreads(); }

DEVICE u32 shared_address(const void *pointer) { return (u32)__cvta_generic_to_shared(pointer); }

// Four matrices of 8 × 8 numbers of 16 bits from shared memory; lane l gives the address of row l % 8 of matrix l / 8.
DEVICE void load_matrices(u32 (&words)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// Four matrices of 8 × 8 numbers of 16 bits from shared memory, each transposed.
DEVICE void load_matrices_transposed(u32 (&words)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// sum += left · right: 16 × 16 times 16 × 8, sums in f32.
template <typename T> DEVICE void multiply(float (&sum)[4], const u32 (&left)[4], u32 right0, u32 right1);
template <> DEVICE void multiply<bf16>(float (&sum)[4], const u32 (&left)[4], u32 right0, u32 right1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
}
template <> DEVICE void multiply<f16>(float (&sum)[4], const u32 (&left)[4], u32 right0, u32 right1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
}

// Starts a copy of 16 bytes into shared memory; zeros if not `there`, and then nothing is read.
DEVICE void fetch(void *to, const void *from, bool there) {
    u32 bytes = there ? 16u : 0u;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes)
                 : "memory");
}

// Ends a group of copies.
DEVICE void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most `left` of this thread's groups are under way.
template <int left> DEVICE void await_groups() { asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory"); }

#endif
