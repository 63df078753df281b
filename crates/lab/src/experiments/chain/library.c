/* The chain experiment on an event library: one program, built once for each library.
 *
 * Arguments: PAIRS ACTIVE WRITES
 * Prints "ready CPU_NS" when everything is registered; then, for each line with a number of
 * nanoseconds on its standard input, it runs rounds for so long and prints how many events there
 * were and the CPU time that it has used since its start. It ends when its input does. Each event is one recv and one send, as in the arms that
 * are written in Rust; a library is asked to look once and not to wait.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int pairs, active, writes_per_round;
static int (*pair)[2];
static long to_follow, sent, received;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static int64_t clock_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void send_to(int index)
{
    if (send(pair[index][1], "e", 1, 0) != 1)
        fail("send");
}

/* One event: what came in is passed to the next pair. */
static void receive_from(int index)
{
    char byte;
    ssize_t len = recv(pair[index][0], &byte, 1, 0);
    if (len < 0 && errno == EAGAIN)
        return;
    if (len != 1)
        fail("recv");
    received++;
    if (to_follow == 0)
        return;
    to_follow--;
    sent++;
    send_to(index + 1 < pairs ? index + 1 : 0);
}

#if defined(WITH_LIBEV)

#include <ev.h>

static struct ev_loop *loop;

static void on_readable(struct ev_loop *l, ev_io *watcher, int events)
{
    (void)l;
    (void)events;
    receive_from((int)(intptr_t)watcher->data);
}

static void watch_all(void)
{
    loop = ev_default_loop(EVBACKEND_EPOLL | EVFLAG_NOENV);
    ev_io *watchers = calloc(pairs, sizeof *watchers);
    if (!loop || !watchers)
        fail("libev");
    for (int i = 0; i < pairs; i++) {
        ev_io_init(&watchers[i], on_readable, pair[i][0], EV_READ);
        watchers[i].data = (void *)(intptr_t)i;
        ev_io_start(loop, &watchers[i]);
    }
}

static void turn(void)
{
    ev_run(loop, EVRUN_NOWAIT);
}

#elif defined(WITH_LIBUV)

#include <uv.h>

static uv_loop_t *loop;

static void on_readable(uv_poll_t *handle, int status, int events)
{
    (void)status;
    (void)events;
    receive_from((int)(intptr_t)handle->data);
}

static void watch_all(void)
{
    loop = uv_default_loop();
    uv_poll_t *handles = calloc(pairs, sizeof *handles);
    if (!loop || !handles)
        fail("libuv");
    for (int i = 0; i < pairs; i++) {
        if (uv_poll_init(loop, &handles[i], pair[i][0]))
            fail("uv_poll_init");
        handles[i].data = (void *)(intptr_t)i;
        uv_poll_start(&handles[i], UV_READABLE, on_readable);
    }
}

static void turn(void)
{
    uv_run(loop, UV_RUN_NOWAIT);
}

#elif defined(WITH_LIBEVENT)

#include <event2/event.h>

static struct event_base *base;

static void on_readable(evutil_socket_t fd, short events, void *data)
{
    (void)fd;
    (void)events;
    receive_from((int)(intptr_t)data);
}

static void watch_all(void)
{
    base = event_base_new();
    if (!base)
        fail("libevent");
    for (int i = 0; i < pairs; i++) {
        struct event *event = event_new(base, pair[i][0], EV_READ | EV_PERSIST, on_readable,
                                        (void *)(intptr_t)i);
        if (!event || event_add(event, NULL))
            fail("event_add");
    }
}

static void turn(void)
{
    event_base_loop(base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
}

#else
#error "build with -DWITH_LIBEV, -DWITH_LIBUV or -DWITH_LIBEVENT"
#endif

/* One round; its number of events. */
static long run_round(void)
{
    for (int i = 0; i < active; i++)
        send_to(i * (pairs / active));
    to_follow = writes_per_round;
    sent = active;
    received = 0;
    while (received != sent)
        turn();
    return received;
}

int main(int count, char **words)
{
    if (count != 4)
        return 2;
    /* No program of the lab outlives its run. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setvbuf(stdout, NULL, _IOLBF, 0);
    pairs = atoi(words[1]);
    active = atoi(words[2]);
    writes_per_round = atoi(words[3]);
    pair = calloc(pairs, sizeof *pair);
    if (!pair)
        fail("calloc");
    for (int i = 0; i < pairs; i++)
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair[i]))
            fail("socketpair");
    watch_all();
    printf("ready %lld\n", (long long)clock_ns(CLOCK_THREAD_CPUTIME_ID));
    long long length_ns;
    while (scanf("%lld", &length_ns) == 1) {
        int64_t start = clock_ns(CLOCK_MONOTONIC);
        long events = 0;
        while (clock_ns(CLOCK_MONOTONIC) - start < length_ns)
            events += run_round();
        printf("%ld %lld\n", events, (long long)clock_ns(CLOCK_THREAD_CPUTIME_ID));
    }
    return 0;
}
