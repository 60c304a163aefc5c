/* SPDX-License-Identifier: Apache-2.0
 *
 * Whatever a scheduler answers: the hook's readers of replies, fed with bytes. For libFuzzer (`make fuzz`),
 * or with -DFUZZ_MAIN a program of its own (fuzz_main.h). What they make of them is compared with a reading
 * of the bytes that shares no code with theirs (expected_reply.h).
 *
 * Who reads: the handshake (with a page, with one that is too small, or with none), the service thread while
 * requests are open (and a descriptor may come), or an observer. The readers' own files are included, for
 * what is static in them.
 */
#include "../../../../hook/src/scheduler/channel.c"
#include "../../../../hook/src/scheduler/connection.c"
#undef fail
#include "../../../../hook/src/scheduler/observer.c"

enum { WITHOUT_PAGE, WITH_PAGE, WITH_SMALL_PAGE, SERVICE, OBSERVER, SERVICE_WITH_DESCRIPTOR, FUZZ_READERS };
enum { NOISY_SLOTS = 1, NOISY_FLAGS = 2, OTHER_MAGIC = 4, OTHER_VERSION = 8 }; /* variants of the page */
enum { PADDED = 32, PADDED_SIZE = CONVGPU_MAX_FRAME + 512 };                   /* with zeros behind it */

#include "expected_reply.h"
#include "fuzz_main.h"

#include <stdarg.h>

static char refusal[1024]; /* the last line for the user */
static struct tally orders, lists;
static uint32_t welcomed_flags;

/* What the readers use of the rest of the hook, and what is not to be seen here. */
void log_refusal(const char *format, ...) {
    va_list words;
    va_start(words, format);
    vsnprintf(refusal, sizeof refusal, format, words);
    va_end(words);
    for (const char *next = refusal; *next; next++) FUZZ_CHECK((uint8_t)*next >= ' ');
}

bool log_would_block(int milliseconds) {
    (void)milliseconds;
    return false;
}

void log_debug(const char *format, ...) {
    (void)format;
}

uint32_t notice_after(void) {
    return 7;
}

uint64_t notice_clock(void) {
    return 0;
}

void notice_begin(const char *why) {
    (void)why;
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

static bool take_welcome(uint32_t page_flags) {
    welcomed_flags = page_flags;
    return true;
}

static bool take_order(enum convgpu_kind kind, const void *body, int descriptor) {
    uint16_t number = (uint16_t)kind;
    tally_add(&orders, &number, sizeof number);
    tally_add(&orders, body, (size_t)expected_least(number));
    if (descriptor >= 0) close(descriptor);
    return kind != CONVGPU_CARRIER || descriptor >= 0;
}
REGISTER_ORDERS(fuzzed, .welcomed = take_welcome, .ordered = take_order);

static void take_list(uint64_t id, uint32_t most) {
    tally_add(&lists, &id, sizeof id);
    tally_add(&lists, &most, sizeof most);
}
REGISTER_LISTER(take_list);

/* ---- the page ------------------------------------------------------------------------------------------ */

static int new_memory(size_t size) {
    int descriptor = (int)syscall(SYS_memfd_create, "page", MFD_CLOEXEC);
    FUZZ_CHECK(descriptor >= 0 && ftruncate(descriptor, (off_t)size) == 0);
    return descriptor;
}

/* A page as a variant says; its noise is the input's own. */
static int whole_page(int variant, const uint8_t *data, size_t size) {
    static int descriptor = -1;
    static struct convgpu_page page;
    uint64_t state = size * UINT64_C(0x9E3779B97F4A7C15) + 1;
    if (descriptor < 0) descriptor = new_memory(sizeof page);
    for (size_t index = 0; index < size; index += 7) state = (state ^ data[index]) * 1099511628211u;
    state |= 1;
    memset(&page, 0, sizeof page);
    uint8_t *slots = (uint8_t *)page.device;
    for (size_t place = 0; variant & NOISY_SLOTS && place < sizeof page.device; place += sizeof(uint64_t)) {
        uint64_t drawn = fuzz_draw(&state);
        drawn >>= drawn & 1 ? 0 : drawn >> 58; /* small ones too */
        memcpy(slots + place, &drawn, sizeof drawn);
    }
    page.magic = CONVGPU_PAGE_MAGIC + (variant & OTHER_MAGIC ? 1 : 0);
    page.version = CONVGPU_PAGE_VERSION + (variant & OTHER_VERSION ? 1 : 0);
    page.flags = variant & NOISY_FLAGS ? (uint32_t)fuzz_draw(&state) : 0;
    FUZZ_CHECK(pwrite(descriptor, &page, sizeof page, 0) == sizeof page);
    return descriptor;
}

static int descriptor_for(int reader, int variant, const uint8_t *data, size_t size) {
    static const uint32_t begin[] = {CONVGPU_PAGE_MAGIC, CONVGPU_PAGE_VERSION};
    static int small = -1;
    if (small < 0) {
        small = new_memory(64);
        FUZZ_CHECK(pwrite(small, begin, sizeof begin, 0) == sizeof begin);
    }
    if (reader == WITH_PAGE) return whole_page(variant, data, size);
    return reader == WITH_SMALL_PAGE || reader == SERVICE_WITH_DESCRIPTOR ? small : -1;
}

/* Whatever stands in a slot: nothing is taken that it does not hold, and what was taken is in the account. */
static void use_slot(uint32_t device, struct convgpu_slot *slot, const struct convgpu_device *row) {
    struct convgpu_slot was = *slot;
    uint64_t part = was.headroom / 2;
    bool alone, traced, elastic_page = welcomed_flags & CONVGPU_PAGE_ELASTIC;
    FUZZ_CHECK(account_published_limit(device, &alone) == (was.limit ? was.limit : row->limit));
    FUZZ_CHECK(alone == (was.alone != 0) && account_context_size(device) == row->context_size);
    FUZZ_CHECK(was.headroom == UINT64_MAX || !account_take(device, was.headroom + 1, &traced));
    FUZZ_CHECK(slot->headroom == was.headroom && account_used(device) == 0);
    FUZZ_CHECK(account_wanted(device) == (was.notify_on_free != 0));
    FUZZ_CHECK(account_take(device, part, &traced) && account_used(device) == part);
    FUZZ_CHECK(slot->headroom == was.headroom - part);
    FUZZ_CHECK(traced == ((was.trace & ~CONVGPU_TRACE_ON) != 0) && slot->trace == was.trace - traced);
    FUZZ_CHECK(slot->untraced == was.untraced + (was.trace == CONVGPU_TRACE_ON));
    FUZZ_CHECK(account_give(device, part) == (part > 0 && was.notify_on_free != 0));
    FUZZ_CHECK(slot->headroom == was.headroom && account_used(device) == 0);
    FUZZ_CHECK(was.fixed == UINT64_MAX || account_take_fixed(device, was.fixed + 1) == !elastic_page);
    FUZZ_CHECK(account_take_fixed(device, was.fixed));
    FUZZ_CHECK(account_fixed(device) == (elastic_page ? was.fixed : 0));
    account_give_fixed(device, was.fixed);
    FUZZ_CHECK(account_fixed(device) == 0 && slot->fixed == was.fixed);
}

/* ---- the readers --------------------------------------------------------------------------------------- */

/* The rows of the only WELCOME that these bytes can be, NULL when they are none; *count of them. */
static const uint8_t *expected_rows(const uint8_t *data, size_t size, bool page, uint32_t *count) {
    struct convgpu_header header;
    const uint8_t *body;
    if (!page || !expected_frame(&data, &size, &header, &body) || header.kind != CONVGPU_WELCOME) return NULL;
    memcpy(count, body, sizeof *count);
    size_t there =
        (header.size - sizeof header - sizeof(struct convgpu_welcome)) / sizeof(struct convgpu_device);
    return *count <= CONVGPU_MAX_DEVICES && *count <= there ? body + sizeof(struct convgpu_welcome) : NULL;
}

static bool expected_refusal(const uint8_t *data, size_t size, char *text) {
    struct convgpu_header header;
    const uint8_t *body;
    bool failed = expected_frame(&data, &size, &header, &body) && header.kind == CONVGPU_FAILED;
    if (failed) expected_text(text, body + offsetof(struct convgpu_failed, text));
    return failed;
}

static void enter(struct connection_welcome *welcome) {
    struct convgpu_page *page = welcome->page;
    struct convgpu_held held[CONVGPU_MAX_DEVICES];
    FUZZ_CHECK(channel_enter(welcome));
    FUZZ_CHECK(page->able == (CONVGPU_ABLE_LIST | CONVGPU_ABLE_EXPLAINED) && page->notice == 7);
    FUZZ_CHECK(welcomed_flags == page->flags && withdraws == !!(page->flags & CONVGPU_PAGE_WITHDRAW));
    uint32_t devices = 0;
    for (uint32_t row = 0; row < welcome->count; row++) {
        int device = account_find(welcome->rows[row].uuid);
        FUZZ_CHECK(device >= 0 &&
                   account_row((uint32_t)device) >= (int)row); /* the last of the same name counts */
        if (account_row((uint32_t)device) != (int)row) continue;
        if (devices++ < 4) use_slot((uint32_t)device, &page->device[row], &welcome->rows[row]);
    }
    FUZZ_CHECK(account_devices() == devices);
    struct account_chosen chosen;
    bool are_chosen = page->flags & CONVGPU_PAGE_CHOSEN && welcome->count > 0;
    FUZZ_CHECK(account_chosen(&chosen) == are_chosen && (!are_chosen || chosen.count == welcome->count));
    leave();
    FUZZ_CHECK(account_hold(held) == 0);
}

static void shake_hands(const uint8_t *data, size_t size, bool page) {
    struct connection_welcome welcome = {.page = NULL};
    struct connection_failure failure = {0};
    char text[CONVGPU_TEXT_SIZE];
    uint32_t count;
    const uint8_t *rows = expected_rows(data, size, page, &count);
    bool refusal_came = expected_refusal(data, size, text);
    bool read = read_welcome(&welcome, &failure) == 0;
    FUZZ_CHECK(read == (rows != NULL));
    if (read) {
        fuzz_understood++;
        FUZZ_CHECK(welcome.count == count && memcmp(welcome.rows, rows, count * sizeof *welcome.rows) == 0);
        enter(&welcome);
    } else {
        fuzz_refused++;
        FUZZ_CHECK(failure.refused == refusal_came && (!refusal_came || strcmp(failure.text, text) == 0));
        FUZZ_CHECK(failure.refused || failure.error == EPROTO || failure.error == ECONNRESET);
        if (welcome.page) munmap(welcome.page, sizeof *welcome.page);
    }
    account_reset();
}

static void compare_request(const struct request *request, const struct channel_answer *answer,
                            const struct expected_answer *wanted, bool is_refused) {
    bool waits = !wanted->kind && !is_refused && request->kind == CONVGPU_ALLOCATE;
    uint32_t state = !waits ? REQUEST_DONE : wanted->is_explained ? REQUEST_EXPLAINED : REQUEST_WAITS;
    FUZZ_CHECK(request->state == state);
    FUZZ_CHECK(request->is_explained == wanted->is_explained && strcmp(request->why, wanted->why) == 0);
    FUZZ_CHECK(answer->kind == wanted->kind);
    if (wanted->kind)
        FUZZ_CHECK(memcmp(answer->body, wanted->body, (size_t)expected_least(wanted->kind)) == 0);
    if (!waits)
        FUZZ_CHECK(request->outcome == (wanted->kind ? CHANNEL_ANSWERED
                                        : is_refused ? CHANNEL_REFUSED
                                                     : CHANNEL_AWAY));
}

static void serve_requests(const uint8_t *data, size_t size, bool with_descriptor) {
    struct channel_answer answers[OPEN_REQUESTS] = {0};
    struct request open[OPEN_REQUESTS];
    struct expectation wanted;
    struct connection_frame frame;
    uint64_t frames = 0;
    for (uint64_t index = 0; index < OPEN_REQUESTS; index++) {
        open[index] = (struct request){.id = index + 1,
                                       .kind = open_requests[index].kind,
                                       .flags = open_requests[index].flags,
                                       .size = OPEN_SIZE,
                                       .call = "call",
                                       .answer = &answers[index]};
        requests_add(&open[index]);
    }
    orders = lists = (struct tally){0};
    expect_service(&wanted, data, size, with_descriptor);
    while (connection_receive(&frame) && dispatch(&frame)) frames++;
    FUZZ_CHECK(frames == wanted.frames && refused == wanted.refused);
    FUZZ_CHECK(!refused || strstr(refusal, wanted.text));
    FUZZ_CHECK(memcmp(&orders, &wanted.orders, sizeof orders) == 0);
    FUZZ_CHECK(memcmp(&lists, &wanted.lists, sizeof lists) == 0);
    FUZZ_CHECK(account_used(0) == (wanted.answer[0].kind == CONVGPU_ACCEPTED ? OPEN_SIZE : 0));
    FUZZ_CHECK(account_fixed(0) == (wanted.answer[3].kind == CONVGPU_ACCEPTED ? OPEN_SIZE : 0));
    leave();
    for (int index = 0; index < OPEN_REQUESTS; index++)
        compare_request(&open[index], &answers[index], &wanted.answer[index], wanted.refused);
    fuzz_understood += frames;
    fuzz_refused += wanted.is_ended;
    requests_take_all();
    refused = false;
    account_reset();
}

static void observe(int socket, const uint8_t *data, size_t size) {
    struct convgpu_header header, sent;
    struct observation *observation = new_frame();
    struct convgpu_observed figures;
    bool whole = size >= sizeof sent;
    if (whole) memcpy(&sent, data, sizeof sent);
    whole = whole && sent.size >= sizeof sent && sent.size <= CONVGPU_MAX_FRAME && sent.size <= size;
    bool right = whole && sent.version == CONVGPU_PROTOCOL_VERSION && sent.kind == CONVGPU_OBSERVED &&
                 sent.size >= sizeof sent + sizeof figures;
    if (right) memcpy(&figures, data + sizeof sent, sizeof figures);
    right = right && sent.size - sizeof sent - sizeof figures >=
                         figures.process_count * (uint64_t)sizeof(struct convgpu_process);
    bool answered = receive_answer(socket, &header, observation);
    bool read = answered && is_observation(&header, observation);
    FUZZ_CHECK(answered == whole && read == right);
    if (read) FUZZ_CHECK(memcmp(observation, data + sizeof sent, sent.size - sizeof sent) == 0);
    *(read ? &fuzz_understood : &fuzz_refused) += 1;
    say("/nowhere", answered ? &header : NULL, observation);
    observer_release(observation);
}

/* The first byte carries the descriptor. */
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
    FUZZ_CHECK(size == 0 || sendmsg(socket, &message, 0) == (ssize_t)size);
    shutdown(socket, SHUT_WR);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t padded[PADDED_SIZE];
    int ends[2];
    if (size < 1 || size > FUZZ_LONGEST) return 0;
    int reader = data[0] % FUZZ_READERS, variant = data[0] / FUZZ_READERS;
    data++, size--;
    if (variant == PADDED) {
        memcpy(padded, data, size);
        memset(padded + size, 0, FUZZ_LONGEST - size); /* behind it there were zeros before */
        data = padded, size = sizeof padded;
    }
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    send_all(ends[1], data, size, descriptor_for(reader, variant, data, size));
    connection_socket = ends[0];
    cookie = read_cookie(ends[0]);
    if (reader == OBSERVER)
        observe(ends[0], data, size);
    else if (reader == SERVICE || reader == SERVICE_WITH_DESCRIPTOR)
        serve_requests(data, size, reader == SERVICE_WITH_DESCRIPTOR);
    else
        shake_hands(data, size, reader == WITH_PAGE && !(variant & (OTHER_MAGIC | OTHER_VERSION)));
    connection_close();
    close(ends[1]);
    return 0;
}
