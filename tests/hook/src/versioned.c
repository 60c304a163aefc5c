/* SPDX-License-Identifier: Apache-2.0
 *
 * A library that exports a hooked name under a symbol version (see versioned.map), for dlvsym.
 */
int cuMemAlloc_v2(unsigned long *address, unsigned long size);

int cuMemAlloc_v2(unsigned long *address, unsigned long size) {
    *address = size;
    return 0;
}
