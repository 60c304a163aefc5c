/* SPDX-License-Identifier: Apache-2.0
 *
 * Captures of streams, which are counted in a process that takes part (gate/captures.h): a stop waits
 * for their ends. A capture begins only while the gate is open, and is over when its stream says so, whatever
 * the call that ends it returns.
 */
#include "gate/captures.h"

#include "gate/gate.h"

static CUstream name_of(CUstream stream, bool per_thread) {
    return !stream && per_thread ? (CUstream)(uintptr_t)CU_STREAM_PER_THREAD : stream;
}

static bool is_over(CUstream stream) {
    int status = 0;
    return DRIVER(cuStreamIsCapturing, stream, &status) != CUDA_SUCCESS || status == 0;
}

/* Before the driver's call: whether it is counted. Waits for a synchronisation of ours outside of the gate
 * (captures.h): `seen` is loaded before it is found on its way, so that its end is not missed. The permit of
 * a step by which the thread came in is used up then: given back, it could let somebody pass after the step.
 */
static bool begin(CUstream stream) {
    if (!gate_takes_part()) return false;
    for (;;) {
        if (gate_enter(NULL, false) != GATE_PASSED) return false;
        uint32_t seen = captures_releases();
        if (captures_enter(stream)) return true;
        gate_leave();
        captures_wait(seen);
    }
}

/* After it: a capture that was on its way in the stream before stays. */
static CUresult begun(bool counted, CUstream stream, CUresult result) {
    if (!counted) return result;
    if (result != CUDA_SUCCESS && is_over(stream)) captures_leave(stream);
    gate_leave();
    return result;
}

static CUresult ended(CUstream stream, CUresult result) {
    if (captures_count() > 0 && is_over(stream)) captures_leave(stream);
    return result;
}

#define BEGIN(symbol, per_thread, ...)                                                                       \
    {                                                                                                        \
        CUstream named = name_of(stream, per_thread);                                                        \
        bool counted = begin(named);                                                                         \
        return begun(counted, named, DRIVER(symbol, __VA_ARGS__));                                           \
    }

CUresult hooked_cuStreamBeginCapture(CUstream stream) BEGIN(cuStreamBeginCapture, false, stream)

    CUresult hooked_cuStreamBeginCapture_ptsz(CUstream stream) BEGIN(cuStreamBeginCapture_ptsz, true, stream)

        CUresult hooked_cuStreamBeginCapture_v2(CUstream stream, int mode)
            BEGIN(cuStreamBeginCapture_v2, false, stream, mode)

                CUresult hooked_cuStreamBeginCapture_v2_ptsz(CUstream stream, int mode)
                    BEGIN(cuStreamBeginCapture_v2_ptsz, true, stream, mode)

                        CUresult
    hooked_cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *nodes,
                                       const void *edges, size_t count, int mode)
        BEGIN(cuStreamBeginCaptureToGraph, false, stream, graph, nodes, edges, count, mode)

            CUresult
    hooked_cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode *nodes,
                                            const void *edges, size_t count, int mode)
        BEGIN(cuStreamBeginCaptureToGraph_ptsz, true, stream, graph, nodes, edges, count, mode)

            CUresult hooked_cuStreamBeginRecaptureToGraph(CUstream stream, int mode, CUgraph graph,
                                                          void *callback, void *argument)
                BEGIN(cuStreamBeginRecaptureToGraph, false, stream, mode, graph, callback, argument)

                    CUresult
    hooked_cuStreamBeginRecaptureToGraph_ptsz(CUstream stream, int mode, CUgraph graph, void *callback,
                                              void *argument)
        BEGIN(cuStreamBeginRecaptureToGraph_ptsz, true, stream, mode, graph, callback, argument)

            CUresult hooked_cuStreamBeginCaptureToCig(CUstream stream, void *parameters)
                BEGIN(cuStreamBeginCaptureToCig, false, stream, parameters)

                    CUresult hooked_cuStreamBeginCaptureToCig_ptsz(CUstream stream, void *parameters)
                        BEGIN(cuStreamBeginCaptureToCig_ptsz, true, stream, parameters)

                            CUresult hooked_cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    return ended(stream, DRIVER(cuStreamEndCapture, stream, graph));
}

CUresult hooked_cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph) {
    return ended(name_of(stream, true), DRIVER(cuStreamEndCapture_ptsz, stream, graph));
}

CUresult hooked_cuStreamEndCaptureToCig(CUstream stream) {
    return ended(stream, DRIVER(cuStreamEndCaptureToCig, stream));
}

CUresult hooked_cuStreamEndCaptureToCig_ptsz(CUstream stream) {
    return ended(name_of(stream, true), DRIVER(cuStreamEndCaptureToCig_ptsz, stream));
}

/* Its capture ends with a stream. */
static CUresult destroyed(CUstream stream, CUresult result) {
    if (result == CUDA_SUCCESS && captures_count() > 0) captures_leave(stream);
    return result;
}

CUresult hooked_cuStreamDestroy(CUstream stream) {
    return destroyed(stream, DRIVER(cuStreamDestroy, stream));
}

CUresult hooked_cuStreamDestroy_v2(CUstream stream) {
    return destroyed(stream, DRIVER(cuStreamDestroy_v2, stream));
}
