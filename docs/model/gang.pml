/* SPDX-License-Identifier: Apache-2.0
 *
 * Two gangs of two containers each on one device. The containers of a gang wait for each other: none ends before the
 * other has its memory, as the workers of a distributed training do. Each may die at any time, or never come.
 *
 * -DBREAK_GANG   the scheduler serves each container by itself, by the Banker's algorithm: the state is always called
 *                safe, and both gangs wait for ever with one container served
 * -DBREAK_LIMIT  it takes the first limit of a gang as that of all: the second is not there when its turn comes
 * -DBREAK_COMING it does not give up a container that never comes
 */

#define CAPACITY 4
#define LIMIT 2 /* of each container: a gang needs all there is */
#define MATE(p) ((p) / 2 * 2 + 1 - (p) % 2)

byte unused = CAPACITY;
byte granted[4];
bool asked[4];
bool ended[4];
bool rejected[4];

inline leave(p) {
    unused = unused + granted[p];
    granted[p] = 0;
    asked[p] = false;
    ended[p] = true
}

/* `fate`: what befalls it is chosen at its start, for a process that may die at any time never waits for others. */
proctype Container(byte p) {
    byte fate;
    select(fate : 0 .. 3);
    if
    :: fate != 1 -> asked[p] = true
    :: else -> atomic { leave(p); goto over } /* never comes */
    fi;
    if
    :: granted[p] > 0
    :: atomic { rejected[p] -> leave(p); goto over }
    :: atomic { fate == 2 && granted[p] == 0 -> leave(p); goto over } /* dies while it waits */
    fi;
    if
    :: atomic { granted[MATE(p)] > 0 || ended[MATE(p)] -> leave(p) } /* its work with the other is done */
    :: atomic { fate == 3 -> leave(p) }                              /* dies with its memory */
    fi;
over:
    assert(unused <= CAPACITY)
}

/* No memory is granted that is not there. */
inline grant(p) {
    assert(unused >= LIMIT);
    unused = unused - LIMIT;
    granted[p] = LIMIT
}

#define COMPLETE(g) (asked[2 * (g)] && asked[2 * (g) + 1] && granted[2 * (g)] == 0 && granted[2 * (g) + 1] == 0)
#ifdef BREAK_LIMIT
#define FITS (unused >= LIMIT)
#else
#define FITS (unused >= 2 * LIMIT)
#endif

active proctype Scheduler() {
end:
    do
#ifdef BREAK_GANG
    :: atomic { asked[0] && granted[0] == 0 && unused >= LIMIT -> grant(0) }
    :: atomic { asked[1] && granted[1] == 0 && unused >= LIMIT -> grant(1) }
    :: atomic { asked[2] && granted[2] == 0 && unused >= LIMIT -> grant(2) }
    :: atomic { asked[3] && granted[3] == 0 && unused >= LIMIT -> grant(3) }
#else
    :: atomic { COMPLETE(0) && FITS -> grant(0); grant(1) }
    :: atomic { COMPLETE(1) && FITS -> grant(2); grant(3) }
#endif
#ifndef BREAK_COMING
    :: atomic { asked[0] && granted[0] == 0 && ended[1] && !rejected[0] -> rejected[0] = true }
    :: atomic { asked[1] && granted[1] == 0 && ended[0] && !rejected[1] -> rejected[1] = true }
    :: atomic { asked[2] && granted[2] == 0 && ended[3] && !rejected[2] -> rejected[2] = true }
    :: atomic { asked[3] && granted[3] == 0 && ended[2] && !rejected[3] -> rejected[3] = true }
#endif
    od
}

init {
    atomic {
        run Container(0);
        run Container(1);
        run Container(2);
        run Container(3)
    }
}
