// Stacks for the threads of a block, and how the processor goes from one to another.
//
// `swapcontext` asks the system for the mask of signals each time; keeping the registers that a call must keep and
// changing the stack pointer costs a few nanoseconds. Other processors, and sanitizers that follow swapcontext, take that.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || !(defined(__x86_64__) || defined(__aarch64__))
#define EMULATED_SLOW_SWITCH
#include <ucontext.h>
#endif

namespace emulated {

// Reports what is wrong with a kernel and does not return. Without one the program ends.
typedef void (*Refusal)(const char *why);
static Refusal refusal = nullptr;
[[noreturn]] static void refuse(const char *why) {
    if (refusal) refusal(why);
    fprintf(stderr, "%s\n", why);
    abort();
}

#ifdef EMULATED_SLOW_SWITCH

// Where a stack was left.
typedef ucontext_t Stop;

static void go(Stop &from, Stop &to) { swapcontext(&from, &to); }

static void begin_at(Stop &stop, unsigned char *low, size_t bytes, void (*start)()) {
    getcontext(&stop);
    stop.uc_stack.ss_sp = low;
    stop.uc_stack.ss_size = bytes;
    stop.uc_link = nullptr;
    makecontext(&stop, start, 0);
}

#else

// Where a stack was left: its top, which has what to continue with.
typedef void *Stop;

#ifdef __x86_64__

#ifdef __AVX512F__
#define EMULATED_MORE_REGISTERS                                                                                        \
    , "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27",      \
        "xmm28", "xmm29", "xmm30", "xmm31", "k1", "k2", "k3", "k4", "k5", "k6", "k7"
#else
#define EMULATED_MORE_REGISTERS
#endif

// Written into its caller, and with a jump instead of a return: the processor guesses where a return goes from the calls
// before it, which is wrong once the stack has changed. What is below the stack pointer may be in use, 128 bytes of it.
__attribute__((always_inline)) static inline void go(Stop &from, Stop to) {
    Stop *kept = &from;
    asm volatile("leaq -128(%%rsp), %%rsp\n\t"
                 "pushq %%rbp\n\t"
                 "leaq 1f(%%rip), %%rax\n\t"
                 "pushq %%rax\n\t"
                 "movq %%rsp, (%0)\n\t"
                 "movq %1, %%rsp\n\t"
                 "popq %%rax\n\t"
                 "jmp *%%rax\n"
                 "1:\n\t"
                 "popq %%rbp\n\t"
                 "leaq 128(%%rsp), %%rsp"
                 : "+D"(kept), "+S"(to)
                 :
                 : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "cc", "memory",
                   "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
                   "xmm12", "xmm13", "xmm14", "xmm15" EMULATED_MORE_REGISTERS);
}

// Where to begin, and a word in place of an address to return to, so that the stack lies as after a call.
static const int KEPT = 2, BEGINNING = 0;

#else

extern "C" __attribute__((visibility("hidden"))) void emulated_go(void **from, void *to);
asm(R"(
    .text
    .p2align 4
    .hidden emulated_go
    .type emulated_go,%function
emulated_go:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x2, sp
    str x2, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
    .size emulated_go,.-emulated_go
)");
static inline void go(Stop &from, Stop &to) { emulated_go(&from, to); }

// The registers that a call keeps; the address to return to is one of them.
static const int KEPT = 20, BEGINNING = 11;

#endif

static void begin_at(Stop &stop, unsigned char *low, size_t bytes, void (*start)()) {
    void **top = (void **)(low + bytes) - KEPT;
    memset(top, 0, KEPT * sizeof *top);
    top[BEGINNING] = (void *)start;
    stop = top;
}

#endif

// A stack on which threads run one after another, and where the one that holds it stopped.
struct Stack {
    unsigned char *low;
    Stop stop;
};

static const size_t STACK_BYTES = 1 << 17;

// Memory that is allocated when it is written, between two inaccessible pages.
static unsigned char *guarded(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    bytes = (bytes + page - 1) / page * page;
    void *all = mmap(nullptr, bytes + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED || mprotect((char *)all + page, bytes, PROT_READ | PROT_WRITE)) refuse("no memory for stacks");
    return (unsigned char *)all + page;
}

} // namespace emulated
