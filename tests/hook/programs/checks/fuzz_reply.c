/* SPDX-License-Identifier: Apache-2.0
 *
 * Whatever a scheduler answers: the hook's readers of replies, fed with bytes. For libFuzzer (`make fuzz`),
 * or with -DREPLAY a program that takes the files named on its command line, each once.
 *
 * The first byte of an input says who reads the rest: the handshake (with a page, with one that is too small,
 * or with none), the service thread while requests are open, or an observer. The readers' own files are
 * included, for what is static in them.
 */
#include "../../../../hook/src/scheduler/channel.c"
#include "../../../../hook/src/scheduler/connection.c"
#undef fail
#include "../../../../hook/src/scheduler/observer.c"

#include <assert.h>
#include <stdio.h>

enum { WITHOUT_PAGE, WITH_PAGE, WITH_SMALL_PAGE, SERVICE, OBSERVER, READERS };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What the readers use of the rest of the hook, and what is not to be seen here. */
void log_refusal(const char *format, ...) {
    (void)format;
}

void log_debug(const char *format, ...) {
    (void)format;
}

uint32_t notice_after(void) {
    return 0;
}

uint64_t notice_clock(void) {
    return 0;
}

void notice_begin(const char *why) {
    assert(strlen(why) < CONVGPU_TEXT_SIZE);
}

void notice_end(const char *call, uint64_t size, uint64_t began, bool accepted) {
    (void)call, (void)size, (void)began, (void)accepted;
}

void interrupt_hold(sigset_t *before) {
    sigemptyset(before);
}

bool interrupt_let_go(const sigset_t *before) {
    (void)before;
    return false;
}

bool interrupt_asked(void) {
    return false;
}

bool interrupt_is_recent(void) {
    return false;
}

void session_socket(char *path, size_t room) {
    snprintf(path, room, "/nowhere");
}

void session_memory(char memory[CONVGPU_MEMORY_SIZE]) {
    memory[0] = '\0';
}

static int new_page(size_t size) {
    struct convgpu_page page = {.magic = CONVGPU_PAGE_MAGIC, .version = CONVGPU_PAGE_VERSION};
    int descriptor = (int)syscall(SYS_memfd_create, "page", 0);
    assert(descriptor >= 0 && write(descriptor, &page, size) == (ssize_t)size);
    return descriptor;
}

/* The first byte carries the page's descriptor. */
static void send_all(int socket, const uint8_t *data, size_t size, int descriptor) {
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec bytes = {.iov_base = (void *)(uintptr_t)data, .iov_len = size};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1};
    if (descriptor >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *part = CMSG_FIRSTHDR(&message);
        *part = (struct cmsghdr){CMSG_LEN(sizeof descriptor), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(part), &descriptor, sizeof descriptor);
    }
    assert(size == 0 || sendmsg(socket, &message, 0) == (ssize_t)size);
    shutdown(socket, SHUT_WR);
}

static void shake_hands(void) {
    struct connection_welcome welcome = {.page = NULL};
    struct connection_failure failure = {0};
    if (read_welcome(&welcome, &failure) != 0) {
        assert(failure.refused || failure.error != EAGAIN);
        if (welcome.page) munmap(welcome.page, sizeof *welcome.page);
    } else if (channel_enter(&welcome)) {
        assert(account_devices() <= CONVGPU_MAX_DEVICES);
        connected = false;
    }
    account_reset();
}

/* Three requests are open, on a device of whose limit a WELCOME told. */
static void serve_requests(void) {
    static const enum convgpu_kind kinds[] = {CONVGPU_ALLOCATE, CONVGPU_CONTEXT, CONVGPU_QUERY};
    struct channel_answer answers[3];
    struct request open[3];
    for (int index = 0; index < 3; index++) {
        open[index] = (struct request){.id = (uint64_t)index + 1,
                                       .kind = kinds[index],
                                       .size = 4096,
                                       .call = "call",
                                       .answer = &answers[index]};
        requests_add(&open[index]);
    }
    struct connection_frame frame;
    while (connection_receive(&frame) && dispatch(&frame)) continue;
    requests_finish_all(0, CHANNEL_AWAY);
    assert(requests_take(0, 0) == NULL);
    for (int index = 0; index < 3; index++) assert(open[index].state == REQUEST_DONE);
    refused = false;
    account_reset();
}

static void observe(int socket) {
    struct convgpu_header header;
    struct observation *observation = new_frame();
    bool answered = receive_answer(socket, &header, observation);
    if (answered && is_observation(&header, observation)) {
        volatile uint64_t sum = 0; /* of all that the reader says is there */
        for (uint32_t index = 0; index < observation->figures.process_count; index++)
            sum += observation->process[index].used;
    }
    say("/nowhere", answered ? &header : NULL, observation);
    observer_release(observation);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int ends[2], reader = size > 0 ? data[0] % READERS : 0;
    if (size < 1 || size > CONVGPU_MAX_FRAME) return 0;
    assert(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    int page = reader == WITH_PAGE         ? new_page(sizeof(struct convgpu_page))
               : reader == WITH_SMALL_PAGE ? new_page(64)
                                           : -1;
    send_all(ends[1], data + 1, size - 1, page);
    connection_socket = ends[0];
    cookie = read_cookie(ends[0]);
    if (reader == OBSERVER)
        observe(ends[0]);
    else if (reader == SERVICE)
        serve_requests();
    else
        shake_hands();
    connection_close();
    close(ends[1]);
    if (page >= 0) close(page);
    return 0;
}

#ifdef REPLAY
int main(int count, char **words) {
    static uint8_t data[CONVGPU_MAX_FRAME];
    for (int index = 1; index < count; index++) {
        FILE *file = fopen(words[index], "rb");
        if (!file) return perror(words[index]), 1;
        size_t size = fread(data, 1, sizeof data, file);
        fclose(file);
        uint8_t *copy = malloc(size ? size : 1); /* of its own size, so that reading behind it is noticed */
        memcpy(copy, data, size);
        LLVMFuzzerTestOneInput(copy, size);
        free(copy);
    }
    return 0;
}
#endif
