/* SPDX-License-Identifier: Apache-2.0
 *
 * The other calls that are given a stream (tables/stream_calls.h): each makes sure of the thread's default
 * stream, if it is that one, and goes to the driver as it came.
 */
#include "streams/thread_stream.h"

#define EXPORT_PASSED(symbol, base, since, stream, words, on)                                                \
    __attribute__((visibility("default"))) CUresult symbol(CONVGPU_PARAMETERS_##words);                      \
    CUresult symbol(CONVGPU_PARAMETERS_##words) {                                                            \
        if (!driver_load()) return CUDA_ERROR_NOT_INITIALIZED;                                               \
        CUresult ready = IS_OWN_##stream(on) ? thread_stream_ready(#base) : CUDA_SUCCESS;                    \
        return ready == CUDA_SUCCESS ? driver.passed.symbol(CONVGPU_ARGUMENTS_##words) : ready;              \
    }
CONVGPU_STREAM_CALLS(EXPORT_PASSED)
