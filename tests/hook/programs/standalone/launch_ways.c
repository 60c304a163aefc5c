/* SPDX-License-Identifier: Apache-2.0
 *
 * hook/src/interpose/gated.c alone, between a driver that notes its arguments and a gate that notes its
 * calls. Says of each launch of one function, in each way that it can take, what arrived and what was asked:
 *
 *   SYMBOL WAY: arguments [not] as they came, result N, looked N, entered N, inside N
 */
#include "code/launch.h"
#include "functions/functions.h"
#include "gate/gate.h"

#include <stdio.h>
#include <string.h>

enum { WORDS = 11, RESULT = 42 };

struct driver driver;
_Alignas(64) _Atomic word functions_seen[1 << FUNCTIONS_BITS];
_Alignas(64) _Atomic uint32_t short_path_bits[(1 << SHORT_PATH_BITS) / 32];
_Atomic uint32_t gate_state;
bool gate_is_light = true;
_Thread_local struct gate_flag *gate_own;
_Thread_local int inside_driver;

static struct gate_flag flag;
static word sent[WORDS], arrived[WORDS];
static unsigned looked, entered, inside;

static CUresult note(word a, word b, word c, word d, word e, word f, word g, word h, word i, word j, word k) {
    memcpy(arrived, (word[WORDS]){a, b, c, d, e, f, g, h, i, j, k}, sizeof arrived);
    inside = flag.inside;
    return (CUresult)RESULT;
}

bool driver_load(void) {
    return true;
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
    memset(arrived, 0, sizeof arrived);
    looked = entered = inside = 0;
    CUresult result = call(sent[0], sent[1], sent[2], sent[3], sent[4], sent[5], sent[6], sent[7], sent[8],
                           sent[9], sent[10]);
    const char *same = memcmp(sent, arrived, words * sizeof *sent) == 0 ? "" : "not ";
    printf("%s %s: arguments %sas they came, result %d, looked %u, entered %u, inside %u\n", symbol, way,
           same, (int)result, looked, entered, inside);
}

#define DECLARE(symbol, base, since, stream, words, on) extern char symbol[];
CONVGPU_ONE_LAUNCH_CALLS(DECLARE)

#define ATTEMPT(symbol, base, since, stream, words, on)                                                      \
    driver.symbol = (void *)note;                                                                            \
    for (unsigned way = 0; way < sizeof ways / sizeof *ways; way++) {                                        \
        word a = sent[0], b = sent[1];                                                                       \
        (void)a, (void)b;                                                                                    \
        attempt(#symbol, (any *)(void *)symbol, words, LAUNCHED_##symbol, ways[way]);                        \
    }

int main(void) {
    static const char *const ways[] = {"short", "first", "known", "second-place", "open", "closed"};
    static word configuration[16];
    for (unsigned i = 0; i < WORDS; i++) sent[i] = UINT64_C(0x7f0000001230) + i * UINT64_C(0x100000001);
    sent[0] = (word)(uintptr_t)configuration;
    gate_own = &flag;
    CONVGPU_ONE_LAUNCH_CALLS(ATTEMPT)
    return 0;
}
