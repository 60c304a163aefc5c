/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler of pause.pml.
 */

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

#define LOWERS(p) (target[p] > 0 && target[p] < limit[p])

/* Nobody waits any more: who is to be lowered goes on reporting. */
inline want_lowered() {
    wanted[0] = LOWERS(0);
    wanted[1] = LOWERS(1)
    THIRD(; wanted[2] = LOWERS(2))
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
                :: !ended[r] && (leased[r] >= limit[r] || limit[r] - leased[r] <= work) -> work = work + leased[r]; ended[r] = true
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

/* Brings the limits that were asked for into force as far as they can be: a lower one down to what is leased, a higher
 * one if everybody can still end. */
inline apply_targets() {
    for (EACH(p)) {
        if
        :: target[p] > limit[p] ->
            q = limit[p];
            limit[p] = target[p];
            judge(p, 0);
            if
            :: safe || leased[p] == 0
            :: else -> limit[p] = q
            fi
        :: target[p] > 0 && target[p] < limit[p] ->
            limit[p] = (leased[p] > target[p] -> (leased[p] < limit[p] -> leased[p] : limit[p]) : target[p])
        :: else
        fi;
        if
        :: target[p] == limit[p] -> target[p] = 0
        :: else
        fi;
        safe = false; q = 0
    };
    p = 0
}

/* Refuses what is beyond the limit. */
inline reject() {
    for (EACH(p)) {
        if
#ifdef BREAK_RAISE /* waits for a higher one */
        :: need[p] > 0 && leased[p] + need[p] > (target[p] > limit[p] -> target[p] : limit[p]) -> need[p] = 0; answer[p]!REJECTED
#else
        :: need[p] > 0 && leased[p] + need[p] > limit[p] -> need[p] = 0; answer[p]!REJECTED
#endif
        :: else
        fi
    };
    p = 0
}

/* Serves as long as anybody can be served, from either end of the row, so that either policy is there. */
inline serve() {
    atomic {
#if CHANGES
        apply_targets();
        reject();
#endif
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
            :: need[p] > 0 && need[p] <= unleased && leased[p] + need[p] <= limit[p] -> judge(p, need[p])
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
    :: !watching && limit[p] - leased[p] <= unleased && n <= limit[p] - leased[p] ->
        /* Nobody waits and it could end: the whole limit, what is left of it as headroom ahead of the answer. */
        atomic {
            headroom[p] = headroom[p] + limit[p] - leased[p] - n;
            unleased = unleased - (limit[p] - leased[p]);
            leased[p] = limit[p];
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
    :: watching || LOWERS(p) ->
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

/* Somebody wants another limit. A lower one follows what is freed, so that has to be reported. */
inline changed() {
    target[p] = (n == limit[p] -> 0 : n);
#ifndef BREAK_LIMIT
    if
    :: LOWERS(p) -> wanted[p] = true
    :: else
    fi;
#endif
    look()
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
    :: !waiting && watching -> watching = false; want_lowered()
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
#if CHANGES
        :: admin?p, n -> kind = CHANGE
#endif
        fi
       };
        if
        :: kind == ASK -> asked()
        :: kind == FREED -> freed()
        :: kind == GONE -> gone()
#if CHANGES
        :: kind == CHANGE -> changed()
#endif
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
