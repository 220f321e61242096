// Products of a warpgroup: four warps that begin at a multiple of four, on operands in shared memory. Compute capability
// 9.0 alone: `sm_90a`. Compiled with `WARPGROUPS` only, see attention_sizes.cuh.

#if WARPGROUPS && !defined(EMULATED)

// Makes what a thread wrote into shared memory, copies included, visible to the tensor cores; before a barrier.
DEVICE void show_tensor_cores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Before the first product that reads registers or tiles that the warps have written.
DEVICE void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Ends a group of products.
DEVICE void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most `left` groups are under way. Until then no thread may use the sums of those.
template <int left> DEVICE void await_products() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory"); }

// Keeps the compiler from moving uses of sums across this place.
template <int COUNT> DEVICE void keep(float (&sums)[COUNT][4]) {
    UNROLL for (int n = 0; n < COUNT; ++n) {
        UNROLL for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(sums[n][i])::"memory");
    }
}

// An operand in shared memory in rows of 128 bytes, swizzled. Where rows are summed over, `leading` is the distance of
// columns and `stride` that of eight rows; else `stride` alone counts.
DEVICE u64 describe(const void *place, u32 leading, u32 stride) {
    return (shared_address(place) >> 4 & 0x3fff) | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32 | (u64)1 << 62;
}

#define FOUR(sum) "+f"((sum)[0]), "+f"((sum)[1]), "+f"((sum)[2]), "+f"((sum)[3])
#define FOUR_FOURS(sums, at) FOUR(sums[at]), FOUR(sums[at + 1]), FOUR(sums[at + 2]), FOUR(sums[at + 3])
#define EIGHT_FOURS(sums, at) FOUR_FOURS(sums, at), FOUR_FOURS(sums, at + 4)
#define SIXTEEN_FOURS(sums, at) EIGHT_FOURS(sums, at), EIGHT_FOURS(sums, at + 8)
#define NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define NAMES_32 NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_64                                                                                                       \
    NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                      \
             "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

// sums = left · rightᵀ, or more if `add`: 64 × 16 times 16 × 32, 16 × 64 or 16 × 128, both from shared memory.
template <typename T, int EIGHTS> DEVICE void multiply_tiles(float (&sums)[EIGHTS][4], u64 left, u64 right, bool add);
// sums += left · right: 64 × 16 of registers times 16 × 64 or 16 × 128.
template <typename T, int EIGHTS> DEVICE void multiply_weights(float (&sums)[EIGHTS][4], const u32 (&left)[4], u64 right);

#define TILE_PRODUCT(T, TYPE, EIGHTS, WIDTH, NAMES, SUMS, LEFT, RIGHT, ADD)                                            \
    template <> DEVICE void multiply_tiles<T, EIGHTS>(float (&sums)[EIGHTS][4], u64 left, u64 right, bool add) {       \
        asm volatile("{ .reg .pred more; setp.ne.u32 more, " ADD ", 0;"                                                \
                     "wgmma.mma_async.sync.aligned.m64n" WIDTH "k16.f32." TYPE "." TYPE " {" NAMES "}, " LEFT ", " RIGHT \
                     ", more, 1, 1, 0, 0; }"                                                                           \
                     : SUMS(sums, 0)                                                                                   \
                     : "l"(left), "l"(right), "r"((u32)add));                                                          \
    }
#define WEIGHT_PRODUCT(T, TYPE, EIGHTS, WIDTH, NAMES, SUMS, LEFT, RIGHT)                                               \
    template <>                                                                                                        \
    DEVICE void multiply_weights<T, EIGHTS>(float (&sums)[EIGHTS][4], const u32 (&left)[4], u64 right) {               \
        asm volatile("{ .reg .pred more; setp.eq.u32 more, 0, 0;"                                                      \
                     "wgmma.mma_async.sync.aligned.m64n" WIDTH "k16.f32." TYPE "." TYPE " {" NAMES "}, {" LEFT "}, " RIGHT \
                     ", more, 1, 1, 1; }"                                                                              \
                     : SUMS(sums, 0)                                                                                   \
                     : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right));                            \
    }
#define M64_PRODUCTS(T, TYPE)                                                                                          \
    TILE_PRODUCT(T, TYPE, 4, "32", NAMES_16, FOUR_FOURS, "%16", "%17", "%18")                                          \
    TILE_PRODUCT(T, TYPE, 8, "64", NAMES_32, EIGHT_FOURS, "%32", "%33", "%34")                                         \
    TILE_PRODUCT(T, TYPE, 16, "128", NAMES_64, SIXTEEN_FOURS, "%64", "%65", "%66")                                     \
    WEIGHT_PRODUCT(T, TYPE, 8, "64", NAMES_32, EIGHT_FOURS, "%32, %33, %34, %35", "%36")                               \
    WEIGHT_PRODUCT(T, TYPE, 16, "128", NAMES_64, SIXTEEN_FOURS, "%64, %65, %66, %67", "%68")
M64_PRODUCTS(bf16, "bf16")
M64_PRODUCTS(f16, "f16")

#endif
