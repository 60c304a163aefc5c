/* SPDX-License-Identifier: Apache-2.0 */
#include "requests/interrupt.h"

#include "requests/notice.h"

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

enum { RECENT = 2000, LAST_SIGNAL = 64 }; /* ms; the last that the kernel has */

static _Thread_local uint64_t interrupted __attribute__((tls_model("initial-exec"))); /* notice_clock() */

static bool ends_waits(int number) {
    struct sigaction action;
    if (sigaction(number, NULL, &action) < 0) return false; /* glibc's own */
    bool handled =
        (action.sa_flags & SA_SIGINFO) || (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
    return handled && !(action.sa_flags & SA_RESTART);
}

/* Signals that say "end", and those that a thread gets for a fault of its own, never while it waits. */
static bool is_end(int number) {
    return number == SIGINT || number == SIGTERM || number == SIGQUIT;
}

static bool is_fault(int number) {
    return number == SIGSEGV || number == SIGBUS || number == SIGFPE || number == SIGILL ||
           number == SIGABRT || number == SIGTRAP || number == SIGSYS;
}

bool interrupt_asked(void) {
    bool asked = false;
    for (int number = 1; number <= LAST_SIGNAL; number++) {
        if (is_fault(number) || !ends_waits(number)) continue;
        if (!is_end(number)) return false;
        asked = true;
    }
    if (asked) interrupted = notice_clock();
    return asked;
}

bool interrupt_is_recent(void) {
    return interrupted != 0 && notice_clock() - interrupted < RECENT;
}
