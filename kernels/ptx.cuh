// PTX instructions that CUDA C++ has no name for, one function each. Barriers that expect bytes and bulk
// copies need compute capability 9.0.
#pragma once

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>

namespace kvsim::ptx {

__device__ __forceinline__ unsigned shared_address(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
// Barriers in shared memory (mbarrier). A phase ends when its arrivals and the bytes that it expects are in.
__device__ __forceinline__ void mbar_init(std::uint64_t* b, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(count) : "memory");
}
__device__ __forceinline__ void mbar_arrive(std::uint64_t* b) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
__device__ __forceinline__ void mbar_arrive_n(std::uint64_t* b, int n) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(n) : "memory");
}
__device__ __forceinline__ void mbar_expect(std::uint64_t* b, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes)
                 : "memory");
}
// Until the phase of this parity has ended. Returns at once, too, when the phase before it has not ended yet.
__device__ __forceinline__ void mbar_wait(std::uint64_t* b, unsigned parity) {
    asm volatile(
        "{\n .reg .pred p;\n W%=: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n @p bra D%=;\n bra "
        "W%=;\n D%=:\n}" ::"r"(shared_address(b)),
        "r"(parity)
        : "memory");
}
// Bulk copies: multiples of 16 bytes at multiples of 16, whole runs of memory by one instruction.
__device__ __forceinline__ void bulk_load(void* dst, const void* src, unsigned bytes, std::uint64_t* bar,
                                          std::uint64_t policy) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, "
        "[%3], %4;" ::"r"(shared_address(dst)),
        "l"(src), "r"(bytes), "r"(shared_address(bar)), "l"(policy)
        : "memory");
}
// Copies of 16 and 4 bytes by one thread, and its arrival once all its copies have come.
__device__ __forceinline__ void copy_piece(void* dst, const void* src) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(dst)), "l"(src) : "memory");
}
// Zeros if there is nothing to read.
__device__ __forceinline__ void copy_piece_or_zeros(void* dst, const void* src, bool read) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(dst)), "l"(src),
                 "r"(read ? 16 : 0)
                 : "memory");
}
__device__ __forceinline__ void copy_word(void* dst, const void* src) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(dst)), "l"(src) : "memory");
}
// The same of what is read once: with a policy for its lines in the L2.
__device__ __forceinline__ void copy_piece(void* dst, const void* src, std::uint64_t policy) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(shared_address(dst)),
                 "l"(src), "l"(policy)
                 : "memory");
}
__device__ __forceinline__ void copy_word(void* dst, const void* src, std::uint64_t policy) {
    asm volatile("cp.async.ca.shared.global.L2::cache_hint [%0], [%1], 4, %2;" ::"r"(shared_address(dst)),
                 "l"(src), "l"(policy)
                 : "memory");
}
// Ends this thread's copies, and those of the block.
__device__ __forceinline__ void finish_copies() {
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
}
// The half word at `index` of an array that starts at a whole word, into a word; half_of_word() finds it
// there.
__device__ __forceinline__ void copy_half(void* dst, const __nv_bfloat16* array, std::size_t index) {
    const __nv_bfloat16* word = array + (index & ~std::size_t{1});
    const int bytes = index & 1 ? 4 : 2;  // never past the array's end
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(dst)), "l"(word),
                 "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ float half_of_word(unsigned word, std::size_t index) {
    return __uint_as_float(index & 1 ? word & 0xffff0000u : word << 16);
}
__device__ __forceinline__ void copy_arrive(std::uint64_t* bar) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(bar))
                 : "memory");
}
__device__ __forceinline__ void bulk_store(void* dst, const void* src, unsigned bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(dst),
                 "r"(shared_address(src)), "r"(bytes)
                 : "memory");
}
// Until the bulk stores of this thread have read their source.
__device__ __forceinline__ void finish_bulk_stores() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
// Makes what this thread wrote to shared memory, or initialised there, visible to bulk copies.
__device__ __forceinline__ void fence_for_bulk_copies() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void fence_barrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Loads that stay where they stand: compilers move others to where their values are used, behind branches and
// waits.
__device__ __forceinline__ uint4 load_now(const uint4* p) {
    uint4 w;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w)
                 : "l"(p)
                 : "memory");
    return w;
}
__device__ __forceinline__ uint2 load_now(const uint2* p) {
    uint2 w;
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(w.x), "=r"(w.y) : "l"(p) : "memory");
    return w;
}
__device__ __forceinline__ float load_now(const float* p) {
    float x;
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(x) : "l"(p) : "memory");
    return x;
}
__device__ __forceinline__ int load_now(const std::int32_t* p) {
    int x;
    asm volatile("ld.global.s32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
    return x;
}
__device__ __forceinline__ int load_now(const std::uint8_t* p) {
    int x;
    asm volatile("ld.global.u8 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
    return x;
}
__device__ __forceinline__ __nv_bfloat16 load_now(const __nv_bfloat16* p) {
    __nv_bfloat16_raw x;
    asm volatile("ld.global.u16 %0, [%1];" : "=h"(x.x) : "l"(p) : "memory");
    return x;
}
// What the L2 is to do with the lines of a copy.
__device__ __forceinline__ std::uint64_t evict_last() {
    std::uint64_t p;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(p));
    return p;
}
__device__ __forceinline__ std::uint64_t evict_unchanged() {
    std::uint64_t p;
    asm volatile("createpolicy.fractional.L2::evict_unchanged.b64 %0, 1.0;" : "=l"(p));
    return p;
}
__device__ __forceinline__ std::uint64_t evict_first() {
    std::uint64_t p;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(p));
    return p;
}
// c += a b on tensor cores, fp32 sums. Operands as in the PTX manual, section on mma fragments: lane 4 g + t
// holds of a rows g and g + 8, of b column g, of c rows g and g + 8 in columns 2 t and 2 t + 1.
__device__ __forceinline__ void mma(float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                    unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma_tf32(float (&c)[4], float a0, float a1, float a2, float a3, unsigned b0,
                                         unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(__float_as_uint(a0)), "r"(__float_as_uint(a1)), "r"(__float_as_uint(a2)),
          "r"(__float_as_uint(a3)), "r"(b0), "r"(b1));
}
// Four 8 x 8 matrices of 16-bit words, their rows at the addresses of lanes 0-7, 8-15, ...; trans:
// transposed.
__device__ __forceinline__ void ldmatrix(unsigned (&r)[4], const void* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p))
                 : "memory");
}
__device__ __forceinline__ void ldmatrix_trans(unsigned (&r)[4], const void* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p))
                 : "memory");
}
// Transposes the 8 x 8 matrix of which a lane holds row lane / 4, columns 2 (lane % 4) and one further.
__device__ __forceinline__ unsigned movmatrix(unsigned x) {
    unsigned y;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}
__device__ __forceinline__ unsigned pack_bf16(float lo, float hi) {
    unsigned r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
// Two fp32 numbers as the sum of two pairs of bf16: the upper halves of the words, and the rest.
__device__ __forceinline__ void split_pair(float x0, float x1, unsigned& hi, unsigned& lo) {
    hi = __byte_perm(__float_as_uint(x0), __float_as_uint(x1), 0x7632);
    lo = pack_bf16(x0 - __uint_as_float(__float_as_uint(x0) & 0xffff0000u),
                   x1 - __uint_as_float(__float_as_uint(x1) & 0xffff0000u));
}

}  // namespace kvsim::ptx
