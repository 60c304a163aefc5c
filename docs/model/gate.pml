/* SPDX-License-Identifier: Apache-2.0
 *
 * The gate in front of submissions, and who closes it: threads of a program, the mover of the hook, the device, and a
 * scheduler that stops, steps and lets go. README.md says what is modelled. Each BREAK_... removes a precaution and has
 * to be found wrong.
 */
#ifndef THREADS
#define THREADS 2
#endif
#ifndef SUBMISSIONS
#define SUBMISSIONS 2 /* of each thread */
#endif
#ifndef STOPS
#define STOPS 2
#endif

mtype = { OPEN, CLOSED, STOP, STEP, GO };

mtype gate = OPEN;
bool inside[THREADS];                     /* as other cores see it */
chan store[THREADS] = [2] of { bool };    /* stores to `inside` that are still in the core's buffer */
byte changes, permits, waiting;           /* of the gate; `changes` is a futex */
byte wakes;                               /* the futex of the mover's queue */
chan orders = [2] of { mtype };
chan stopped_or_busy = [1] of { bool };   /* STOPPED: whether it is drained */
byte work;                                /* submissions that the device has not done */
bool stopped, run_told;
byte ended;

#define EACH(t) t : 0 .. THREADS - 1

/* A load followed by a change, by one instruction: it waits for the core's own stores. */
#define LOCKED(me) empty(store[me])

proctype thread(byte me) {
    byte seen, left = SUBMISSIONS;
    bool first;
    do
    :: left == 0 -> break
    :: else ->
       seen = changes;
again:
       store[me]!true;
       if
       :: gate == OPEN
       :: else ->
          if
          :: atomic { permits > 0 && LOCKED(me) -> permits = permits - 1 }
          :: permits == 0 ->
             store[me]!false;
             atomic {
                 LOCKED(me) -> first = waiting == 0;
                 waiting = waiting + 1
             }
             if
#ifndef BREAK_WAKE
             :: first -> wakes = wakes + 1
#endif
             :: else
             fi;
#ifdef BREAK_SEEN
             seen = changes;
#endif
             changes != seen; /* futex_wait */
             atomic {
                 waiting = waiting - 1;
                 seen = changes
             }
             goto again
          fi
       fi;
       atomic {
           assert(!stopped);
           work = work + 1
       }
       atomic {
           store[me]!false;
           left = left - 1
       }
    od;
    ended = ended + 1
}

/* Stores reach the other cores at any time, in their order. */
active proctype cores() {
    bool value;
end:
    do
    :: atomic { store[0]?value -> inside[0] = value }
#if THREADS > 1
    :: atomic { store[1]?value -> inside[1] = value }
#endif
#if THREADS > 2
    :: atomic { store[2]?value -> inside[2] = value }
#endif
    od
}

active proctype device() {
end:
    do
    :: work > 0 -> work = work - 1
    od
}

inline membarrier() {
    atomic {
        for (EACH(t)) {
            do
            :: store[t]?value -> inside[t] = value
            :: empty(store[t]) -> break
            od
        }
        t = 0
    }
}

/* Flags are read one after the other. */
inline wait_for_silence() {
    for (EACH(t)) {
        if
        :: !inside[t]
        :: busy = true /* the deadline */
        fi
    }
}

inline open() {
    atomic {
        permits = 0;
        gate = OPEN
    }
    changes = changes + 1
}

inline settle() {
    busy = false;
    wait_for_silence();
#ifndef BREAK_DRAIN
    if
    :: !busy && work == 0
    :: busy = true
    fi;
#endif
    if
    :: busy -> open()
    :: else ->
       atomic {
           stopped = true;
           assert(work == 0)
       }
       run_told = waiting > 0
    fi;
    stopped_or_busy!busy
}

active proctype mover() {
    byte seen, t;
    bool value, busy;
end:
    do
    :: seen = wakes;
       if
       :: stopped && !run_told && waiting > 0 -> run_told = true /* RUN */
       :: else
       fi;
       if
       :: orders?STOP ->
          permits = 0;
          gate = CLOSED;
#ifndef BREAK_MEMBARRIER
          membarrier();
#endif
          settle()
       :: orders?STEP ->
          stopped = false;
          run_told = false;
          permits = 1;
          changes = changes + 1;
          if
          :: permits == 0
          :: permits = 0 /* its time is over */
          fi;
          settle()
       :: orders?GO ->
          stopped = false;
          open()
       :: empty(orders) ->
end_idle:
          wakes != seen /* futex_wait */
       fi
    od
}

inline order(kind) {
    orders!kind;
    wakes = wakes + 1
}

init {
    byte stops = STOPS, t;
    bool busy;
    atomic {
        for (EACH(t)) { run thread(t) }
        t = 0
    }
    do
    :: stops > 0 ->
       stops = stops - 1;
       order(STOP);
       stopped_or_busy?busy;
#ifdef STEPS
       if
       :: !busy ->
          order(STEP);
          stopped_or_busy?busy
       :: true
       fi;
#endif
       if
       :: busy
       :: else ->
          run_told || ended == THREADS; /* nobody is let go for whom nobody asks */
          order(GO)
       fi
    :: else -> break
    od;
    ended == THREADS
}
