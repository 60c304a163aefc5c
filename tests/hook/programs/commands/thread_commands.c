/* SPDX-License-Identifier: Apache-2.0
 *
 * Many threads, each of which uses its default stream for the first time.
 */
#include "program.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 256, SMALL_STACK = 128 << 10 };
enum way {
    LAUNCH,
    LAUNCH_TWIN,
    LAUNCH_EX,
    FILL,
    FILL_TWIN,
    COPY_TWIN,
    EVENT,
    QUERY_TWIN,
    OWNER,
    WAIT,
    CAPTURE,
    OCCUPANCY
};
enum mode { BY_TURNS, STAYING, AT_ONCE }; /* one ends before the next begins; before the next calls; never */

static struct {
    const size_t *number;
    pthread_barrier_t together;
    sem_t answered, end;
    unsigned accepted, refused;
} all;

static CUresult configured(enum way way, word function) {
    int clusters;
    struct {
        unsigned shape[6], shared;
        uint64_t stream, attributes;
        unsigned count;
    } one = {{1, 1, 1, 1, 1, 1}, 0, CU_STREAM_PER_THREAD, 0, 0};
    word where = (word)(uintptr_t)&one;
    if (way == LAUNCH_EX) return cuda.cuLaunchKernelEx(where, function, 0, 0);
    return cuda.passed.cuOccupancyMaxActiveClusters((word)(uintptr_t)&clusters, function, where);
}

static CUresult record(void) {
    word event = 0;
    CUresult result = ((CUresult (*)(word *, unsigned))driver_symbol("cuEventCreate"))(&event, 0);
    return result == CUDA_SUCCESS ? cuda.passed.cuEventRecord(event, CU_STREAM_PER_THREAD) : result;
}

static CUresult capture(word function) {
    CUstream own = (CUstream)CU_STREAM_PER_THREAD;
    CUgraph graph = NULL;
    CUresult result = cuda.cuStreamBeginCapture_v2(own, 2);
    if (result == CUDA_SUCCESS)
        result = cuda.cuLaunchKernel_ptsz(function, 1, 1, 1, 1, 1, 1, 0, CU_STREAM_PER_THREAD, 0, 0);
    return result == CUDA_SUCCESS ? cuda.cuStreamEndCapture(own, &graph) : result;
}

/* `subject`: a function, or where it writes. */
static CUresult go(enum way way, word subject) {
    uint64_t room = 0;
    switch (way) {
    case LAUNCH:
        return cuda.cuLaunchKernel(subject, 1, 1, 1, 1, 1, 1, 0, CU_STREAM_PER_THREAD, 0, 0);
    case LAUNCH_TWIN:
        return cuda.cuLaunchKernel_ptsz(subject, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0);
    case LAUNCH_EX:
    case OCCUPANCY:
        return configured(way, subject);
    case FILL:
        return cuda.cuMemsetD8Async(subject, 1, 8, CU_STREAM_PER_THREAD);
    case FILL_TWIN:
        return cuda.cuMemsetD8_v2_ptds(subject, 1, 8);
    case COPY_TWIN:
        return cuda.cuMemcpyDtoH_v2_ptds((word)(uintptr_t)&room, subject, 8);
    case EVENT:
        return record();
    case QUERY_TWIN:
        return cuda.passed.cuStreamQuery_ptsz(0);
    case OWNER:
        return cuda.passed.cuStreamGetCtx(CU_STREAM_PER_THREAD, (word)(uintptr_t)&room);
    case WAIT:
        return cuda.cuStreamSynchronize((CUstream)CU_STREAM_PER_THREAD);
    default:
        return capture(subject);
    }
}

static CUresult go_in(size_t context) {
    CUresult (*use)(size_t) = (CUresult (*)(size_t))driver_symbol("cuCtxSetCurrent");
    CUresult result = use(context);
    return result == CUDA_SUCCESS ? go((enum way)all.number[1], all.number[3]) : result;
}

static void *use_stream(void *unused) {
    (void)unused;
    if (all.number[2] == AT_ONCE) pthread_barrier_wait(&all.together);
    CUresult result = go_in(all.number[4]);
    if (result == CUDA_SUCCESS && all.number[5]) result = go_in(all.number[5]);
    __atomic_fetch_add(&all.accepted, result == CUDA_SUCCESS, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&all.refused, result == CUDA_ERROR_OUT_OF_MEMORY, __ATOMIC_SEQ_CST);
    sem_post(&all.answered);
    if (all.number[2] != BY_TURNS) sem_wait(&all.end);
    return NULL;
}

/* threads COUNT WAY MODE SUBJECT CONTEXT OTHER, prints how many were accepted, and refused: each calls in one
 * context, and then in another, if there is one. */
static CUresult use_streams(const size_t *number, char *values) {
    pthread_t threads[MOST];
    pthread_attr_t small;
    bool turns = number[2] == BY_TURNS;
    unsigned count = number[0] < MOST ? (unsigned)number[0] : MOST;
    all.number = number;
    all.accepted = all.refused = 0;
    sem_init(&all.answered, 0, 0);
    sem_init(&all.end, 0, 0);
    pthread_barrier_init(&all.together, NULL, count);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, SMALL_STACK);
    for (unsigned index = 0; index < count; index++) {
        if (pthread_create(&threads[index], &small, use_stream, NULL) != 0) return -2;
        if (number[2] != AT_ONCE) sem_wait(&all.answered);
        if (turns) pthread_join(threads[index], NULL);
    }
    for (unsigned index = 0; !turns && number[2] == AT_ONCE && index < count; index++)
        sem_wait(&all.answered);
    for (unsigned index = 0; !turns && index < count; index++) sem_post(&all.end);
    for (unsigned index = 0; !turns && index < count; index++) pthread_join(threads[index], NULL);
    sprintf(values, " %u %u", all.accepted, all.refused);
    return CUDA_SUCCESS;
}

/* forkstream WAY SUBJECT: what a child is answered that uses its default stream, as this thread does before.
 */
static CUresult fork_stream(const size_t *number, char *values) {
    CUresult result = go((enum way)number[0], number[1]);
    pid_t child = fork();
    if (child == 0) _exit((int)go((enum way)number[0], number[1]));
    int status = 0;
    waitpid(child, &status, 0);
    sprintf(values, " %d", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    return result;
}

/* ownstream WAY SUBJECT: this thread does it. */
CUresult run_threads(const char *command, const size_t *number, char *values) {
    if (strcmp(command, "threads") == 0) return use_streams(number, values);
    if (strcmp(command, "forkstream") == 0) return fork_stream(number, values);
    return strcmp(command, "ownstream") == 0 ? go((enum way)number[0], number[1]) : -1;
}
