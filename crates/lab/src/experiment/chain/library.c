/* The chain experiment on an event library: one program, built once for each library.
 *
 * Arguments: PAIRS ACTIVE WRITES RAMP_MS RUNTIME_MS INTERVAL_MS
 * Prints:    ready PID            everything is registered, the ramp begins
 *            open                 the window begins when a line comes in
 *            at EVENTS            now and then, events since then
 *            close EVENTS NS      the window is over; NS as if each round were the median one
 * and ends when its standard input does. Each event is one recv and one send, as in the arms that
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

static int64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void send_to(int index)
{
    if (send(pair[index][1], "e", 1, 0) != 1)
        fail("send");
}

/* One event: what came in goes on to the next pair. */
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

/* The time of one round. */
static int64_t round_ns(void)
{
    for (int i = 0; i < active; i++)
        send_to(i * (pairs / active));
    to_follow = writes_per_round;
    sent = active;
    received = 0;
    int64_t start = now_ns();
    while (received != sent)
        turn();
    return now_ns() - start;
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int main(int count, char **words)
{
    if (count != 7)
        return 2;
    /* No program of the lab outlives its run. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setvbuf(stdout, NULL, _IOLBF, 0);
    pairs = atoi(words[1]);
    active = atoi(words[2]);
    writes_per_round = atoi(words[3]);
    int64_t ramp_ns = atoll(words[4]) * 1000000, runtime_ns = atoll(words[5]) * 1000000;
    int64_t interval_ns = atoll(words[6]) * 1000000;
    pair = calloc(pairs, sizeof *pair);
    if (!pair)
        fail("calloc");
    for (int i = 0; i < pairs; i++)
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair[i]))
            fail("socketpair");
    watch_all();
    printf("ready %d\n", (int)getpid());
    int64_t start = now_ns();
    while (now_ns() - start < ramp_ns)
        round_ns();
    printf("open\n");
    while (getchar() != '\n')
        if (feof(stdin))
            return 1;
    size_t rounds = 0, room = 1024;
    int64_t *times = malloc(room * sizeof *times);
    long per_round = active + writes_per_round;
    int64_t told = start = now_ns();
    do {
        if (rounds == room)
            times = realloc(times, (room *= 2) * sizeof *times);
        if (!times)
            fail("realloc");
        times[rounds++] = round_ns();
        if (now_ns() - told >= interval_ns) {
            told = now_ns();
            printf("at %ld\n", (long)rounds * per_round);
        }
    } while (now_ns() - start < runtime_ns);
    qsort(times, rounds, sizeof *times, ascending);
    double median = (times[rounds / 2] + times[(rounds - 1) / 2]) / 2.0;
    printf("close %ld %.0f\n", (long)rounds * per_round, median * rounds);
    while (getchar() != EOF)
        ;
    return 0;
}
