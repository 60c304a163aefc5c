/* SPDX-License-Identifier: Apache-2.0
 *
 * What docs/protocol.md says of the bytes that a scheduler sends, for the fuzzer: a second reading of them,
 * which shares no code with the hook's.
 */
#include <convgpu/protocol.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* A process with these requests open, on device 0; ids are 1 and so on. */
enum { OPEN_REQUESTS = 4, OPEN_SIZE = 4096 };
static const struct {
    uint16_t kind;
    uint32_t flags;
} open_requests[OPEN_REQUESTS] = {{CONVGPU_ALLOCATE, 0},
                                  {CONVGPU_CONTEXT, 0},
                                  {CONVGPU_QUERY, 0},
                                  {CONVGPU_ALLOCATE, CONVGPU_ALLOCATE_FIXED}};

/* Orders and lists, in their order: how many, and what stood in them. */
struct tally {
    uint64_t count, sum;
};

static inline void tally_add(struct tally *tally, const void *bytes, size_t size) {
    const uint8_t *next = bytes;
    tally->count++;
    for (size_t index = 0; index < size; index++) tally->sum = tally->sum * 1099511628211u + next[index] + 1;
}

struct expected_answer {
    uint16_t kind; /* 0: none */
    uint8_t body[sizeof(struct convgpu_usage)];
    bool is_explained;
    char why[CONVGPU_TEXT_SIZE];
};

struct expectation {
    struct expected_answer answer[OPEN_REQUESTS];
    struct tally orders, lists;
    uint64_t frames;     /* that were understood */
    bool is_ended;       /* by the frame behind them */
    bool refused;        /* by FAILED, with this text */
    bool has_descriptor; /* it came with this frame */
    char text[CONVGPU_TEXT_SIZE];
};

/* The least body of what a scheduler sends to a process with a session; -1: it sends no such thing. */
static inline int expected_least(uint16_t kind) {
    switch (kind) {
#define LEAST(NAME, name)                                                                                    \
    case CONVGPU_##NAME:                                                                                     \
        return (int)sizeof(struct convgpu_##name);
        LEAST(WELCOME, welcome)
        LEAST(ACCEPTED, accepted)
        LEAST(REJECTED, rejected)
        LEAST(CONTEXT_SIZE, context_size)
        LEAST(USAGE, usage)
        LEAST(FAILED, failed)
        LEAST(EXPLAINED, explained)
        LEAST(CARRIER, carrier)
        LEAST(STOP, stop)
        LEAST(STEP, step)
        LEAST(EVICT, evict)
        LEAST(RESTORE, restore)
        LEAST(GO, go)
        LEAST(WATCH, watch)
        LEAST(LIST, list)
#undef LEAST
    default:
        return -1;
    }
}

/* Cuts the next frame off. False: what is there is no whole frame, or not one that a scheduler sends. */
static inline bool expected_frame(const uint8_t **data, size_t *size, struct convgpu_header *header,
                                  const uint8_t **body) {
    if (*size < sizeof *header) return false;
    memcpy(header, *data, sizeof *header);
    if (header->size < sizeof *header || header->size > CONVGPU_MAX_FRAME || header->size > *size)
        return false;
    *body = *data + sizeof *header;
    *data += header->size;
    *size -= header->size;
    bool old_failure = header->kind == CONVGPU_FAILED; /* is to be read whatever the version */
    if (header->version != CONVGPU_PROTOCOL_VERSION && !old_failure) return false;
    int least = expected_least(header->kind);
    return least >= 0 && header->size - sizeof *header >= (size_t)least;
}

/* One line that can be printed. */
static inline void expected_text(char *text, const uint8_t *from) {
    memcpy(text, from, CONVGPU_TEXT_SIZE);
    text[CONVGPU_TEXT_SIZE - 1] = '\0';
    for (size_t index = strlen(text); index-- > 0;)
        if ((uint8_t)text[index] < 32) text[index] = ' ';
}

static inline bool expect_answer(struct expectation *so_far, const struct convgpu_header *header,
                                 const uint8_t *body) {
    uint64_t index = header->id - 1;
    uint16_t asked = header->kind == CONVGPU_CONTEXT_SIZE                                   ? CONVGPU_CONTEXT
                     : header->kind == CONVGPU_USAGE                                        ? CONVGPU_QUERY
                     : header->kind == CONVGPU_ACCEPTED || header->kind == CONVGPU_REJECTED ? CONVGPU_ALLOCATE
                                                                                            : 0;
    if (asked == 0 || index >= OPEN_REQUESTS || open_requests[index].kind != asked) return false;
    struct expected_answer *answer = &so_far->answer[index];
    if (answer->kind != 0) return false; /* it has its answer */
    answer->kind = header->kind;
    memcpy(answer->body, body, (size_t)expected_least(header->kind));
    return true;
}

/* The pause of one allocation, or (id 0) of the one that was asked for last and has not been explained. */
static inline void expect_explanation(struct expectation *so_far, uint64_t id, const uint8_t *body) {
    for (int index = OPEN_REQUESTS - 1; index >= 0; index--) {
        struct expected_answer *answer = &so_far->answer[index];
        bool named = id == 0 || id == (uint64_t)index + 1;
        if (open_requests[index].kind != CONVGPU_ALLOCATE || answer->kind || answer->is_explained || !named)
            continue;
        answer->is_explained = true;
        expected_text(answer->why, body);
        return;
    }
}

/* What the service thread does with one frame. False: the connection ends. */
static inline bool expect_frame(struct expectation *so_far, const struct convgpu_header *header,
                                const uint8_t *body) {
    bool is_order = header->id >> 63 && header->kind >= CONVGPU_CARRIER && header->kind <= CONVGPU_WATCH;
    if (header->kind == CONVGPU_FAILED) {
        so_far->refused = true;
        expected_text(so_far->text, body + offsetof(struct convgpu_failed, text));
        return false;
    }
    if (is_order) {
        bool took = so_far->has_descriptor;
        so_far->has_descriptor = false;
        tally_add(&so_far->orders, &header->kind, sizeof header->kind);
        tally_add(&so_far->orders, body, (size_t)expected_least(header->kind));
        return header->kind != CONVGPU_CARRIER || took; /* a carrier that did not come */
    }
    if (header->kind == CONVGPU_LIST && header->id != 0) {
        tally_add(&so_far->lists, &header->id, sizeof header->id);
        tally_add(&so_far->lists, body, sizeof(uint32_t));
        return true;
    }
    if (header->kind == CONVGPU_EXPLAINED) {
        expect_explanation(so_far, header->id, body);
        return true;
    }
    return expect_answer(so_far, header, body);
}

/* What the service thread makes of these bytes, with the first of which a descriptor came. */
static inline void expect_service(struct expectation *all, const uint8_t *data, size_t size,
                                  bool with_descriptor) {
    struct convgpu_header header;
    const uint8_t *body;
    memset(all, 0, sizeof *all);
    all->has_descriptor = with_descriptor && size > 0;
    while (size > 0) {
        all->is_ended = !expected_frame(&data, &size, &header, &body) || !expect_frame(all, &header, body);
        if (all->is_ended) return;
        all->frames++;
        all->has_descriptor = false; /* it belongs to the frame that it came with */
    }
}
