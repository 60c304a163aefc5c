/* SPDX-License-Identifier: Apache-2.0
 *
 * hook/src/interpose/gated.c alone, between a driver that notes its arguments and a gate that notes its
 * calls. Says of each launch of one function, in each way that it can take, what arrived and what was asked:
 *
 *   SYMBOL WAY: arguments [not] as they came, result N, looked N, entered N, inside N
 *
 * And of each stream that it can be given, in the short way, whether the thread's default stream was asked
 * for:
 *
 *   SYMBOL stream N KNOWN: arguments [not] as they came, result N, asked N
 */
#include "code/launch.h"
#include "functions/functions.h"
#include "gate/gate.h"
#include "streams/thread_stream.h"

#include <stdio.h>
#include <string.h>

enum { WORDS = 11, RESULT = 42, EPOCH = 7 };

struct driver driver;
_Alignas(64) _Atomic word functions_seen[1 << FUNCTIONS_BITS];
_Alignas(64) _Atomic uint32_t short_path_bits[(1 << SHORT_PATH_BITS) / 32];
_Atomic uint32_t gate_state;
bool gate_is_light = true;
_Thread_local struct gate_flag *gate_own;
_Thread_local int inside_driver;
_Thread_local uint32_t thread_stream_epoch;
_Atomic uint32_t device_epoch = EPOCH;

static struct gate_flag flag;
static word sent[WORDS], arrived[WORDS];
static unsigned looked, entered, inside, asked;
static CUresult ready; /* what the stream is answered */

static CUresult note(word a, word b, word c, word d, word e, word f, word g, word h, word i, word j, word k) {
    memcpy(arrived, (word[WORDS]){a, b, c, d, e, f, g, h, i, j, k}, sizeof arrived);
    inside = flag.inside;
    return (CUresult)RESULT;
}

bool driver_load(void) {
    return true;
}

CUresult thread_stream_make(const char *call) {
    (void)call;
    asked++;
    return ready;
}

enum gate_pass gate_enter(CUstream stream, bool per_thread) {
    (void)stream, (void)per_thread;
    entered++;
    return GATE_PASSED;
}

void gate_leave(void) {
    entered += 10;
}

CUresult launch_begin(struct launch *launch, word function, word stream) {
    (void)stream;
    *launch = (struct launch){.function = function};
    looked++;
    return CUDA_SUCCESS;
}

void launch_end(struct launch *launch, CUresult result) {
    (void)launch;
    looked += result == (CUresult)RESULT ? 10 : 100;
}

CUresult launch_begin_several(const struct device_launch *launches, unsigned count) {
    (void)launches, (void)count;
    return CUDA_SUCCESS;
}

typedef CUresult any(word, word, word, word, word, word, word, word, word, word, word);

static CUresult launch_as_sent(any *call) {
    memset(arrived, 0, sizeof arrived);
    looked = entered = inside = asked = 0;
    return call(sent[0], sent[1], sent[2], sent[3], sent[4], sent[5], sent[6], sent[7], sent[8], sent[9],
                sent[10]);
}

static const char *compare(unsigned words) {
    return memcmp(sent, arrived, words * sizeof *sent) == 0 ? "" : "not ";
}

static void attempt(const char *symbol, any *call, unsigned words, word function, const char *way) {
    unsigned slot = functions_slot(function), hash = short_path_hash(function);
    bool is_short = strcmp(way, "short") == 0, seen = !is_short && strcmp(way, "first") != 0;
    memset(short_path_bits, 0, sizeof short_path_bits);
    if (is_short) short_path_bits[hash / 32] = UINT32_C(1) << hash % 32;
    memset(functions_seen, 0, sizeof functions_seen);
    if (seen) functions_seen[strcmp(way, "second-place") == 0 ? slot ^ 1 : slot] = function;
    gate_state = strcmp(way, "open") == 0     ? GATE_OPEN
                 : strcmp(way, "closed") == 0 ? GATE_CLOSED
                                              : GATE_UNUSED;
    CUresult result = launch_as_sent(call);
    printf("%s %s: arguments %sas they came, result %d, looked %u, entered %u, inside %u\n", symbol, way,
           compare(words), (int)result, looked, entered, inside);
}

static word configuration[16];

/* Where the stream stands, of a call that has one. */
static word *stream_of(const char *symbol, unsigned words) {
    if (strncmp(symbol, "cuLaunchKernelEx", 16) == 0) return &configuration[4];
    if (strcmp(symbol, "cuLaunchGridAsync") == 0) return &sent[3];
    return words >= 10 ? &sent[8] : NULL;
}

static void attempt_streams(const char *symbol, any *call, unsigned words, word function) {
    static const char *const ways[] = {"known", "unknown", "refused"};
    word *stream = stream_of(symbol, words), before = stream ? *stream : 0;
    unsigned hash = short_path_hash(function);
    memset(short_path_bits, 0, sizeof short_path_bits);
    short_path_bits[hash / 32] = UINT32_C(1) << hash % 32;
    for (unsigned turn = 0; stream && turn < 12; turn++) {
        *stream = turn / 3 < 3 ? turn / 3 : before;
        thread_stream_epoch = turn % 3 == 0 ? EPOCH : EPOCH - 1;
        ready = turn % 3 == 2 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
        CUresult result = launch_as_sent(call);
        printf("%s stream %d %s: arguments %sas they came, result %d, asked %u\n", symbol,
               turn / 3 < 3 ? (int)*stream : -1, ways[turn % 3], compare(words), (int)result, asked);
    }
    if (stream) *stream = before;
    ready = CUDA_SUCCESS;
}

#define DECLARE(symbol, base, since, stream, words, on) extern char symbol[];
CONVGPU_ONE_LAUNCH_CALLS(DECLARE)

#define ATTEMPT(symbol, base, since, stream, words, on)                                                      \
    driver.symbol = (void *)note;                                                                            \
    for (unsigned way = 0; way < sizeof ways / sizeof *ways; way++) {                                        \
        word a = sent[0], b = sent[1];                                                                       \
        (void)a, (void)b;                                                                                    \
        attempt(#symbol, (any *)(void *)symbol, words, LAUNCHED_##symbol, ways[way]);                        \
        if (way == 0) attempt_streams(#symbol, (any *)(void *)symbol, words, LAUNCHED_##symbol);             \
    }

int main(void) {
    static const char *const ways[] = {"short", "first", "known", "second-place", "open", "closed"};
    for (unsigned i = 0; i < WORDS; i++) sent[i] = UINT64_C(0x7f0000001230) + i * UINT64_C(0x100000001);
    sent[0] = (word)(uintptr_t)configuration;
    configuration[4] = sent[8];
    gate_own = &flag;
    CONVGPU_ONE_LAUNCH_CALLS(ATTEMPT)
    return 0;
}
