/* SPDX-License-Identifier: Apache-2.0 */
#include "requests/interrupt.h"

#include "requests/notice.h"

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

enum { RECENT = 2000, LAST_SIGNAL = 64 }; /* ms; the last that the kernel has */

static _Thread_local uint64_t interrupted __attribute__((tls_model("initial-exec"))); /* notice_clock() */

/* What a handler of the program does to a wait that it interrupts. */
enum handling { NONE, RESTARTS, ENDS };

static enum handling handling_of(int number) {
    struct sigaction action;
    if (sigaction(number, NULL, &action) < 0) return NONE; /* glibc's own */
    bool handled =
        (action.sa_flags & SA_SIGINFO) || (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
    return !handled ? NONE : action.sa_flags & SA_RESTART ? RESTARTS : ENDS;
}

static bool ends_waits(int number) {
    return handling_of(number) == ENDS;
}

/* Signals that say "end", and those that a thread gets for a fault of its own, never while it waits. */
static bool is_end(int number) {
    return number == SIGINT || number == SIGTERM || number == SIGQUIT;
}

static bool is_fault(int number) {
    return number == SIGSEGV || number == SIGBUS || number == SIGFPE || number == SIGILL ||
           number == SIGABRT || number == SIGTRAP || number == SIGSYS;
}

void interrupt_hold(sigset_t *before) {
    sigset_t ends;
    sigemptyset(&ends);
    for (int number = 1; number <= LAST_SIGNAL; number++)
        if (is_end(number)) sigaddset(&ends, number);
    pthread_sigmask(SIG_BLOCK, &ends, before);
}

bool interrupt_let_go(const sigset_t *before) {
    sigset_t pending;
    bool asked = false;
    sigemptyset(&pending);
    sigpending(&pending);
    for (int number = 1; number <= LAST_SIGNAL; number++)
        asked |= is_end(number) && sigismember(&pending, number) == 1 && sigismember(before, number) == 0 &&
                 ends_waits(number);
    if (asked) interrupted = notice_clock();
    pthread_sigmask(SIG_SETMASK, before, NULL);
    return asked;
}

/* Whether only signals that say "end", and ask for it, can have ended a wait that handlers of at least this
 * kind end. */
static bool is_certain(enum handling least) {
    bool asked = false;
    for (int number = 1; number <= LAST_SIGNAL; number++) {
        enum handling handling = handling_of(number);
        if (is_fault(number) || handling < least) continue;
        if (!is_end(number) || handling != ENDS) return false;
        asked = true;
    }
    if (asked) interrupted = notice_clock();
    return asked;
}

bool interrupt_asked(void) {
    return is_certain(ENDS);
}

bool interrupt_asked_asleep(void) {
    return is_certain(RESTARTS);
}

bool interrupt_is_recent(void) {
    return interrupted != 0 && notice_clock() - interrupted < RECENT;
}
