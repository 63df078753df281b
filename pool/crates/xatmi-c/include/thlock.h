/*
 * thlock.h - locks of programs of Enduro/X, by their names there: mutexes and spinlocks of POSIX.
 */
#ifndef POLLUX_THLOCK_H
#define POLLUX_THLOCK_H

#include <pthread.h>
#include <stdlib.h>

#include "ndrstandard.h"
#include "userlog.h"

/* A mutex that is ready; one that MUTEX_VAR_INIT makes so. */
#define MUTEX_LOCKDECL(name) pthread_mutex_t name = PTHREAD_MUTEX_INITIALIZER
#define MUTEX_LOCKDECLN(name) pthread_mutex_t name
#define MUTEX_VAR(name) pthread_mutex_t name
#define MUTEX_VAR_INIT(name)                              \
    do {                                                  \
        if (pthread_mutex_init(&(name), NULL) != 0) {     \
            userlog("%s: it cannot be made ready", #name); \
            exit(1);                                      \
        }                                                 \
    } while (0)
#define MUTEX_DESTROY_V(name) pthread_mutex_destroy(&(name))

#define MUTEX_LOCK_V(name) pthread_mutex_lock(&(name))
#define MUTEX_UNLOCK_V(name) pthread_mutex_unlock(&(name))
#define MUTEX_TRYLOCK_V(name) pthread_mutex_trylock(&(name))

/* One of the block that it stands in. */
#define MUTEX_LOCK                                                  \
    static pthread_mutex_t pollux_lock = PTHREAD_MUTEX_INITIALIZER; \
    pthread_mutex_lock(&pollux_lock)
#define MUTEX_UNLOCK pthread_mutex_unlock(&pollux_lock)

/* A spinlock, which NDRX_SPIN_INIT_V makes ready. */
#define NDRX_SPIN_LOCKDECL(name) pthread_spinlock_t name
#define NDRX_SPIN_INIT_V(name)                                              \
    do {                                                                    \
        if (pthread_spin_init(&(name), PTHREAD_PROCESS_PRIVATE) != 0) {     \
            userlog("%s: it cannot be made ready", #name);                   \
            exit(1);                                                        \
        }                                                                   \
    } while (0)
#define NDRX_SPIN_DESTROY_V(name) pthread_spin_destroy(&(name))
#define NDRX_SPIN_LOCK_V(name) pthread_spin_lock(&(name))
#define NDRX_SPIN_UNLOCK_V(name) pthread_spin_unlock(&(name))
#define NDRX_SPIN_TRYLOCK_V(name) pthread_spin_trylock(&(name))

#endif
