/* SPDX-License-Identifier: Apache-2.0
 *
 * Pause, grant, death and settling on one device: programs with the hook, the scheduler, and the driver between them.
 * README.md says what is modelled and what is not. Each BREAK_... removes a precaution and has to violate an assertion.
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
#define MOST LIMIT /* the highest limit, and the most that a program holds */
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
bool armed[PROGRAMS];

/* The connections. Only the scheduler answers: with what is settling. */
chan line[PROGRAMS] = [4] of { mtype, byte };
chan answer[PROGRAMS] = [1] of { byte };
chan admin = [1] of { byte, byte }; /* a program, and the limit that is requested */

/* The driver: free units, those in use, and those of ended programs that are not free yet. */
byte driver_free = MEMORY;
byte used[PROGRAMS];
byte leaving[PROGRAMS];

/* The scheduler's ledger. `settling`: returned by an ended program, perhaps not free in the driver yet. */
byte unleased = MEMORY;
byte leased[PROGRAMS];
byte need[PROGRAMS]; /* units of its open ALLOCATE, 0: none is open */
byte settling[PROGRAMS];
byte limit[PROGRAMS] = LIMIT;
byte target[PROGRAMS]; /* a limit that was requested and is not in force, 0: none */
bool all_armed;

/* The environment. */
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

/* Atomic steps are sequentially consistent here; the header of the page declares the real ones so. */
inline give(n) {
#ifdef BREAK_GIVE /* reads `armed` first */
    report = armed[me];
    headroom[me] = headroom[me] + n;
    if
    :: report -> armed[me] = false; line[me]!FREED(0)
    :: else
    fi;
#else
    headroom[me] = headroom[me] + n;
    if
    :: armed[me] -> atomic { report = armed[me]; armed[me] = false };
        if
        :: report -> line[me]!FREED(0)
        :: else
        fi
    :: else
    fi;
#endif
    report = false
}

/* cuMemAlloc after the bytes were accepted. The driver's refusal is the program's error only when nothing settles. */
inline call_driver(n) {
    do
    :: atomic { driver_free >= n -> driver_free = driver_free - n; used[me] = used[me] + n }; break
    :: else ->
        settling_now(sum);
        if
        :: sum > 0 -> (driver_free >= n || killed[me]) /* polls the driver's free memory */
        :: else ->
#ifndef BREAK_LAST_TRY
            /* It may have settled between the refusal and the query: one more try decides. */
            if
            :: atomic { driver_free >= n -> driver_free = driver_free - n; used[me] = used[me] + n }; break
            :: else -> assert(false)
            fi
#else
            assert(false)
#endif
        fi
    od
}

proctype Program(byte me) {
    byte calls = CALLS, n, reply, s, sum;
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
            :: else -> line[me]!ASK(n); answer[me]?reply /* not 0: the hook polls at once; here it tries first */
            fi;
            if
            :: reply == REJECTED
            :: else -> reply = 0; call_driver(n)
            fi;
            reply = 0;
            skip;
            atomic { n = 0; sum = 0 }
        :: calls > 0 && used[me] > 0 ->
            calls--;
            if
            :: n = 1
            :: used[me] > 1 -> n = used[me]
            fi;
            atomic { driver_free = driver_free + n; used[me] = used[me] - n };
            give(n);
            n = 0
        :: break
        od;
        /* It ends now, or idles with what it holds until nothing else can move. */
        if
        :: true
        :: idle[me] = true; (go[me] || killed[me]); idle[me] = false
        fi
    } unless { killed[me] };
    /* The kernel: the socket closes first, the memory comes back later. */
    d_step {
        idle[me] = false; leaving[me] = used[me]; used[me] = 0;
        n = 0; reply = 0; sum = 0; s = 0; report = false; calls = 0
    };
    line[me]!GONE(0);
    dead[me] = true
}

/* ---- the driver frees what ended programs held ---- */

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
        driver_free = driver_free + leaving[p];
        leaving[p] = 0;
        p = 0
       }
    od
}

#include "scheduler.pml"

/* ---- the environment ---- */

/* Kills up to KILLS programs, at any time. */
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
/* Requests other limits, for one program after the other, at any time. */
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

/* Whenever no process can move: no program waits that unused memory could serve (no lost wake-up). Then an idle program
 * ends; when none is left, no program waits (no deadlock) and all memory is returned. */
active proctype Rest() {
    byte p, r, s, round, work, sum;
    bool safe;
    bool ended[PROGRAMS];
    do
    :: timeout ->
        for (EACH(p)) {
            if
            :: need[p] > 0 ->
                for (EACH(s)) { take(s) } /* the scheduler would know this if it took all headroom now */
                if
                :: need[p] <= unleased && leased[p] + need[p] <= limit[p] -> check_safety(p, need[p]); assert(!safe)
                :: else
                fi
            :: else
            fi;
#if CHANGES
            take(p);
            assert(!LOWERS(p) || leased[p] == limit[p]) /* a lowered limit follows what is freed */
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
    assert(driver_free == MEMORY && unleased == MEMORY)
}

init {
    atomic {
        run Program(0);
        run Program(1);
        THIRD(run Program(2))
    }
}
