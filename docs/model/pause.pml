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
#ifndef CALLS
#define CALLS 2 /* allocations and frees of each program */
#endif
#ifndef KILLS
#define KILLS 1
#endif

mtype = { ASK, FREED, GONE };

/* The page of each program: shared by the hook and the scheduler. */
byte headroom[PROGRAMS];
bool wanted[PROGRAMS];

/* The connections. Only the scheduler answers: with what is settling. */
chan line[PROGRAMS] = [4] of { mtype, byte };
chan answer[PROGRAMS] = [1] of { byte };

/* The driver. `leaving`: of a dead program, not yet free. */
byte card = MEMORY;
byte used[PROGRAMS];
byte leaving[PROGRAMS];

/* The scheduler's book. `settling`: promised to the next, and perhaps not free yet. */
byte unleased = MEMORY;
byte leased[PROGRAMS];
byte need[PROGRAMS]; /* what its open ALLOCATE asks for, 0: none is open */
byte settling[PROGRAMS];
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
        :: calls > 0 && used[me] < LIMIT ->
            calls--;
            if
            :: n = 1
            :: used[me] + 2 <= LIMIT -> n = 2
            fi;
            if
            :: atomic { headroom[me] >= n -> headroom[me] = headroom[me] - n }
            :: else -> line[me]!ASK(n); answer[me]?told; told = 0 /* it watches at once if that is not 0; here it tries first */
            fi;
            call_driver(n);
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

/* ---- the scheduler ---- */

/* Takes the words one after the other, while the programs go on. */
inline take(p) {
    atomic {
        leased[p] = leased[p] - headroom[p];
        unleased = unleased + headroom[p];
        headroom[p] = 0
    }
}

inline look() {
    take(0);
    take(1)
    THIRD(; take(2))
}

inline want_all(value) {
    wanted[0] = value;
    wanted[1] = value
    THIRD(; wanted[2] = value)
}

/* Is there an order in which every holder can get its whole limit and end, if `p` is given `n`? */
inline judge(p, n) {
    d_step {
        unleased = unleased - n; leased[p] = leased[p] + n;
        work = unleased;
        for (EACH(r)) { ended[r] = false };
        for (round : 1 .. PROGRAMS) {
            for (EACH(r)) {
                if
                :: !ended[r] && LIMIT - leased[r] <= work -> work = work + leased[r]; ended[r] = true
                :: else
                fi
            }
        };
        safe = true;
        for (EACH(r)) {
            if
            :: leased[r] > 0 && !ended[r] -> safe = false
            :: else
            fi;
            ended[r] = false
        };
        unleased = unleased + n; leased[p] = leased[p] - n;
        work = 0; r = 0; round = 0
    }
#ifdef BREAK_SAFETY
    safe = true
#endif
}

/* Serves as long as anybody can be served, from either end of the row, so that either policy is there. */
inline serve() {
    atomic {
        if
        :: upwards = true
        :: upwards = false
        fi;
        q = 0;
        do
        :: q == PROGRAMS -> break
        :: else ->
            p = (upwards -> q : PROGRAMS - 1 - q);
            if
            :: need[p] > 0 && need[p] <= unleased -> judge(p, need[p])
            :: else
            fi;
            if
            :: safe ->
                leased[p] = leased[p] + need[p];
                unleased = unleased - need[p];
                need[p] = 0;
                settling_now(sum);
                answer[p]!sum;
                q = 0 /* it may have become safe for one before it */
            :: else -> q++
            fi;
            safe = false;
            sum = 0
        od;
        q = 0;
        p = 0;
        upwards = false;
        waiting = need[0] > 0 || need[1] > 0 THIRD(|| need[2] > 0)
    }
}

inline asked() {
    if
    :: !watching && LIMIT - leased[p] <= unleased && n <= LIMIT - leased[p] ->
        /* Nobody waits and it could end: the whole limit, what is left of it as headroom ahead of the answer. */
        atomic {
            headroom[p] = headroom[p] + LIMIT - leased[p] - n;
            unleased = unleased - (LIMIT - leased[p]);
            leased[p] = LIMIT;
            settling_now(sum);
            answer[p]!sum;
            sum = 0
        }
    :: else ->
        need[p] = n;
        look()
    fi
}

inline freed() {
    if
    :: watching ->
#ifdef BREAK_REPORT /* takes, then orders the next report */
        take(p);
        wanted[p] = true
#else
        wanted[p] = true;
        take(p)
#endif
    :: else
    fi
}

inline gone() {
    atomic {
#ifndef BREAK_SETTLING
        settling[p] = leased[p] - headroom[p];
#endif
        unleased = unleased + leased[p];
        need[p] = 0;
        leased[p] = 0;
        headroom[p] = 0;
        wanted[p] = false
    }
}

/* Starts or ends the watch over what is freed. */
inline watch() {
    if
    :: waiting && !watching ->
        watching = true;
#ifdef BREAK_ORDER /* takes, then orders reports */
        look();
        want_all(true);
#else
        want_all(true);
#ifndef BREAK_SECOND_LOOK
        look();
#endif
#endif
        goto served
    :: !waiting && watching -> watching = false; want_all(false)
    :: else
    fi
}

active proctype Scheduler() {
    byte p, q, r, s, n, round, work, sum;
    bool safe, waiting, upwards;
    bool ended[PROGRAMS];
    mtype kind;
end:
    do
    :: atomic {
        if
        :: line[0]?kind, n -> p = 0
        :: line[1]?kind, n -> p = 1
        THIRD(:: line[2]?kind, n -> p = 2)
        fi
       };
        if
        :: kind == ASK -> asked()
        :: kind == FREED -> freed()
        :: kind == GONE -> gone()
        fi;
served:
        serve();
        watch();
        waiting = false; n = 0; kind = 0
    :: atomic { settling[0] > 0 && leaving[0] == 0 -> settling[0] = 0 }
    :: atomic { settling[1] > 0 && leaving[1] == 0 -> settling[1] = 0 }
    THIRD(:: atomic { settling[2] > 0 && leaving[2] == 0 -> settling[2] = 0 })
    od
}

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
                :: need[p] <= unleased -> judge(p, need[p]); assert(!safe)
                :: else
                fi
            :: else
            fi
        };
        safe = false; s = 0; p = 0;
        if
        :: idle[0] && !go[0] -> go[0] = true
        :: idle[1] && !go[1] -> go[1] = true
        THIRD(:: idle[2] && !go[2] -> go[2] = true)
        :: else -> break
        fi
    od;
    for (EACH(p)) { assert(dead[p] && need[p] == 0) }
    assert(card == MEMORY && unleased == MEMORY)
}

init {
    atomic {
        run Program(0);
        run Program(1);
        THIRD(run Program(2))
    }
}
