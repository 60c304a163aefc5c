/* SPDX-License-Identifier: Apache-2.0
 *
 * Pause, grant, death and settling on one device: programs with the hook, the scheduler, and the driver between them.
 * What is modelled and what is not: README.md. Each BREAK_... takes one precaution away, and has to be found wrong.
 */
#ifndef PROGRAMS
#define PROGRAMS 3
#endif
#ifndef MEMORY
#define MEMORY 3 /* units of the device */
#endif
#ifndef LIMIT
#define LIMIT 2 /* of each program */
#endif
#ifndef CHANGES
#define CHANGES 0 /* of limits, while programs run */
#endif
#ifndef MOST
#define MOST LIMIT /* up to which a limit may be raised, and programs ask */
#endif
#ifndef CALLS
#define CALLS 2 /* allocations and frees of each program */
#endif
#ifndef KILLS
#define KILLS 1
#endif

mtype = { ASK, FREED, GONE, CHANGE };
#define REJECTED 255

/* The page of each program: shared by the hook and the scheduler. */
byte headroom[PROGRAMS];
bool wanted[PROGRAMS];

/* The connections. Only the scheduler answers: with what is settling. */
chan line[PROGRAMS] = [4] of { mtype, byte };
chan answer[PROGRAMS] = [1] of { byte };
chan admin = [1] of { byte, byte }; /* a program, and the limit that is asked for */

/* The driver. `leaving`: of a dead program, not yet free. */
byte card = MEMORY;
byte used[PROGRAMS];
byte leaving[PROGRAMS];

/* The scheduler's book. `settling`: promised to the next, and perhaps not free yet. */
byte unleased = MEMORY;
byte leased[PROGRAMS];
byte need[PROGRAMS]; /* what its open ALLOCATE asks for, 0: none is open */
byte settling[PROGRAMS];
byte limit[PROGRAMS] = LIMIT;
byte target[PROGRAMS]; /* a limit that was asked for and is not in force, 0: none */
bool watching;

/* The world. */
bool killed[PROGRAMS], dead[PROGRAMS], idle[PROGRAMS], go[PROGRAMS];

#define EACH(p) p : 0 .. PROGRAMS - 1
#if PROGRAMS > 2
#define THIRD(...) __VA_ARGS__
#else
#define THIRD(...)
#endif

inline settling_now(sum) {
    d_step {
        sum = 0;
        for (EACH(s)) { sum = sum + settling[s] }
        s = 0
    }
}

/* ---- a program with the hook ---- */

/* Not sequentially consistent on real machines, if it were not so declared: page.h says that it is. */
inline give(n) {
#ifdef BREAK_GIVE /* looks at `wanted` first */
    report = wanted[me];
    headroom[me] = headroom[me] + n;
    if
    :: report -> wanted[me] = false; line[me]!FREED(0)
    :: else
    fi;
#else
    headroom[me] = headroom[me] + n;
    if
    :: wanted[me] -> atomic { report = wanted[me]; wanted[me] = false };
        if
        :: report -> line[me]!FREED(0)
        :: else
        fi
    :: else
    fi;
#endif
    report = false
}

/* cuMemAlloc after the bytes were accepted. A refusal is the program's error only when nothing settles. */
inline call_driver(n) {
    do
    :: atomic { card >= n -> card = card - n; used[me] = used[me] + n }; break
    :: else ->
        settling_now(sum);
        if
        :: sum > 0 -> (card >= n || killed[me]) /* watches the driver's free memory */
        :: else ->
#ifndef BREAK_LAST_TRY
            /* It may have settled between the refusal and the question: this try tells. */
            if
            :: atomic { card >= n -> card = card - n; used[me] = used[me] + n }; break
            :: else -> assert(false)
            fi
#else
            assert(false)
#endif
        fi
    od
}

proctype Program(byte me) {
    byte calls = CALLS, n, told, s, sum;
    bool report;
    {
        do
        :: calls > 0 && used[me] < MOST ->
            calls--;
            if
            :: n = 1
            :: used[me] + 2 <= MOST -> n = 2
            fi;
            if
            :: atomic { headroom[me] >= n -> headroom[me] = headroom[me] - n }
            :: else -> line[me]!ASK(n); answer[me]?told /* it watches at once if that is not 0; here it tries first */
            fi;
            if
            :: told == REJECTED
            :: else -> told = 0; call_driver(n)
            fi;
            told = 0;
            skip;
            atomic { n = 0; sum = 0 }
        :: calls > 0 && used[me] > 0 ->
            calls--;
            if
            :: n = 1
            :: used[me] > 1 -> n = used[me]
            fi;
            atomic { card = card + n; used[me] = used[me] - n };
            give(n);
            n = 0
        :: break
        od;
        /* It ends now, or idles with what it has until everything else is at rest. */
        if
        :: true
        :: idle[me] = true; (go[me] || killed[me]); idle[me] = false
        fi
    } unless { killed[me] };
    /* The kernel: the socket closes first, the memory comes back later. */
    d_step { idle[me] = false; leaving[me] = used[me]; used[me] = 0; n = 0; told = 0; sum = 0; s = 0; report = false; calls = 0 };
    line[me]!GONE(0);
    dead[me] = true
}

/* ---- the driver frees what dead programs had ---- */

active proctype Driver() {
    byte p;
end:
    do
    :: atomic {
        if
        :: leaving[0] > 0 && dead[0] -> p = 0
        :: leaving[1] > 0 && dead[1] -> p = 1
        THIRD(:: leaving[2] > 0 && dead[2] -> p = 2)
        fi;
        card = card + leaving[p];
        leaving[p] = 0;
        p = 0
       }
    od
}

#include "scheduler.pml"

/* ---- the world ---- */

/* Kills as many programs as it likes up to KILLS, whenever it likes. */
active proctype Killer() {
    byte kills = KILLS;
end:
    do
    :: kills > 0 && !killed[0] -> killed[0] = true; kills--
    :: kills > 0 && !killed[1] -> killed[1] = true; kills--
    :: break
    od
}

#if CHANGES
/* Asks for other limits, of one program after the other, whenever it likes. */
active proctype Administrator() {
    byte changes = CHANGES, n;
end:
    do
    :: changes > 0 ->
        changes--;
        if
        :: LIMIT > 1 -> n = 1
        :: MOST > LIMIT -> n = MOST
        fi;
        admin!(changes & 1), n
    :: break
    od
}
#endif

/* Whenever nothing moves any more: nobody waits who could be served out of what is really unused (no lost wake-up).
 * Then one of the idle programs ends; when none is left, nobody waits (no deadlock) and all memory is back. */
active proctype Rest() {
    byte p, r, s, round, work, sum;
    bool safe;
    bool ended[PROGRAMS];
    do
    :: timeout ->
        for (EACH(p)) {
            if
            :: need[p] > 0 ->
                for (EACH(s)) { take(s) } /* what the scheduler would know if it looked now */
                if
                :: need[p] <= unleased && leased[p] + need[p] <= limit[p] -> judge(p, need[p]); assert(!safe)
                :: else
                fi
            :: else
            fi;
#if CHANGES
            take(p);
            assert(!LOWERS(p) || leased[p] == limit[p]) /* it follows what is freed */
#endif
        };
        safe = false; s = 0; p = 0;
        if
        :: idle[0] && !go[0] -> go[0] = true
        :: idle[1] && !go[1] -> go[1] = true
        THIRD(:: idle[2] && !go[2] -> go[2] = true)
        :: else -> break
        fi
    od;
    for (EACH(p)) { assert(dead[p] && need[p] == 0 && target[p] == 0) }
    assert(card == MEMORY && unleased == MEMORY)
}

init {
    atomic {
        run Program(0);
        run Program(1);
        THIRD(run Program(2))
    }
}
