// What the kernels of attention on tensor cores share: sizes of tiles, and which rows a warp has.

#if ACTIVATION != 0

// Whether four warps multiply together (attention_wgmma.cu, head sizes 64 and 128), else each alone (attention_mma.cu). The
// host defines WARPGROUPS for compute capability 9.0, compiled as `sm_90a`.
#if !defined(WARPGROUPS) || (HEAD_DIM != 64 && HEAD_DIM != 128)
#undef WARPGROUPS
#define WARPGROUPS 0
#endif

// Tiles that are in memory at a time: by warpgroups one is copied while the other is used.
#define BUFFERS (1 + WARPGROUPS)
// Copies of 16 bytes for a row.
#define PIECES (HEAD_DIM / 8)
#ifndef ATTENTION_WARPS
#define ATTENTION_WARPS (WARPGROUPS && HEAD_DIM > 64 ? 8 : 4)
#endif
#define ATTENTION_THREADS (ATTENTION_WARPS * WARP)
// A stack is 16 rows for each warp.
#define STACK_ROWS (16 * ATTENTION_WARPS)

// Forward: stacks of queries, and keys of a tile.
#ifndef FORWARD_STACK
#define FORWARD_STACK (!WARPGROUPS && HEAD_DIM <= 128 ? 2 : 1)
#endif
#ifndef FORWARD_KEYS
// By measurement on an H200, see README.md; `registers.txt` has the spills.
#define FORWARD_KEYS (WARPGROUPS && HEAD_DIM == 128 ? 128 : HEAD_DIM <= 80 || HEAD_DIM == 128 ? 64 : 32)
#endif
#define FORWARD_QUERIES (STACK_ROWS * FORWARD_STACK)

// dq: queries of a tile, and keys.
#define DQ_QUERIES STACK_ROWS
#ifndef DQ_KEYS
#define DQ_KEYS (HEAD_DIM <= 128 ? 64 : 32)
#endif

// dk and dv: keys of a tile, queries, and blocks that share the features of a tile.
#define DKV_KEYS STACK_ROWS
#ifndef DKV_QUERIES
// 64 would spill registers at 80 and 96. 16 at head size 256, where 32 would take more shared memory than small
// processors (8.6, 8.9, 12.0) let a block have.
#define DKV_QUERIES (HEAD_DIM <= 64 || HEAD_DIM == 128 ? 64 : HEAD_DIM < 256 ? 32 : 16)
#endif
#define DKV_SPLIT (HEAD_DIM <= 128 ? 1 : 2)
#define DKV_FEATURES (HEAD_DIM / DKV_SPLIT)
static_assert(DKV_FEATURES % 16 == 0, "HEAD_DIM past 128 is a multiple of 32");

// Blocks of a multiprocessor for which registers are kept free, 0 for as many as the compiler likes.
#ifndef FORWARD_BLOCKS
#define FORWARD_BLOCKS (!WARPGROUPS ? 0 : HEAD_DIM == 64 ? 4 : 1)
#endif
#ifndef DQ_BLOCKS
#define DQ_BLOCKS (!WARPGROUPS ? 0 : HEAD_DIM == 64 ? 3 : 1)
#endif
#ifndef DKV_BLOCKS
#define DKV_BLOCKS (!WARPGROUPS ? 0 : HEAD_DIM == 64 ? 3 : 1)
#endif

// The first row of this warp in the first stack.
DEVICE u32 own_line() { return threadIdx.x / WARP * 16; }

// 16 numbers of each of 16 rows, as two products left them, become a left operand.
DEVICE void pack_left(u32 (&words)[4], const float (&low)[4], const float (&high)[4]) {
    words[0] = pack<act>(low[0], low[1]), words[1] = pack<act>(low[2], low[3]);
    words[2] = pack<act>(high[0], high[1]), words[3] = pack<act>(high[2], high[3]);
}

#endif
