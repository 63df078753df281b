/* The baseline of herds: callers and workers on POSIX message queues, in C, with the system calls that
 * are needed and nothing else. `herd/processes.rs` builds it, starts it as
 *
 *     raw WORKERS CALLERS
 *
 * and talks with it over the socket that is its standard input, a JSON text in each message:
 *
 *     it says {"workers":[PID,...]} and "ready"
 *     it receives [IS_WINDOW,TIME_MS,INTERVAL_MS,CALLS] and calls: for a time, or so often
 *     it says an interval for each that passed, {"served":...} and {"called":...}
 *
 * and so on until the socket is closed. Each worker is a process with an epoll set of its own in
 * which the queue of requests is watched with EPOLLEXCLUSIVE; it takes one message for each wake. A
 * call is 128 bytes each way, its answer comes over the caller's own queue. No process ever blocks in a
 * send to the queue of requests: a message that a blocked sender leaves behind wakes no worker.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE = 128, ROOM = 256, DEPTH = 10, ANSWERS_DEPTH = 2 };
enum { WORKERS_MAX = 1000, CALLERS_MAX = 64, INTERVALS_MAX = 10000, TEXT_MAX = 16384 };
/* Latencies by magnitude, each in 64 parts: known to 1.6 %. */
enum { PARTS = 64, TIMES = 59 * PARTS };

/* A worker's counts, on cache lines of their own. */
struct counts { volatile uint64_t calls, waits, empty; char pad[104]; };
struct caller {
    pthread_t thread;
    int number;
    volatile uint64_t calls;
    uint64_t max_ns;
    uint64_t times[TIMES];
};
struct tick { uint64_t at_ns, calls; long long switches; };

static int workers, callers;
static pid_t worker_pids[WORKERS_MAX];
static struct counts *counts;
/* Posted by each worker that is about to wait. */
static sem_t *ready;
static struct caller people[CALLERS_MAX];
static mqd_t requests, answers_in[CALLERS_MAX], answers_out[CALLERS_MAX];
static pthread_barrier_t start;
static volatile int is_over;
static uint64_t calls_max;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t all_done;
static int done;

static void say(const char *format, ...)
{
    static char text[TEXT_MAX];
    va_list values;
    va_start(values, format);
    int length = vsnprintf(text, sizeof text, format, values);
    va_end(values);
    if (length < 0 || length >= TEXT_MAX || send(0, text, length, MSG_NOSIGNAL) != length)
        exit(2);
}

static void fail(const char *what)
{
    pthread_mutex_lock(&lock); /* Of several at once the first is reported, and ends all. */
    say("{\"failed\":\"%s: %s\"}", what, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}

/* Context switches of the machine; -1 where they can't be read. */
static long long switches(void)
{
    char line[8192];
    long long count = -1;
    FILE *stat = fopen("/proc/stat", "r");
    while (stat && fgets(line, sizeof line, stat))
        if (sscanf(line, "ctxt %lld", &count) == 1)
            break;
    if (stat)
        fclose(stat);
    return count;
}

/* A queue twice: an end that never waits, and one that does. Its name is gone. */
static mqd_t queue(int number, int depth, mqd_t *waiting)
{
    char name[64];
    struct mq_attr size = { .mq_maxmsg = depth, .mq_msgsize = ROOM };
    snprintf(name, sizeof name, "/pollux-raw-%d-%d", getpid(), number);
    mqd_t made = mq_open(name, O_CREAT | O_EXCL | O_RDWR | O_NONBLOCK, 0600, &size);
    if (made < 0)
        fail("mq_open (see ulimit -q and fs.mqueue)");
    if (waiting)
        *waiting = mq_open(name, O_RDWR);
    mq_unlink(name);
    if (waiting && *waiting < 0)
        fail("mq_open");
    return made;
}

static void work(struct counts *own)
{
    char message[ROOM];
    struct epoll_event event = { .events = EPOLLIN | EPOLLEXCLUSIVE };
    int epoll = epoll_create1(0);
    if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, requests, &event))
        _exit(1);
    sem_post(ready);
    for (;;) {
        if (epoll_wait(epoll, &event, 1, -1) < 0)
            continue;
        own->waits++;
        if (mq_receive(requests, message, sizeof message, 0) != MESSAGE) {
            own->empty++;
            continue;
        }
        own->calls++;
        if (mq_send(answers_out[(int)message[0]], message, MESSAGE, 0))
            _exit(1);
    }
}

static void hire(void)
{
    pid_t parent = getpid();
    for (int number = 0; number < workers; number++) {
        worker_pids[number] = fork();
        if (worker_pids[number] < 0)
            fail("fork of a worker (see ulimit -u and pids.max)");
        if (worker_pids[number] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            close(0);
            if (getppid() != parent)
                _exit(1);
            work(&counts[number]);
        }
    }
    for (int number = 0; number < workers; number++)
        while (sem_wait(ready) && errno == EINTR)
            ;
}

static void dismiss(void)
{
    for (int number = 0; number < workers; number++)
        if (worker_pids[number] > 0)
            kill(worker_pids[number], SIGKILL);
    while (wait(0) > 0)
        ;
}

static void *shared(size_t size)
{
    void *made = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED)
        fail("mmap");
    return made;
}

static unsigned place(uint64_t ns)
{
    if (ns < PARTS)
        return ns;
    unsigned magnitude = 63 - __builtin_clzll(ns);
    return (magnitude - 5) * PARTS + ((ns >> (magnitude - 6)) & (PARTS - 1));
}

static uint64_t time_at(unsigned place)
{
    return place < PARTS ? place : (uint64_t)(PARTS + place % PARTS) << (place / PARTS - 1);
}

static void request(const char *message)
{
    while (mq_send(requests, message, MESSAGE, 0)) {
        struct pollfd room = { .fd = requests, .events = POLLOUT };
        if (errno != EAGAIN && errno != EINTR)
            fail("mq_send");
        poll(&room, 1, -1);
    }
}

static void *call(void *own)
{
    struct caller *caller = own;
    char message[ROOM] = { 0 }, answer[ROOM];
    message[0] = caller->number;
    pthread_barrier_wait(&start);
    for (uint64_t calls = 0; !is_over && (!calls_max || calls < calls_max);) {
        uint64_t began = now_ns();
        request(message);
        ssize_t length;
        do
            length = mq_receive(answers_in[caller->number], answer, sizeof answer, 0);
        while (length < 0 && errno == EINTR);
        if (length != MESSAGE || memcmp(message, answer, MESSAGE))
            fail("an answer that is not the caller's");
        uint64_t took = now_ns() - began;
        caller->times[place(took)]++;
        if (took > caller->max_ns)
            caller->max_ns = took;
        caller->calls = ++calls;
    }
    pthread_mutex_lock(&lock);
    if (++done == callers)
        pthread_cond_signal(&all_done);
    pthread_mutex_unlock(&lock);
    return 0;
}

static struct tick look(void)
{
    struct tick tick = { .calls = 0 };
    for (int number = 0; number < callers; number++)
        tick.calls += people[number].calls;
    tick.at_ns = now_ns();
    tick.switches = switches();
    return tick;
}

/* Until the time, or until everybody has made so many calls; whether they have. */
static int wait_until(uint64_t at_ns)
{
    struct timespec at = { at_ns / 1000000000, at_ns % 1000000000 };
    int waited = 0;
    pthread_mutex_lock(&lock);
    while (done < callers && waited != ETIMEDOUT)
        waited = pthread_cond_timedwait(&all_done, &lock, &at);
    int is_done = done == callers;
    pthread_mutex_unlock(&lock);
    return is_done;
}

static void say_interval(struct tick first, struct tick from, struct tick to)
{
    double seconds = (to.at_ns - from.at_ns) * 1e-9;
    char text[32] = "null";
    if (from.switches >= 0 && to.switches >= 0)
        snprintf(text, sizeof text, "%.1f", (to.switches - from.switches) / seconds);
    say("{\"interval\":{\"end_s\":%.6f,\"calls_per_s\":%.3f,\"machine_switches_per_s\":%s}}",
        (to.at_ns - first.at_ns) * 1e-9, (to.calls - from.calls) / seconds, text);
}

static void say_served(const struct counts *before)
{
    char text[TEXT_MAX - 256];
    size_t length = 0;
    uint64_t waits = 0, empty = 0;
    for (int number = 0; number < workers; number++) {
        length += snprintf(text + length, sizeof text - length, "%s%llu", number ? "," : "",
                           (unsigned long long)(counts[number].calls - before[number].calls));
        waits += counts[number].waits - before[number].waits;
        empty += counts[number].empty - before[number].empty;
    }
    say("{\"served\":{\"calls\":[%s],\"waits\":[%llu,%llu]}}", text,
        (unsigned long long)waits, (unsigned long long)empty);
}

/* The time below which a share of all calls took, in microseconds: the middle of its part, or of
 * what the longest leaves of it. */
static double quantile(double share, uint64_t calls, uint64_t max_ns)
{
    uint64_t below = 0;
    for (unsigned at = 0; at < TIMES; at++) {
        for (int number = 0; number < callers; number++)
            below += people[number].times[at];
        if (below >= share * calls && below > 0)
            return (time_at(at) + (time_at(at + 1) < max_ns ? time_at(at + 1) : max_ns)) / 2e3;
    }
    return 0;
}

static double seconds(struct timeval to, struct timeval from)
{
    return (to.tv_sec - from.tv_sec) + (to.tv_usec - from.tv_usec) * 1e-6;
}

static void say_called(struct tick first, struct tick last, struct rusage from, struct rusage to)
{
    uint64_t max_ns = 0;
    char text[32] = "null";
    for (int number = 0; number < callers; number++)
        if (people[number].max_ns > max_ns)
            max_ns = people[number].max_ns;
    if (first.switches >= 0 && last.switches >= 0)
        snprintf(text, sizeof text, "%lld", last.switches - first.switches);
    double user_s = seconds(to.ru_utime, from.ru_utime);
    double system_s = seconds(to.ru_stime, from.ru_stime);
    say("{\"called\":{\"calls\":%llu,\"elapsed_s\":%.9f,\"machine_switches\":%s,\"cpu_ns\":%.0f,"
        "\"user_s\":%.6f,\"system_s\":%.6f,\"latencies\":{\"latency_p50_us\":%.3f,"
        "\"latency_p99_us\":%.3f,\"latency_max_us\":%.3f}}}",
        (unsigned long long)last.calls, (last.at_ns - first.at_ns) * 1e-9, text,
        (user_s + system_s) * 1e9, user_s, system_s, quantile(0.5, last.calls, max_ns),
        quantile(0.99, last.calls, max_ns), max_ns / 1e3);
}

static void call_for(uint64_t time_ms, uint64_t interval_ms)
{
    static struct tick ticks[INTERVALS_MAX];
    static struct counts before[WORKERS_MAX];
    struct rusage from, to;
    int cuts = 0, is_done = 0;
    memcpy(before, counts, workers * sizeof *before);
    is_over = done = 0;
    pthread_barrier_init(&start, 0, callers + 1);
    for (int number = 0; number < callers; number++) {
        memset(&people[number], 0, sizeof people[number]);
        people[number].number = number;
        if (pthread_create(&people[number].thread, 0, call, &people[number]))
            fail("pthread_create");
    }
    getrusage(RUSAGE_SELF, &from);
    struct tick first = look();
    pthread_barrier_wait(&start);
    for (uint64_t due = interval_ms; !is_done; due += interval_ms) {
        if (!calls_max && due > time_ms)
            due = time_ms;
        is_done = wait_until(first.at_ns + due * 1000000);
        if (cuts < INTERVALS_MAX && !is_done)
            ticks[cuts++] = look();
        if (!calls_max && due >= time_ms)
            break;
    }
    is_over = 1;
    for (int number = 0; number < callers; number++)
        pthread_join(people[number].thread, 0);
    pthread_barrier_destroy(&start);
    struct tick last = look();
    getrusage(RUSAGE_SELF, &to);
    for (int cut = 0; cut < cuts; cut++)
        /* A stub that is much shorter than its siblings says nothing about the rate. */
        if ((ticks[cut].at_ns - (cut ? ticks[cut - 1] : first).at_ns) * 2 >= interval_ms * 1000000)
            say_interval(first, cut ? ticks[cut - 1] : first, ticks[cut]);
    say_served(before);
    say_called(first, last, from, to);
}

int main(int count, char **words)
{
    char text[TEXT_MAX];
    size_t length = 0;
    if (count != 3 || (workers = atoi(words[1])) < 1 || workers > WORKERS_MAX
        || (callers = atoi(words[2])) < 1 || callers > CALLERS_MAX)
        return 2;
    /* A window is long, and the measuring process may be killed in it. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pthread_condattr_t by_clock;
    pthread_condattr_init(&by_clock);
    pthread_condattr_setclock(&by_clock, CLOCK_MONOTONIC);
    pthread_cond_init(&all_done, &by_clock);
    requests = queue(0, DEPTH, 0);
    for (int number = 0; number < callers; number++)
        answers_out[number] = queue(1 + number, ANSWERS_DEPTH, &answers_in[number]);
    counts = shared(workers * sizeof *counts);
    ready = shared(sizeof *ready);
    sem_init(ready, 1, 0);
    atexit(dismiss);
    hire();
    for (int number = 0; number < workers; number++)
        length += snprintf(text + length, sizeof text - length, "%s%d", number ? "," : "",
                           worker_pids[number]);
    say("{\"workers\":[%s]}", text);
    say("\"ready\"");
    for (;;) {
        unsigned is_window;
        unsigned long long time_ms, interval_ms, calls;
        ssize_t got = recv(0, text, sizeof text - 1, 0);
        if (got <= 0)
            return 0;
        text[got] = 0;
        if (sscanf(text, "[%u,%llu,%llu,%llu]", &is_window, &time_ms, &interval_ms, &calls) != 4)
            return 2;
        calls_max = calls;
        call_for(time_ms, interval_ms);
    }
}
