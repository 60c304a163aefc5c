/* SPDX-License-Identifier: Apache-2.0 */
#include "gate/gate.h"

#include "base/fork_reset.h"
#include "base/futex.h"
#include "base/log.h"
#include "base/spinlock.h"
#include "gate/captures.h"
#include "gate/queue.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

enum { FLAGS = 63 };
enum { MEMBARRIER_PRIVATE = 8, MEMBARRIER_REGISTER = 16 }; /* linux/membarrier.h is from 2017 */

/* Chunks are never freed: who reads the flags takes no lock. */
struct chunk {
    struct chunk *_Atomic next;
    struct gate_flag flags[FLAGS];
};
_Static_assert(sizeof(struct chunk) == 4096, "one page");

_Atomic uint32_t gate_state;
static struct chunk chunks;
_Thread_local struct gate_flag *gate_own __attribute__((tls_model("initial-exec")));
bool gate_is_light;                 /* written before the gate is first open */
static pthread_key_t end_of_thread; /* the same */
static bool ends_are_seen;          /* the same */
static _Atomic uint32_t changes;    /* of the state or the permits: the futex */
static _Atomic uint32_t permits, waiting;

/* At the end of a thread; its calls after that get a flag once more. */
static void give_flag(void *flag) {
    struct gate_flag *given = flag;
    gate_own = NULL;
    atomic_store_explicit(&given->inside, 0, memory_order_release);
    atomic_store_explicit(&given->taken, 0, memory_order_release);
}

static struct gate_flag *take_in(struct chunk *chunk) {
    for (int index = 0; index < FLAGS; index++) {
        uint32_t free_one = 0;
        if (atomic_compare_exchange_strong(&chunk->flags[index].taken, &free_one, 1))
            return &chunk->flags[index];
    }
    return NULL;
}

/* mmap and not malloc: see allocations.h. Of two threads that add a chunk at once, one gives its gate_own
 * back. */
static struct chunk *after(struct chunk *chunk) {
    struct chunk *next = atomic_load(&chunk->next), *none = NULL;
    if (next) return next;
    next = mmap(NULL, sizeof *next, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (next == MAP_FAILED) return NULL;
    if (atomic_compare_exchange_strong(&chunk->next, &none, next)) return next;
    munmap(next, sizeof *next);
    return none;
}

static struct gate_flag *own_flag(void) {
    for (struct chunk *chunk = &chunks; !gate_own && chunk; chunk = gate_own ? chunk : after(chunk)) {
        gate_own = take_in(chunk);
        if (gate_own && ends_are_seen) pthread_setspecific(end_of_thread, gate_own);
    }
    return gate_own;
}

static void say_inside(struct gate_flag *flag) {
    if (gate_is_light) {
        atomic_store_explicit(&flag->inside, 1, memory_order_relaxed);
        atomic_signal_fence(memory_order_seq_cst);
    } else {
        atomic_exchange(&flag->inside, 1);
    }
}

static bool take_permit(void) {
    uint32_t left = atomic_load(&permits);
    while (left > 0)
        if (atomic_compare_exchange_weak(&permits, &left, left - 1)) return true;
    return false;
}

/* A stream whose capture was broken counts too: the driver says so. */
static bool is_captured(CUstream stream, bool per_thread) {
    int status = 0;
    if (captures_count() == 0) return false;
    if (!stream && per_thread) stream = (CUstream)(uintptr_t)CU_STREAM_PER_THREAD;
    return stream && DRIVER(cuStreamIsCapturing, stream, &status) == CUDA_SUCCESS && status != 0;
}

/* The mover tells the scheduler of the first who waits. No change is lost between the decision to wait and
 * the wait: `seen` was loaded before the state and the permits, whoever changes these adds to `changes` after
 * that, and the kernel waits only while `changes` is `seen`. A signal that comes before the wait or ends it
 * is handled by the program, and the caller decides again. */
static void wait_for_change(uint32_t seen) {
    if (atomic_fetch_add(&waiting, 1) == 0) queue_wake();
    futex_wait(&changes, seen, FUTEX_FOR_EVER);
    atomic_fetch_sub(&waiting, 1);
}

static bool is_closed(void) {
    return atomic_load(&gate_state) == GATE_CLOSED;
}

enum gate_pass gate_enter(CUstream stream, bool per_thread) {
    if (!driver_load()) return GATE_REFUSED;
    if (inside_driver || !gate_takes_part()) return GATE_AROUND;
    struct gate_flag *flag = own_flag();
    if (!flag) return GATE_REFUSED;
    if (atomic_load_explicit(&flag->inside, memory_order_relaxed)) return GATE_AROUND; /* the driver's own */
    for (;;) {
        uint32_t seen = atomic_load(&changes);
        say_inside(flag);
        if (__builtin_expect(!is_closed(), 1) || take_permit()) return GATE_PASSED;
        gate_step_out(flag);
        if (is_captured(stream, per_thread)) return GATE_AROUND;
        wait_for_change(seen);
    }
}

bool gate_enter_memory(void) {
    struct gate_flag *flag = own_flag();
    if (!flag) return false;
    for (;;) {
        uint32_t seen = atomic_load(&changes);
        say_inside(flag);
        if (!is_closed() || captures_count() > 0) return true;
        gate_step_out(flag);
        wait_for_change(seen);
    }
}

void gate_leave(void) {
    gate_step_out(gate_own);
}

void gate_wait_open(void) {
    for (uint32_t seen = atomic_load(&changes); is_closed() && captures_count() == 0;
         seen = atomic_load(&changes))
        if (is_closed()) wait_for_change(seen);
}

static void change(void) {
    atomic_fetch_add(&changes, 1);
    futex_wake(&changes);
}

void gate_decide(bool takes_part) {
    if (atomic_load(&gate_state) != GATE_UNDECIDED) return;
    if (takes_part) {
        gate_is_light = syscall(SYS_membarrier, MEMBARRIER_REGISTER, 0, 0) == 0;
        if (!ends_are_seen) ends_are_seen = pthread_key_create(&end_of_thread, give_flag) == 0;
    }
    atomic_store(&gate_state, takes_part ? GATE_OPEN : GATE_UNUSED);
}

bool gate_takes_part(void) {
    return atomic_load_explicit(&gate_state, memory_order_acquire) >= (uint32_t)GATE_OPEN;
}

bool gate_has_membarrier(void) {
    return gate_is_light;
}

void gate_close(void) {
    atomic_store(&permits, 0);
    atomic_store(&gate_state, GATE_CLOSED);
    if (gate_is_light) syscall(SYS_membarrier, MEMBARRIER_PRIVATE, 0, 0);
}

void gate_open(void) {
    atomic_store(&permits, 0);
    atomic_store(&gate_state, GATE_OPEN);
    change();
}

void gate_permit(uint32_t count) {
    atomic_store(&permits, count);
    if (count > 0) change();
}

uint32_t gate_permits(void) {
    return atomic_load(&permits);
}

bool gate_is_open(void) {
    return !is_closed();
}

bool gate_is_entered(void) {
    for (struct chunk *chunk = &chunks; chunk; chunk = atomic_load(&chunk->next))
        for (int index = 0; index < FLAGS; index++)
            if (atomic_load_explicit(&chunk->flags[index].inside, memory_order_acquire)) return true;
    return false;
}

/* A flag that is given back keeps what it says. */
bool gate_take_used(void) {
    bool used = false;
    for (struct chunk *chunk = &chunks; chunk; chunk = atomic_load(&chunk->next))
        for (int index = 0; index < FLAGS; index++) {
            used |= atomic_load_explicit(&chunk->flags[index].inside, memory_order_acquire) != 0;
            if (atomic_load_explicit(&chunk->flags[index].used, memory_order_relaxed) != 0)
                used |= atomic_exchange(&chunk->flags[index].used, 0) != 0;
        }
    return used;
}

uint32_t gate_waiting(void) {
    return atomic_load(&waiting);
}

/* The parent's threads are not the child's. */
static void gate_reset(void) {
    for (struct chunk *chunk = &chunks; chunk; chunk = atomic_load(&chunk->next))
        memset(chunk->flags, 0, sizeof chunk->flags);
    gate_state = GATE_UNDECIDED;
    gate_own = NULL;
    permits = waiting = 0;
}
RESET_IN_CHILD(gate_reset);
