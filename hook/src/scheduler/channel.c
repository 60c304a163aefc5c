/* SPDX-License-Identifier: Apache-2.0
 *
 * Lock: `sending` (the connection's state, who may send; held across a send). Only its holders put requests
 * on the list (requests/), so that under it each request is sent once per connection: by its thread, or by
 * the service thread after connecting again. The service thread takes them off; so does, without a
 * connection, a thread that was interrupted.
 */
#include "scheduler/channel.h"

#include "base/background_thread.h"
#include "base/coarse_clock.h"
#include "base/futex.h"
#include "base/log.h"
#include "requests/frame.h"
#include "requests/interrupt.h"
#include "requests/notice.h"
#include "scheduler/account.h"
#include "scheduler/connection.h"
#include "scheduler/orders.h"
#include "scheduler/socket_io.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { FIRST_DELAY_MS = 50, LAST_DELAY_MS = 1000 };
enum { ANSWER_SECONDS = 5 };     /* a scheduler that is silent for longer on a question is given up */
enum { LONGEST_LINE_MS = 2000 }; /* how long the service thread waits for a reader of stderr */

static const char refusal_line[] = "the scheduler refuses this process: %s. New GPU memory is rejected.";

/* Made by the linker: REGISTER_LISTER; NULL without one. */
extern channel_lister *const __start_convgpu_listers[] __attribute__((weak, visibility("hidden")));
extern channel_lister *const __stop_convgpu_listers[] __attribute__((weak, visibility("hidden")));

static pthread_mutex_t sending = PTHREAD_MUTEX_INITIALIZER;
static bool connected; /* guarded by `sending` */
static bool refused;   /* guarded by `sending` */
static uint64_t last_id;
static bool withdraws;                      /* guarded by `sending`: this scheduler takes requests back */
static bool introduced;                     /* guarded by `sending`: ABLE was sent on this connection */
static struct connection_greeting greeting; /* the service thread's, once it runs */
static bool warned;                         /* the line about the first connection was printed */

/* Sends a request in the numbering of the present WELCOME; `sending` is held. Where the connection is broken
 * the service thread finds out and sends again. */
static void send_request(const struct request *request, int row) {
    struct request_frame frame;
    request_frame_fill(&frame, request, (uint32_t)row);
    (void)connection_send(&frame, frame.header.size);
}

/* Takes an allocation back because the program was interrupted: its answer comes at once. True without a
 * connection: then there is none, and the request is off the list. A scheduler that cannot do it answers when
 * there is memory. With a connection that is broken, or breaks before the answer, leave() ends the request.
 */
static bool withdraw(struct request *request) {
    pthread_mutex_lock(&sending);
    request->is_interrupted = true;
    if (connected && withdraws) {
        struct {
            struct convgpu_header header;
            struct convgpu_withdraw withdraw;
        } frame = {.header = {.size = sizeof frame,
                              .version = CONVGPU_PROTOCOL_VERSION,
                              .kind = CONVGPU_WITHDRAW,
                              .id = request->id}};
        (void)connection_send(&frame, sizeof frame);
    }
    bool taken = !connected && requests_take(request->id, 0);
    pthread_mutex_unlock(&sending);
    return taken;
}

/* Waits for the end of an allocation. Untimed: only then a signal whose handler has no SA_RESTART, and no
 * other, ends the wait (requests/interrupt.h). */
static enum channel_outcome wait_paused(struct request *request) {
    bool noticed = false;
    uint64_t began = notice_clock();
    uint32_t state;
    while ((state = atomic_load(&request->state)) != REQUEST_DONE) {
        if (state == REQUEST_EXPLAINED) {
            notice_begin(request->why);
            noticed = true;
            atomic_compare_exchange_strong(&request->state, &state, REQUEST_WAITS);
        } else if (syscall(SYS_futex, &request->state, FUTEX_WAIT_PRIVATE, REQUEST_WAITS, NULL, NULL, 0) <
                       0 &&
                   errno == EINTR && interrupt_asked() && withdraw(request)) {
            request->outcome = CHANNEL_AWAY;
            break;
        }
    }
    bool accepted = request->outcome == CHANNEL_ANSWERED && request->answer->kind == CONVGPU_ACCEPTED;
    if (noticed) notice_end(request->call, request->size, began, accepted);
    return request->outcome;
}

/* Waits for the end of a question. One that is not answered ends the connection, and with it the question
 * (leave()): not the next connection, on which it does not wait any more. */
static enum channel_outcome wait_for(struct request *request) {
    struct timespec bound;
    const struct timespec *end = &bound;
    clock_gettime(CLOCK_MONOTONIC, &bound);
    bound.tv_sec += ANSWER_SECONDS;
    while (atomic_load(&request->state) == REQUEST_WAITS) {
        if (futex_wait_until(&request->state, REQUEST_WAITS, end)) continue;
        pthread_mutex_lock(&sending);
        if (connected && atomic_load(&request->state) == REQUEST_WAITS) connection_shutdown();
        pthread_mutex_unlock(&sending);
        end = NULL;
    }
    return request->outcome;
}

/* Puts a request on the list and sends it; CHANNEL_ANSWERED: it is on the list. */
static enum channel_outcome post(struct request *request) {
    pthread_mutex_lock(&sending);
    int row = account_row(request->device);
    bool waits = request->kind == CONVGPU_ALLOCATE;
    enum channel_outcome outcome = refused || row < 0     ? CHANNEL_REFUSED
                                   : !connected && !waits ? CHANNEL_AWAY
                                                          : CHANNEL_ANSWERED;
    if (outcome == CHANNEL_ANSWERED) {
        request->id = ++last_id;
        requests_add(request);
        if (connected) send_request(request, row);
    }
    pthread_mutex_unlock(&sending);
    return outcome;
}

/* A futex and not a condition variable: the wait is no cancellation point (the request is on this stack), and
 * signal handlers run in it as in any system call. */
static enum channel_outcome ask(struct request *request) {
    enum channel_outcome outcome = post(request);
    return outcome == CHANNEL_ANSWERED ? wait_for(request) : outcome;
}

/* The scheduler knows of the pause before the thread stands in it, and whoever sees it may press Ctrl-C then.
 */
static enum channel_outcome ask_and_pause(struct request *request) {
    sigset_t before;
    interrupt_hold(&before);
    enum channel_outcome outcome = post(request);
    bool interrupted = interrupt_let_go(&before) || interrupt_is_recent();
    if (outcome != CHANNEL_ANSWERED) return outcome;
    return interrupted && withdraw(request) ? CHANNEL_AWAY : wait_paused(request);
}

enum channel_outcome channel_allocate(uint32_t device, uint64_t size, const char *call, uint32_t flags,
                                      struct channel_answer *answer) {
    struct request request = {
        .kind = CONVGPU_ALLOCATE, .device = device, .size = size, .call = call, .answer = answer};
    request.flags = flags;
    return ask_and_pause(&request);
}

enum channel_outcome channel_query(uint32_t device, const struct convgpu_exported *exported,
                                   struct channel_answer *answer) {
    struct request request = {
        .kind = CONVGPU_QUERY, .device = device, .exported = exported, .answer = answer};
    return ask(&request);
}

enum channel_outcome channel_context(uint32_t device, uint64_t charged, uint64_t used,
                                     struct channel_answer *answer) {
    struct request request = {
        .kind = CONVGPU_CONTEXT, .device = device, .size = charged, .used = used, .answer = answer};
    return ask(&request);
}

void channel_freed(uint32_t device) {
    struct request request = {.kind = CONVGPU_FREED, .device = device};
    pthread_mutex_lock(&sending);
    int row = account_row(device);
    if (connected && row >= 0) send_request(&request, row);
    pthread_mutex_unlock(&sending);
}

bool channel_tell(enum convgpu_kind kind, const void *body, uint32_t size) {
    struct {
        struct convgpu_header header;
        char body[CHANNEL_LONGEST_TOLD];
    } frame = {.header = {.size = (uint32_t)sizeof frame.header + size,
                          .version = CONVGPU_PROTOCOL_VERSION,
                          .kind = (uint16_t)kind}};
    memcpy(frame.body, body, size);
    pthread_mutex_lock(&sending);
    introduced |= kind == CONVGPU_ABLE;
    bool may = connected && (introduced || !orders_is_of_able(kind));
    bool told = may && connection_send(&frame, frame.header.size);
    pthread_mutex_unlock(&sending);
    return told;
}

bool channel_send(const void *frame, uint32_t size) {
    pthread_mutex_lock(&sending);
    bool sent = connected && connection_send(frame, size);
    pthread_mutex_unlock(&sending);
    return sent;
}

/* Who ends the program for it has read the line, if stderr takes one. If not, nobody waits for that: the line
 * is dropped when it is not taken soon, for this thread has to connect again. The service thread's. */
static void refuse(const char *text) {
    pthread_mutex_lock(&sending);
    bool known = refused;
    refused = true;
    pthread_mutex_unlock(&sending);
    bool late = !known && log_would_block(0);
    if (!known && !late) log_refusal(refusal_line, text);
    requests_finish_all(0, CHANNEL_REFUSED);
    if (late && !log_would_block(LONGEST_LINE_MS)) log_refusal(refusal_line, text);
}

/* False for what this scheduler should not have sent: the connection is given up and made again. */
static bool dispatch(const struct connection_frame *frame) {
    if (!connection_well_formed(frame)) return false;
    if (frame->header.kind == CONVGPU_FAILED) {
        char text[CONVGPU_TEXT_SIZE];
        connection_text(frame, text);
        refuse(text);
        return false;
    }
    if (orders_is_one(&frame->header))
        return orders_carry_out(frame->header.kind, frame->body, connection_take_descriptor());
    if (frame->header.kind == CONVGPU_LIST) {
        struct convgpu_list list;
        memcpy(&list, frame->body, sizeof list);
        for (channel_lister *const *lister = __start_convgpu_listers; lister < __stop_convgpu_listers;
             lister++)
            (*lister)(frame->header.id, list.most);
        return true;
    }
    if (frame->header.kind == CONVGPU_EXPLAINED) {
        char text[CONVGPU_TEXT_SIZE];
        connection_text(frame, text);
        requests_explain(frame->header.id, text);
        return true;
    }
    int kind = request_frame_answered(frame->header.kind);
    if (kind == 0 || frame->header.id == 0) return false;
    struct request *request = requests_take(frame->header.id, kind);
    if (!request) return false;
    struct channel_answer *answer = request->answer;
    answer->kind = frame->header.kind;
    memcpy(answer->body, frame->body, frame->size < sizeof answer->body ? frame->size : sizeof answer->body);
    /* Counted by the thread that says HELLO: an accepted size is never missing from `held`. */
    if (answer->kind == CONVGPU_ACCEPTED && request->flags & CONVGPU_ALLOCATE_FIXED)
        account_accept_fixed(request->device, request->size);
    else if (answer->kind == CONVGPU_ACCEPTED)
        account_accept(request->device, request->size);
    requests_finish(request, CHANNEL_ANSWERED);
    return true;
}

static void leave(void) {
    connection_shutdown(); /* a sender that holds `sending` gets an error now */
    pthread_mutex_lock(&sending);
    connected = introduced = false;
    connection_close();
    requests_finish_interrupted(CHANNEL_AWAY); /* before anybody connects again and asks for them anew */
    pthread_mutex_unlock(&sending);
    account_leave();
    requests_finish_all(CONVGPU_QUERY, CHANNEL_AWAY);
    requests_finish_all(CONVGPU_CONTEXT, CHANNEL_AWAY);
    log_debug("the scheduler is away");
}

/* Makes a WELCOME the state of affairs and sends what was not answered. False: it cannot be followed, and
 * there is no connection. */
static bool channel_enter(struct connection_welcome *welcome) {
    uint64_t armed;
    welcome->page->able = CONVGPU_ABLE_LIST | CONVGPU_ABLE_EXPLAINED;
    welcome->page->notice = notice_after();
    if (!account_welcome(welcome->rows, welcome->count, welcome->page, &armed)) {
        munmap(welcome->page, sizeof *welcome->page);
        connection_close();
        return false;
    }
    struct request *unserved = NULL;
    pthread_mutex_lock(&sending);
    connected = true;
    withdraws = welcome->page->flags & CONVGPU_PAGE_WITHDRAW;
    refused = false;
    for (struct request *open = requests_take_all(), *next; open; open = next) {
        int row = account_row(open->device);
        next = open->next;
        if (row < 0) {
            open->next = unserved;
            unserved = open;
        } else {
            requests_add(open);
            send_request(open, row);
        }
    }
    pthread_mutex_unlock(&sending);
    for (struct request *next; unserved; unserved = next) {
        next = unserved->next;
        requests_finish(unserved, CHANNEL_REFUSED);
    }
    for (uint32_t device = 0; device < account_devices(); device++)
        if (armed >> device & 1) channel_freed(device);
    if (orders_welcome(welcome->page->flags)) return true;
    leave();
    return false;
}

static void connect_again(void) {
    struct connection_welcome welcome;
    struct connection_failure failure;
    for (int delay = FIRST_DELAY_MS;; delay = delay * 2 < LAST_DELAY_MS ? delay * 2 : LAST_DELAY_MS) {
        struct timespec pause = {.tv_sec = delay / 1000, .tv_nsec = delay % 1000 * 1000000L};
        while (nanosleep(&pause, &pause) < 0 && errno == EINTR) continue;
        coarse_clock_tick();
        greeting.hello.held_count = account_hold(greeting.held);
        if (connection_open(&greeting, &welcome, &failure)) {
            if (channel_enter(&welcome)) break;
        } else if (failure.refused) {
            refuse(failure.text);
        }
    }
    log_debug("connected again to %s", greeting.path);
}

static void *serve(void *unused) {
    (void)unused;
    prctl(PR_SET_NAME, "convgpu");
    for (;;) {
        struct connection_frame frame;
        while (connection_receive(&frame) && dispatch(&frame)) continue;
        leave();
        connect_again();
    }
    return NULL;
}

bool channel_open(const char *path, const char *program, const char *memory,
                  const struct convgpu_held *present, uint32_t count) {
    struct connection_welcome welcome;
    struct connection_failure failure = {.error = ENAMETOOLONG};
    memset(&greeting, 0, sizeof greeting);
    coarse_clock_tick();
    greeting.hello.pid = (uint32_t)getpid();
    strncpy(greeting.hello.program, program, sizeof greeting.hello.program - 1);
    strncpy(greeting.hello.memory, memory, sizeof greeting.hello.memory - 1);
    greeting.hello.held_count = count;
    memcpy(greeting.held, present, count * sizeof *present);
    bool fits = strlen(path) < sizeof greeting.path;
    if (fits) memcpy(greeting.path, path, strlen(path) + 1);
    if (fits && connection_open_first(&greeting, &welcome, &failure)) {
        failure = (struct connection_failure){.error = EAGAIN};
        bool entered = channel_enter(&welcome);
        if (entered && background_thread(serve)) {
            log_debug("connected to %s", path);
            return true;
        }
        if (entered) leave();
    }
    if (!warned && failure.refused)
        log_refusal("the scheduler refuses this process: %s. CUDA is not available to it.", failure.text);
    else if (!warned)
        log_refusal("no scheduler at %s (%s): %s. CUDA is not available to this process.", path,
                    socket_describe_error(failure.error),
                    failure.error == EAGAIN
                        ? "allow this container more processes (--pids-limit, --ulimit nproc)"
                        : "start this container with a convgpu volume and see that the plugin is enabled");
    warned = true;
    return false;
}

void channel_before_fork(void) {
    connection_before_fork();
}

void channel_in_parent(void) {
    connection_in_parent();
}

void channel_in_child(void) {
    connection_in_child();
    sending = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    connected = refused = warned = introduced = false;
    requests_in_child();
}
