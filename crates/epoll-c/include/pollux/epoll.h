/*
 * The interface of epoll(7) over any event mechanism.
 *
 * Every function is the one of its name without px_, with the same arguments, results and errno; the
 * flags, operations and structures are those of <sys/epoll.h>. Where a mechanism makes a difference,
 * docs/reference/epoll-interface.md says which. Any thread may call them, and several may wait on and change one
 * instance; none may be called by a signal handler.
 *
 * -1 with ENOTRECOVERABLE is a fault of the library itself, which one line on standard error reports; the
 * instance can be used further.
 *
 * A mechanism is one of "select", "poll", "aio", "epoll" and "uring-poll".
 * On "epoll" every call is the kernel's own. An instance is closed with close(2).
 */
#ifndef POLLUX_EPOLL_H
#define POLLUX_EPOLL_H

#include <signal.h>
#include <sys/epoll.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An instance on the mechanism that the environment variable PX_POLLER names; on epoll without it.
 * Beside the errors of epoll_create1(2): EINVAL when it names none, and why the mechanism can't be had:
 * EPERM or ENOSYS where io_uring or AIO is forbidden, EAGAIN at fs.aio-max-nr, ENOMEM. */
extern int px_epoll_create(int size);
extern int px_epoll_create1(int flags);

/* The same on the mechanism that is named here. */
extern int px_epoll_create_on(const char *poller, int flags);

/* The name of the mechanism that an instance stands on by now; "epoll" for any other number. An
 * instance that another one watches is on epoll from then on. */
extern const char *px_epoll_poller(int epfd);

/* Beside the errors of epoll_ctl(2): ENOSPC at a bound of the mechanism, which a thread that waits meanwhile gets
 * as the error of its wait. */
extern int px_epoll_ctl(int epfd, int op, int fd, struct epoll_event *event);

extern int px_epoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout);
extern int px_epoll_pwait(int epfd, struct epoll_event *events, int maxevents, int timeout,
                          const sigset_t *sigmask);
extern int px_epoll_pwait2(int epfd, struct epoll_event *events, int maxevents,
                           const struct timespec *timeout, const sigset_t *sigmask);

#ifdef __cplusplus
}
#endif

#endif
