/* Streams of which a chosen number is ready, on bare level-triggered epoll: what the reader costs
 * at least.
 *
 * Arguments: TRANSPORT (pipe, unix, tcp) STREAMS READY MAXEVENTS SEED
 * Prints "ready CPU_NS" when everything is registered; then, for each line with a number of
 * nanoseconds on its standard input, it works for so long and prints how many reads there were and
 * the CPU time that it has used since its start. It ends when its input does.
 *
 * It writes a byte to each of READY streams, drawn anew for each batch, then waits and reads until
 * it has them all.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int streams, ready, maxevents, epoll, *reader, *writer, *order;
static struct epoll_event *events;
static uint64_t state;

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

/* xorshift64*, reduced by multiplication. */
static uint32_t below(uint32_t bound)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (uint32_t)(((state * 0x2545f4914f6cdd1dULL >> 32) * bound) >> 32);
}

static void open_stream(const char *transport, int index)
{
    int pair[2];
    if (!strcmp(transport, "pipe")) {
        if (pipe2(pair, O_CLOEXEC))
            fail("pipe2");
    } else if (!strcmp(transport, "unix")) {
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
            fail("socketpair");
    } else {
        static int listener = -1;
        static struct sockaddr_in address = {.sin_family = AF_INET};
        if (listener < 0) {
            socklen_t len = sizeof address;
            address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            if (listener < 0 || bind(listener, (void *)&address, sizeof address) ||
                listen(listener, 256) || getsockname(listener, (void *)&address, &len))
                fail("listen");
        }
        pair[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (pair[1] < 0 || connect(pair[1], (void *)&address, sizeof address))
            fail("connect");
        pair[0] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (pair[0] < 0)
            fail("accept4");
    }
    if (fcntl(pair[0], F_SETFL, O_NONBLOCK))
        fail("fcntl");
    reader[index] = pair[0];
    writer[index] = pair[1];
}

/* One batch: READY writes, and as many waits as it takes to read them all. */
static void run_batch(void)
{
    static char buffer[1024];
    for (int i = 0; i < ready; i++) {
        int drawn = i + (int)below((uint32_t)(streams - i)), kept = order[i];
        order[i] = order[drawn];
        order[drawn] = kept;
        if (write(writer[order[i]], "e", 1) != 1)
            fail("write");
    }
    for (int left = ready; left > 0;) {
        int found = epoll_wait(epoll, events, maxevents, -1);
        for (int i = 0; i < found; i++)
            if (read(reader[events[i].data.u32], buffer, sizeof buffer) > 0)
                left--;
    }
}

int main(int count, char **words)
{
    if (count != 6)
        return 2;
    /* No program of the lab outlives its run. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setvbuf(stdout, NULL, _IOLBF, 0);
    streams = atoi(words[2]);
    ready = atoi(words[3]);
    maxevents = atoi(words[4]);
    state = strtoull(words[5], NULL, 10) * 2 + 1;
    reader = calloc(streams, sizeof *reader);
    writer = calloc(streams, sizeof *writer);
    order = calloc(streams, sizeof *order);
    events = calloc(maxevents, sizeof *events);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!reader || !writer || !order || !events || epoll < 0)
        fail("setting up");
    for (int i = 0; i < streams; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        order[i] = i;
        open_stream(words[1], i);
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, reader[i], &event))
            fail("epoll_ctl");
    }
    if (ready > streams)
        ready = streams;
    int batches = (64 + ready - 1) / ready;
    printf("ready %lld\n", (long long)clock_ns(CLOCK_THREAD_CPUTIME_ID));
    long long length;
    while (scanf("%lld", &length) == 1) {
        long reads = 0;
        int64_t start = clock_ns(CLOCK_MONOTONIC);
        while (clock_ns(CLOCK_MONOTONIC) - start < length)
            for (int i = 0; i < batches; i++, reads += ready)
                run_batch();
        printf("%ld %lld\n", reads, (long long)clock_ns(CLOCK_THREAD_CPUTIME_ID));
    }
    return 0;
}
