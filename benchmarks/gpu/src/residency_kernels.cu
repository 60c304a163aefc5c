// SPDX-License-Identifier: Apache-2.0
//
// The kernels of residency.c, by the names and arguments that the simulated driver knows too
// (tests/fakes/libcuda/work/operation.h). residency_kernels.ptx is made from it:
// nvcc -ptx -arch=compute_75 -o residency_kernels.ptx residency_kernels.cu
typedef unsigned long long word;

#define EACH(i, count)                                                                                       \
    for (word i = blockIdx.x * (word)blockDim.x + threadIdx.x; i < (count); i += (word)gridDim.x * blockDim.x)

static __device__ word wanted(word seed, word i) {
    return (seed + i) * 0x9e3779b97f4a7c15ull;
}

extern "C" __global__ void fill(word *memory, word words, word seed) {
    EACH(i, words) memory[i] = wanted(seed, i);
}

extern "C" __global__ void check(const word *memory, word words, word seed, word *wrong) {
    word found = 0;
    EACH(i, words) found += memory[i] != wanted(seed, i);
    if (found) atomicAdd(wrong, found);
}

extern "C" __global__ void add(word *memory, word words, word value) {
    EACH(i, words) memory[i] += value;
}

// For so many nanoseconds.
extern "C" __global__ void last(word duration) {
    word begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - begin < duration);
}

extern "C" __global__ void empty() {
}
