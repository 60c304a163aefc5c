/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes whose memory moves, or whose copies an earlier porter left: carriers, and what comes on them. The
 * main thread owns the list; copy engines only answer.
 */
#ifndef PORTER_PROCESS_H
#define PORTER_PROCESS_H

#include "base/packet.h"
#include "convgpu/carrier.h"
#include "engine.h"

/* How the main loop waits for descriptors: `process_event` is called with the pointer that was given. */
struct process_loop {
    void (*watch)(int descriptor, void *process);
    void (*unwatch)(int descriptor);
    void (*poke)(void); /* has the main thread call process_settle; any thread */
    void (*hear)(void); /* handles all that the scheduler has sent by now */
};

void process_start(const struct process_loop *loop);

/* Waits for the end of a process that has copies of an earlier porter, or frees them if it has ended. */
void process_adopt(struct owner owner);

/* SESSION: takes the packet's descriptors. False: it is not one. */
bool process_session(struct packet *packet);

/* ALLOW. */
void process_allow(const struct convgpu_allow *allow);

/* CHECKPOINT: answered by CHECKPOINTED, later. */
void process_checkpoint(const struct convgpu_checkpoint *order);

/* A descriptor of this process is readable. */
void process_event(void *process, int descriptor);

/* Finishes what waited for copy engines: ended processes, and carriers that follow another. */
void process_settle(void);

/* For closer_start: what was handed over for this process is closed. */
void process_closed(void *process);

/* For engine_start. */
extern const struct engine_hooks process_engine_hooks;

#endif
