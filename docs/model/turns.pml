/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns on the cards: containers whose memory can leave, on one or two devices, a ledger that promises card and pool,
 * and moves between both, one unit at a time. README.md says what is modelled. Each BREAK_... removes a precaution and
 * has to be found wrong.
 */
#ifndef CONTAINERS
#define CONTAINERS 2
#endif
#ifndef DEVICES
#define DEVICES 2
#endif
#ifndef CARD
#define CARD 2 /* units of each device */
#endif
#ifndef POOL
#define POOL 1 /* units of host memory for what leaves a device */
#endif
#ifdef BREAK_SLACK
#define SLACK 0
#else
#define SLACK 1 /* units of the pool that are promised to nobody: what comes back leaves them last */
#endif
#ifndef LIMIT
#define LIMIT CARD /* of each container on each device */
#endif
#define AGE 2 /* how often a turn that waits is overtaken before it is overdue */

mtype = { RUNNING, STOPPING, STOPPED };

#define AT(c, d) ((c) * DEVICES + (d))
byte used[CONTAINERS * DEVICES]; /* what its program has, on the card and out */
byte out[CONTAINERS * DEVICES];
byte asked[CONTAINERS];   /* the device of its paused allocation, from 1; 0: none */
bool granted[CONTAINERS]; /* by the ledger: it waits for room on the card */
bool refused[CONTAINERS]; /* by the ledger, as long as nobody ends */
mtype phase[CONTAINERS] = RUNNING;
bool idle[CONTAINERS];
bool wants[CONTAINERS]; /* a thread waits at its closed gate */
bool busy[CONTAINERS];  /* it did not stop */
bool was_busy[CONTAINERS];
bool turn[CONTAINERS];
bool ended[CONTAINERS];
byte overtaken[CONTAINERS];

/* ---- sums: macros over all containers ------------------------------------------------------------------ */

#if CONTAINERS == 2
#define SUM(f, d) (f(0, d) + f(1, d))
#define ALL(f, x) (f(0, x) && f(1, x))
#else
#define SUM(f, d) (f(0, d) + f(1, d) + f(2, d))
#define ALL(f, x) (f(0, x) && f(1, x) && f(2, x))
#endif
#if DEVICES == 1
#define EVERY(f, c) (f(c, 0))
#define SOME(f, c)  (f(c, 0))
#else
#define EVERY(f, c) (f(c, 0) && f(c, 1))
#define SOME(f, c)  (f(c, 0) || f(c, 1))
#endif

#define USED(c, d)   used[AT(c, d)]
#define OUT(c, d)    out[AT(c, d)]
#define WAITS(c, d)  (granted[c] && asked[c] == (d) + 1)
#define NEED(c, d)   (OUT(c, d) + (WAITS(c, d) -> 1 : 0))
#define FREE(d)      (CARD - SUM(USED, d) + SUM(OUT, d))
#define ON_CARD(c, d) (USED(c, d) - OUT(c, d))

/* Who waits holds nothing: it is paused, idle, or stopped. A busy one counts as fixed. */
#ifdef BREAK_PAUSED
#define GIVES(c) (phase[c] == STOPPED && !turn[c])
#else
#define GIVES(c) ((phase[c] != RUNNING || ((asked[c] > 0 || idle[c]) && !busy[c])) && !turn[c])
#endif
#define MOVABLE(c, d) (GIVES(c) -> ON_CARD(c, d) : 0)
#define PLEDGED(c, d) (turn[c] -> NEED(c, d) : 0)
#define COULD_BE_FREE(d) (FREE(d) + SUM(MOVABLE, d))
#define LACKING(d) (SUM(PLEDGED, d) > FREE(d))

#define WAITING(c) (!turn[c] && (granted[c] || (phase[c] == STOPPED && wants[c])))
#define FITS(c, d)  (NEED(c, d) == 0 || NEED(c, d) + SUM(PLEDGED, d) <= COULD_BE_FREE(d) - MOVABLE(c, d))
#define LEFT_FOR(c, d) (NEED(c, d) == 0 || SUM(PLEDGED, d) <= COULD_BE_FREE(d))
#define WHOLE(c, d) (OUT(c, d) == 0)
#define NOT_OVERFULL(c, d) (FREE(d) >= 0 && SUM(OUT, d) <= POOL + SLACK)

#ifdef BREAK_WHOLE
#define MAY_HAVE(c) SOME(FITS, c) /* one device after the other */
#else
#define MAY_HAVE(c) EVERY(FITS, c)
#endif
#ifdef BREAK_GO
#define MAY_GO(c) true
#else
#define MAY_GO(c) EVERY(WHOLE, c)
#endif
/* An overdue turn is passed by nobody who is not, but for those that leave room for it when the third leaves. */
#define TAKES(c, d)   (NEED(c, d) + MOVABLE(c, d))
#define LACKS(o, d)   (TAKES(o, d) - COULD_BE_FREE(d) + SUM(PLEDGED, d))
#define HOLDS(c, d)   (GIVES(c) -> 0 : ON_CARD(c, d) + PLEDGED(c, d))
#define OVERDUE(c)    (WAITING(c) && overtaken[c] >= AGE)
#define PASSES(o, c)  (OVERDUE(o) && !OVERDUE(c))
#if CONTAINERS == 2
#define THIRD(o, c, d) 0
#else
#define OTHER(o, c)    ((o) == (c) -> (c) : 3 - (o) - (c))
#define THIRD(o, c, d) HOLDS(OTHER(o, c), d)
#endif
#define LEAVES_ROOM(o, c, d)                                                                                   \
    (TAKES(o, d) == 0 || TAKES(c, d) == 0 ||                                                                   \
     TAKES(c, d) <= (LACKS(o, d) <= 0 -> 0 : THIRD(o, c, d)) - LACKS(o, d))
#if DEVICES == 1
#define DELAYS(o, c) (!LEAVES_ROOM(o, c, 0))
#else
#define DELAYS(o, c) (!LEAVES_ROOM(o, c, 0) || !LEAVES_ROOM(o, c, 1))
#endif
#if defined(BREAK_AGE) || defined(BREAK_BACKFILL)
#define NOT_BEFORE(o, c) true
#else
#define NOT_BEFORE(o, c) (!PASSES(o, c) || !DELAYS(o, c))
#endif
#define BEFORE_NONE(o, c) (!PASSES(o, c)) /* and then it counts as overtaking, and who waits grows older */
/* Even if all that passes never leaves, the others leave enough. */
#define ENOUGH_BESIDE(o, c, d) (TAKES(o, d) == 0 || TAKES(c, d) == 0 || TAKES(o, d) + TAKES(c, d) <= CARD)
#if DEVICES == 1
#define ENOUGH(o, c) ENOUGH_BESIDE(o, c, 0)
#else
#define ENOUGH(o, c) (ENOUGH_BESIDE(o, c, 0) && ENOUGH_BESIDE(o, c, 1))
#endif

/* ---- the ledger: the Banker's algorithm over limits ----------------------------------------------------- */

#ifdef BREAK_HOST
#define PROMISE (CONTAINERS * LIMIT) /* as if the host's memory had no bound */
#else
#define PROMISE (CARD + POOL)
#endif
#define LEASE(c, d) (USED(c, d) + (WAITS(c, d) -> 1 : 0))
#define CLAIM(c, d) (ended[c] -> 0 : LIMIT - LEASE(c, d))

bool safe;
hidden short spare[DEVICES];
hidden byte one, rounds, device, ages;
hidden byte can_end[CONTAINERS];

#define ENDS(c, d) (CLAIM(c, d) <= spare[d])

/* Whether there is an order in which all get their limits and end. */
inline judge() {
    device = 0;
    do
    :: device == DEVICES -> break
    :: else -> spare[device] = PROMISE - SUM(LEASE, device); device = device + 1
    od;
    one = 0;
    do
    :: one == CONTAINERS -> break
    :: else -> can_end[one] = false; one = one + 1
    od;
    rounds = 0;
    do
    :: rounds == CONTAINERS -> break
    :: else ->
       one = 0;
       do
       :: one == CONTAINERS -> break
       :: one < CONTAINERS && !can_end[one] && EVERY(ENDS, one) ->
          can_end[one] = true;
          device = 0;
          do
          :: device == DEVICES -> break
          :: else -> spare[device] = spare[device] + LEASE(one, device); device = device + 1
          od;
          one = one + 1
       :: else -> one = one + 1
       od;
       rounds = rounds + 1
    od;
#define DONE(c, x) can_end[c]
    safe = ALL(DONE, 0);
    device = 0;
    one = 0;
    rounds = 0
}

/* ---- programs ------------------------------------------------------------------------------------------- */

inline leave(c) {
    d_step {
        ended[c] = true;
        device = 0;
        do
        :: device == DEVICES -> break
        :: else ->
           used[AT(c, device)] = 0;
           out[AT(c, device)] = 0;
           device = device + 1
        od;
        one = 0;
        do
        :: one == CONTAINERS -> break
        :: else -> refused[one] = false; one = one + 1
        od;
        device = 0;
        one = 0
    }
}

/* A turn that counted on one that did not stop is taken back. */
inline revoke() {
    d_step {
        one = 0;
        do
        :: one == CONTAINERS -> break
        :: else -> turn[one] = turn[one] && EVERY(LEFT_FOR, one); one = one + 1
        od;
        one = 0
    }
}

proctype container(byte me) {
    do
    :: atomic { phase[me] == RUNNING && asked[me] == 0 -> /* it computes: it may ask for more, rest, or end */
          idle[me] = false;
          assert(EVERY(WHOLE, me));
          if
          :: USED(me, 0) < LIMIT -> asked[me] = 1
#if DEVICES == 2
          :: USED(me, 1) < LIMIT -> asked[me] = 2
#endif
          :: idle[me] = true
          :: leave(me);
#ifdef ENDLESS
             if
             :: me > 0 -> ended[me] = false /* it comes again, for ever */
             :: else -> break
             fi
#else
             break
#endif
          fi
       }
    :: atomic { phase[me] == STOPPED && asked[me] == 0 && !wants[me] -> wants[me] = true; idle[me] = false }
    :: atomic { phase[me] == STOPPING -> phase[me] = STOPPED }
    :: atomic { phase[me] == STOPPING && !was_busy[me] ->
          phase[me] = RUNNING;
          busy[me] = true;
          was_busy[me] = true;
          revoke()
       }
    :: atomic { busy[me] -> busy[me] = false } /* it may be asked again */
    od
}

/* ---- the scheduler: any step that may be taken ---------------------------------------------------------- */

inline grant(c) {
    granted[c] = true;
    judge();
    if
    :: safe
    :: else ->
       granted[c] = false;
       refused[c] = true /* until somebody ends */
    fi
}

inline give_turn(c) {
    d_step {
#ifdef BREAK_AGE
        ages = true;
#else
        ages = ALL(BEFORE_NONE, c);
#endif
        one = 0;
        do
        :: one == CONTAINERS -> break
        :: else ->
           assert(one == c || !PASSES(one, c) || ages || ENOUGH(one, c));
           overtaken[one] = overtaken[one] + (one != c && WAITING(one) && ages -> 1 : 0);
           assert(overtaken[one] <= AGE + CONTAINERS);
           one = one + 1
        od;
        one = 0;
        overtaken[c] = 0;
        turn[c] = true
    }
}

inline go(c) {
    phase[c] = RUNNING;
    wants[c] = false;
    turn[c] = granted[c]
}

inline serve(c) {
    d_step {
        used[AT(c, asked[c] - 1)] = used[AT(c, asked[c] - 1)] + 1;
        asked[c] = 0;
        granted[c] = false;
        turn[c] = false;
        assert(EVERY(NOT_OVERFULL, c))
    }
}

#define LEAVES(c, d) (LACKING(d) && ON_CARD(c, d) > 0)
#define MOVES(c, d)                                                                                          \
    ::atomic { phase[c] == STOPPED && !turn[c] && LEAVES(c, d) && SUM(OUT, d) < POOL + SLACK ->                      \
        OUT(c, d) = OUT(c, d) + 1 }                                                                          \
    ::atomic { phase[c] == STOPPED && turn[c] && OUT(c, d) > 0 && FREE(d) > 0 -> OUT(c, d) = OUT(c, d) - 1 }
#define STEPS(c)                                                                                             \
    ::atomic { asked[c] > 0 && !granted[c] && !refused[c] -> grant(c) }                                      \
    ::atomic { WAITING(c) && MAY_HAVE(c) && ALL(NOT_BEFORE, c) -> give_turn(c) }                             \
    ::atomic { phase[c] == RUNNING && GIVES(c) && SOME(LEAVES, c) -> phase[c] = STOPPING }                   \
    ::atomic { phase[c] == STOPPED && turn[c] && MAY_GO(c) -> go(c) }                                        \
    ::atomic { phase[c] == RUNNING && turn[c] && granted[c] && FREE(asked[c] - 1) > 0 -> serve(c) }

active proctype scheduler() {
end:
    do
        STEPS(0)
        MOVES(0, 0)
        STEPS(1)
        MOVES(1, 0)
#if DEVICES == 2
        MOVES(0, 1)
        MOVES(1, 1)
#endif
#if CONTAINERS == 3
        STEPS(2)
        MOVES(2, 0)
#if DEVICES == 2
        MOVES(2, 1)
#endif
#endif
    od
}

init {
    atomic {
        run container(0);
        run container(1);
#if CONTAINERS == 3
        run container(2)
#endif
    }
}
