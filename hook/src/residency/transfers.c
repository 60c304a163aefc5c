/* SPDX-License-Identifier: Apache-2.0 */
#include "residency/transfers.h"

#include "backing/pieces.h"
#include "backing/ranges.h"
#include "base/fork_reset.h"
#include "base/log.h"
#include "residency/carrier.h"
#include "scheduler/account.h"

#include <stdlib.h>
#include <unistd.h>

enum { DEPTH = 8, REPORT_EVERY = 8 }; /* pieces on their way; between two reports */
enum { CUDA_ERROR_UNKNOWN = 999 };

/* A piece that the porter was asked for. */
struct flight {
    bool in, again; /* asked for again, on another carrier */
    int device;
    uint64_t piece, size;
};

static struct flight flights[DEPTH];
static int count;

/* The order that is carried out. */
static struct {
    bool active, in, failed;
    int device;
    uint32_t row;
    uint64_t wanted, asked; /* bytes */
    uint64_t moved;         /* not reported yet */
    int pieces;             /* the same */
    uint64_t next;          /* pieces below this address were tried */
    CUresult refused;
} job;

void transfers_begin(bool in, int device, uint32_t row, uint64_t size) {
    job.active = true;
    job.failed = false;
    job.in = in;
    job.device = device;
    job.row = row;
    job.wanted = size;
    job.asked = job.moved = job.next = 0;
    job.pieces = 0;
    job.refused = CUDA_SUCCESS;
}

bool transfers_are_active(void) {
    return job.active || count > 0;
}

static uint32_t kind_of(const struct flight *flight) {
    return flight->in ? CONVGPU_CARRIER_IN : CONVGPU_CARRIER_OUT;
}

/* A broken carrier is found out elsewhere: the flight stays, and is asked for again. */
static void ask_for(const struct flight *flight, int descriptor) {
    struct convgpu_piece frame = {.kind = kind_of(flight),
                                  .device = (uint32_t)account_row((uint32_t)flight->device),
                                  .piece = flight->piece,
                                  .size = flight->size};
    (void)carrier_send(&frame, descriptor);
    close(descriptor);
}

static bool is_flying(uint64_t piece) {
    for (int place = 0; place < count; place++)
        if (flights[place].piece == piece) return true;
    return false;
}

/* The index of a piece that the order wants, behind job.next, in this range; or -1. The lock is held. */
static int find_in_range(const struct range *range) {
    uint64_t size;
    if (range->device != job.device || range->state != RANGE_LIVE || range->fixed) return -1;
    for (uint32_t index = 0; index < range_pieces(range); index++) {
        uint64_t piece = range_piece(range, index, &size);
        if (piece >= job.next && range_is_out(range, index) == job.in && !is_flying(piece)) return (int)index;
    }
    return -1;
}

static struct range *find_piece(int *index) {
    struct range *range = job.next ? ranges_at(job.next) : NULL;
    if (!range) range = ranges_after(job.next);
    for (; range; range = ranges_after(range->address)) {
        *index = find_in_range(range);
        if (*index >= 0) return range;
    }
    return NULL;
}

/* New memory for a piece that is to come back. */
static CUresult make_room(const struct range *range, uint64_t piece, uint64_t size) {
    CUresult result = pieces_make(range->ordinal, piece, size);
    if (result != CUDA_SUCCESS) return result;
    result = pieces_open(range->ordinal, piece, size);
    if (result != CUDA_SUCCESS) pieces_end(piece, size);
    return result;
}

/* Takes the next piece of the order on its way. False: there is none, or the driver refuses. */
static bool start(void) {
    int index, descriptor = -1;
    struct flight flight = {.in = job.in, .device = job.device};
    ranges_lock();
    struct range *range = find_piece(&index);
    if (range) {
        flight.piece = range_piece(range, (uint32_t)index, &flight.size);
        job.next = flight.piece + flight.size;
        if (job.in) job.refused = make_room(range, flight.piece, flight.size);
        if (job.refused == CUDA_SUCCESS) descriptor = pieces_export(flight.piece);
        if (job.refused == CUDA_SUCCESS && descriptor < 0) {
            job.refused = CUDA_ERROR_UNKNOWN;
            if (job.in) pieces_end(flight.piece, flight.size);
        }
        if (descriptor >= 0) range->moving++;
    }
    ranges_unlock();
    if (!range || descriptor < 0) return false;
    flights[count++] = flight;
    job.asked += flight.size;
    ask_for(&flight, descriptor);
    return true;
}

static void ask_for_more(void) {
    while (job.active && !job.failed && count < DEPTH && job.asked < job.wanted)
        if (!start()) job.failed = true;
}

/* The program's memory is nowhere any more: what it would compute from now on is wrong. */
static void end_program(uint64_t size) {
    log_refusal(
        "%llu bytes of this program's GPU memory were lost on the host while it was suspended. The program "
        "ends.",
        (unsigned long long)size);
    abort();
}

/* Whether the piece arrived. An IN that was answered, and the answer lost with its carrier, finds no copy
 * when it is asked for again: its memory is filled. */
static bool has_moved(const struct convgpu_piece *frame, const struct flight *flight) {
    bool lost =
        flight->in && frame->kind == CONVGPU_CARRIER_FAILED && frame->error == CONVGPU_CARRIER_ERROR_NO_COPY;
    if (lost && !flight->again) end_program(flight->size);
    return lost || frame->kind == (flight->in ? CONVGPU_CARRIER_FILLED : CONVGPU_CARRIER_COPIED);
}

/* What an answer changes in the table. */
static void land(const struct flight *flight, bool moved) {
    uint64_t size;
    ranges_lock();
    struct range *range = ranges_at(flight->piece);
    uint32_t index = (uint32_t)((flight->piece - range->address) / CONVGPU_PIECE_SIZE);
    (void)range_piece(range, index, &size);
    range->moving--;
    if (flight->in != moved) pieces_end(flight->piece, size); /* copied, or not filled */
    if (moved) range_set_out(range, index, !flight->in);
    ranges_unlock();
}

static void take_answer(const struct convgpu_piece *frame) {
    int place = 0;
    if (frame->kind == CONVGPU_CARRIER_FAILED && frame->failed == CONVGPU_CARRIER_HELD)
        end_program(frame->size);
    while (place < count && flights[place].piece != frame->piece) place++;
    if (place == count) return;
    struct flight flight = flights[place];
    bool moved = has_moved(frame, &flight);
    flights[place] = flights[--count];
    land(&flight, moved);
    if (moved && flight.in == job.in && flight.device == job.device) {
        job.moved += flight.size;
        job.pieces++;
    }
    if (!moved) {
        job.failed = true;
        if (flight.in) job.refused = CUDA_ERROR_UNKNOWN;
    }
}

/* Whether there is something to say; then it has been said. */
static bool fill_report(struct transfer_report *report) {
    bool ended = job.active && count == 0 && (job.failed || job.asked >= job.wanted);
    if (!ended && job.pieces < REPORT_EVERY) return false;
    bool fewer = ended && job.in && job.asked < job.wanted && job.refused == CUDA_SUCCESS;
    if (fewer) job.refused = CUDA_ERROR_UNKNOWN; /* this ends the order */
    *report = (struct transfer_report){.in = job.in,
                                       .ended = ended,
                                       .fewer = fewer,
                                       .row = job.row,
                                       .size = job.moved,
                                       .refused = ended ? job.refused : CUDA_SUCCESS};
    job.moved = 0;
    job.pieces = 0;
    if (ended) job.active = false;
    return true;
}

bool transfers_step(int milliseconds, struct transfer_report *report) {
    struct convgpu_piece frame;
    if (carrier_is_there()) ask_for_more();
    if (count > 0 && carrier_receive(&frame, milliseconds)) take_answer(&frame);
    return fill_report(report);
}

static void hold_out(const struct range *range) {
    uint64_t size;
    struct convgpu_piece frame = {.kind = CONVGPU_CARRIER_HELD,
                                  .device = (uint32_t)account_row((uint32_t)range->device)};
    for (uint32_t index = 0; range->out > 0 && index < range_pieces(range); index++) {
        frame.piece = range_piece(range, index, &size);
        frame.size = size;
        if (range_is_out(range, index) && !is_flying(frame.piece)) (void)carrier_send(&frame, -1);
    }
}

/* What is on its way in is asked for by IN, and not HELD: its copy may be gone already. */
static void greet(void) {
    ranges_lock();
    for (struct range *range = ranges_after(0); range; range = ranges_after(range->address)) hold_out(range);
    ranges_unlock();
    for (int place = 0; place < count; place++) {
        int descriptor = pieces_export(flights[place].piece);
        flights[place].again = true;
        if (descriptor >= 0) ask_for(&flights[place], descriptor);
    }
    struct convgpu_piece ready = {.kind = CONVGPU_CARRIER_READY};
    (void)carrier_send(&ready, -1);
}

void transfers_tend_carrier(void) {
    struct convgpu_piece frame;
    if (!carrier_is_offered()) return;
    while (count > 0 && carrier_is_there() && carrier_receive(&frame, 0)) take_answer(&frame);
    carrier_begin();
    greet();
}

void transfers_cancel_out(void) {
    for (int place = count - 1; place >= 0; place--) {
        struct flight flight = flights[place];
        if (flight.in) continue;
        flights[place] = flights[--count];
        ranges_lock();
        ranges_at(flight.piece)->moving--;
        ranges_unlock();
    }
    if (!job.in) job.active = false; /* else it would go on, with the gate open, on the next carrier */
}

void transfers_settle(void) {
    if (!carrier_is_there()) transfers_cancel_out();
    job.moved = 0;
    job.pieces = 0;
    if (job.wanted > job.asked) job.wanted = job.asked;
    if (count == 0) job.active = false;
}

void transfers_forget(int device, uint64_t piece, uint64_t size) {
    struct convgpu_piece frame = {.kind = CONVGPU_CARRIER_FORGET,
                                  .device = (uint32_t)account_row((uint32_t)device),
                                  .piece = piece,
                                  .size = size};
    (void)carrier_send(&frame, -1);
}

static void transfers_reset(void) {
    count = 0;
    job.active = false;
}
RESET_IN_CHILD(transfers_reset);
