// SPDX-License-Identifier: Apache-2.0
// Fills a container's limit through the CUDA runtime until it refuses; tests/gpu/run links it with the static and with
// the shared runtime. Says what frameworks.py says, and waits for SIGUSR1 as it does.

#include <signal.h>
#include <stdio.h>

#include <cuda_runtime.h>

static const size_t block = 256ul << 20;

__global__ void write(unsigned char *bytes, unsigned char value) { bytes[threadIdx.x] = value; }

// Does a kernel write what it should, in memory of its own?
static bool works() {
    unsigned char *bytes = nullptr, last = 0;
    if (cudaMalloc(&bytes, block) != cudaSuccess) return false;
    write<<<1, 32>>>(bytes, 7);
    cudaError_t error = cudaMemcpy(&last, bytes + 31, 1, cudaMemcpyDeviceToHost);
    return cudaFree(bytes) == cudaSuccess && error == cudaSuccess && last == 7;
}

int main() {
    sigset_t signals;
    int number;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    static void *kept[4096];
    size_t count = 0;
    cudaError_t error = cudaSuccess;
    if (!works()) return 1;
    while (count < 4096 && (error = cudaMalloc(&kept[count], block)) == cudaSuccess) count++;
    printf("{\"event\": \"full\", \"taken\": %zu, \"refused\": \"%s\", \"text\": \"%s\"}\n", count * block,
           cudaGetErrorName(error), cudaGetErrorString(error));
    fflush(stdout);
    cudaGetLastError();
    sigwait(&signals, &number);
    while (count > 0) cudaFree(kept[--count]);
    printf("{\"event\": \"again\", \"works\": %s}\n", works() ? "true" : "false");
    fflush(stdout);
    sigwait(&signals, &number);
    return 0;
}
