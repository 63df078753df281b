/*
 * nstopwatch.h - stopwatches of programs of Enduro/X: milliseconds since a moment, by a clock that nobody sets.
 *
 * C alone, without the names of POSIX, has no such clock: nothing is declared there.
 */
#ifndef POLLUX_NSTOPWATCH_H
#define POLLUX_NSTOPWATCH_H

#include <time.h>

#include "ndebug.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef CLOCK_MONOTONIC

/* The moment that it counts from. */
typedef struct pollux_stopwatch {
    struct timespec t;
} ndrx_stopwatch_t;

#define N_TIMER_DUMP(level, text, watch) \
    NDRX_LOG(level, "%s sec=%ld nsec=%ld", text, (long)(watch).t.tv_sec, (long)(watch).t.tv_nsec);

/* Milliseconds from the second moment to the first; below 0 where that came before. */
static __inline__ long long ndrx_stopwatch_diff(ndrx_stopwatch_t *one, ndrx_stopwatch_t *two)
{
    return (long long)(one->t.tv_sec - two->t.tv_sec) * 1000 + (one->t.tv_nsec - two->t.tv_nsec) / 1000000;
}

/* Moves the moment later, or earlier. */
static __inline__ void ndrx_stopwatch_plus(ndrx_stopwatch_t *watch, long long milliseconds)
{
    long long rest = watch->t.tv_nsec + milliseconds % 1000 * 1000000;
    watch->t.tv_sec += (time_t)(milliseconds / 1000);
    if (rest >= 1000000000) {
        watch->t.tv_sec++;
        rest -= 1000000000;
    } else if (rest < 0) {
        watch->t.tv_sec--;
        rest += 1000000000;
    }
    watch->t.tv_nsec = (long)rest;
}
static __inline__ void ndrx_stopwatch_minus(ndrx_stopwatch_t *watch, long long milliseconds)
{
    ndrx_stopwatch_plus(watch, -milliseconds);
}

/* Counts from now on; from so many milliseconds later, so that the time is below 0 until then. */
static __inline__ void ndrx_stopwatch_reset(ndrx_stopwatch_t *watch)
{
    clock_gettime(CLOCK_MONOTONIC, &watch->t);
}
static __inline__ void ndrx_stopwatch_timer_set(ndrx_stopwatch_t *watch, int milliseconds)
{
    ndrx_stopwatch_reset(watch);
    ndrx_stopwatch_plus(watch, milliseconds);
}

/* The time: milliseconds, seconds. */
static __inline__ long ndrx_stopwatch_get_delta(ndrx_stopwatch_t *watch)
{
    ndrx_stopwatch_t now;
    ndrx_stopwatch_reset(&now);
    return (long)ndrx_stopwatch_diff(&now, watch);
}
static __inline__ long ndrx_stopwatch_get_delta_sec(ndrx_stopwatch_t *watch)
{
    return ndrx_stopwatch_get_delta(watch) / 1000;
}

#endif

#ifdef __cplusplus
}
#endif

#endif
