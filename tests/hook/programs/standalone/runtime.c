/* SPDX-License-Identifier: Apache-2.0
 *
 * A program of the CUDA runtime (libcudart, without its headers): writes the cudaError_t of its first
 * allocation.
 */
#include <stddef.h>
#include <stdio.h>

int cudaMalloc(void **address, size_t size);

int main(void) {
    void *address;
    printf("cudaMalloc returned %d\n", cudaMalloc(&address, 1 << 20));
    return 0;
}
