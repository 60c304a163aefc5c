/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler of pause.pml.
 */

/* Takes the headroom slots one after the other, while the programs run. */
inline take(p) {
    atomic {
        leased[p] = leased[p] - headroom[p];
        unleased = unleased + headroom[p];
        headroom[p] = 0
    }
}

inline take_all() {
    take(0);
    take(1)
    THIRD(; take(2))
}

inline arm_all(value) {
    armed[0] = value;
    armed[1] = value
    THIRD(; armed[2] = value)
}

#define LOWERS(p) (target[p] > 0 && target[p] < limit[p])

/* No program waits any more: only those with a lower target still report frees. */
inline arm_lowered() {
    armed[0] = LOWERS(0);
    armed[1] = LOWERS(1)
    THIRD(; armed[2] = LOWERS(2))
}

/* `safe`: there is an order in which every holder can get its whole limit and end after a grant of `n` to `p`. */
inline check_safety(p, n) {
    d_step {
        unleased = unleased - n; leased[p] = leased[p] + n;
        work = unleased;
        for (EACH(r)) { ended[r] = false };
        for (round : 1 .. PROGRAMS) {
            for (EACH(r)) {
                if
                :: !ended[r] && (leased[r] >= limit[r] || limit[r] - leased[r] <= work) ->
                    work = work + leased[r]; ended[r] = true
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

/* Brings targets into force as far as possible: a lower one down to what is leased, a higher one if that is safe. */
inline apply_targets() {
    for (EACH(p)) {
        if
        :: target[p] > limit[p] ->
            q = limit[p];
            limit[p] = target[p];
            check_safety(p, 0);
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

/* Rejects what exceeds the limit. */
inline reject() {
    for (EACH(p)) {
        if
#ifdef BREAK_RAISE /* waits for a higher limit */
        :: need[p] > 0 && leased[p] + need[p] > (target[p] > limit[p] -> target[p] : limit[p]) ->
            need[p] = 0; answer[p]!REJECTED
#else
        :: need[p] > 0 && leased[p] + need[p] > limit[p] -> need[p] = 0; answer[p]!REJECTED
#endif
        :: else
        fi
    };
    p = 0
}

/* Serves as long as any program can be served, in either order, so that every policy is included. */
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
            :: need[p] > 0 && need[p] <= unleased && leased[p] + need[p] <= limit[p] -> check_safety(p, need[p])
            :: else
            fi;
            if
            :: safe ->
                leased[p] = leased[p] + need[p];
                unleased = unleased - need[p];
                need[p] = 0;
                settling_now(sum);
                answer[p]!sum;
                q = 0 /* an earlier one may have become safe */
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

inline request() {
    if
    :: !all_armed && limit[p] - leased[p] <= unleased && n <= limit[p] - leased[p] ->
        /* No program waits and this one could end: grant the whole limit, the rest as headroom ahead of the answer. */
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
        take_all()
    fi
}

inline report_freed() {
    if
    :: all_armed || LOWERS(p) ->
#ifdef BREAK_REPORT /* takes, then arms */
        take(p);
        armed[p] = true
#else
        armed[p] = true;
        take(p)
#endif
    :: else
    fi
}

inline end_session() {
    atomic {
#ifndef BREAK_SETTLING
        settling[p] = leased[p] - headroom[p];
#endif
        unleased = unleased + leased[p];
        need[p] = 0;
        leased[p] = 0;
        headroom[p] = 0;
        armed[p] = false
    }
}

/* Another limit is requested. A lower one follows what is freed, so frees have to be reported. */
inline change_limit() {
    target[p] = (n == limit[p] -> 0 : n);
#ifndef BREAK_LIMIT
    if
    :: LOWERS(p) -> armed[p] = true
    :: else
    fi;
#endif
    take_all()
}

/* Arms all slots when a program begins to wait, disarms them when none does. */
inline arm_or_disarm() {
    if
    :: waiting && !all_armed ->
        all_armed = true;
#ifdef BREAK_ORDER /* takes, then arms */
        take_all();
        arm_all(true);
#else
        arm_all(true);
#ifndef BREAK_SECOND_TAKE
        take_all();
#endif
#endif
        goto served
    :: !waiting && all_armed -> all_armed = false; arm_lowered()
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
        :: kind == ASK -> request()
        :: kind == FREED -> report_freed()
        :: kind == GONE -> end_session()
#if CHANGES
        :: kind == CHANGE -> change_limit()
#endif
        fi;
served:
        serve();
        arm_or_disarm();
        waiting = false; n = 0; kind = 0
    :: atomic { settling[0] > 0 && leaving[0] == 0 -> settling[0] = 0 }
    :: atomic { settling[1] > 0 && leaving[1] == 0 -> settling[1] = 0 }
    THIRD(:: atomic { settling[2] > 0 && leaving[2] == 0 -> settling[2] = 0 })
    od
}
