/* SPDX-License-Identifier: Apache-2.0
 *
 * Included before everything else (Makefile): asks for the oldest versions of the C library's symbols, so
 * that the hook, built on today's distribution, also loads in images of glibc 2.17 (2012) and later. A
 * preloaded library that asks for more keeps every program of such an image from starting. tests/hook checks
 * the result, and tries it with glibc 2.23, 2.31 and 2.41. Nothing else of a later one is used: it builds
 * for 2.17 with make CC="python -m ziglang cc -target x86_64-linux-gnu.2.17" LIBC_PARTS="-lpthread -ldl".
 *
 * Since glibc 2.34 libpthread and libdl are part of libc.so.6, which still has the old names beside the new
 * ones. On arm64 nothing is older than 2.17, and the names of 2.34 cannot be avoided this way.
 */
#ifndef CONVGPU_GLIBC_VERSIONS_H
#define CONVGPU_GLIBC_VERSIONS_H

#if defined(__x86_64__) && defined(__linux__)
#define CONVGPU_OLD(symbol, version) __asm__(".symver " #symbol "," #symbol "@GLIBC_" version)
CONVGPU_OLD(dladdr, "2.2.5");
CONVGPU_OLD(dlclose, "2.2.5");
CONVGPU_OLD(dlopen, "2.2.5");
CONVGPU_OLD(memcpy, "2.2.5");
CONVGPU_OLD(pthread_attr_getstacksize, "2.2.5");
CONVGPU_OLD(pthread_attr_setstacksize, "2.2.5");
CONVGPU_OLD(pthread_create, "2.2.5");
CONVGPU_OLD(pthread_key_create, "2.2.5");
CONVGPU_OLD(pthread_mutex_trylock, "2.2.5");
CONVGPU_OLD(pthread_setspecific, "2.2.5");
CONVGPU_OLD(pthread_sigmask, "2.2.5");
#endif

#endif
