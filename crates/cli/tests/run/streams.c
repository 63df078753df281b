/* Many pipes, watched by edge: a thread writes a byte to one of them after the other, by chance; the main thread
 * reads whichever is reported, and a timer interrupts its waits. Ends when every byte was read. The pipes do not
 * block, as a mechanism may report once what was read meanwhile. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <unistd.h>

/* A read takes all that a pipe can hold: an edge whose rest was left would not come again. */
enum { STREAMS = 300, BYTES = 100000, ROOM = 128, PIPE_BYTES = 65536 };

static int streams[STREAMS][2];
static volatile sig_atomic_t alarms;

static void check(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "%s (errno: %s)\n", what, strerror(errno));
        exit(1);
    }
}

static void count(int number)
{
    (void)number;
    alarms++;
}

static void *write_all(void *nothing)
{
    unsigned chance = 1;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    for (int byte = 0; byte < BYTES; byte++) {
        chance = chance * 1103515245 + 12345;
        check(write(streams[(chance >> 16) % STREAMS][1], "x", 1) == 1, "write");
    }
    return nothing;
}

int main(void)
{
    static char bytes[PIPE_BYTES];
    struct sigaction action = {.sa_handler = count};
    struct itimerval often = {{0, 5000}, {0, 5000}};
    int epoll = epoll_create(STREAMS), taken = 0, interrupted = 0;
    check(epoll >= 0, "epoll_create");
    for (int i = 0; i < STREAMS; i++) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = (unsigned)i};
        check(pipe(streams[i]) == 0 && fcntl(streams[i][0], F_SETFL, O_NONBLOCK) == 0, "pipe");
        check(epoll_ctl(epoll, EPOLL_CTL_ADD, streams[i][0], &event) == 0, "epoll_ctl");
    }
    pthread_t writer;
    check(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0, "timer");
    check(pthread_create(&writer, NULL, write_all, NULL) == 0, "pthread_create");
    while (taken < BYTES) {
        struct epoll_event events[ROOM];
        int found = epoll_wait(epoll, events, ROOM, 20000);
        if (found < 0 && errno == EINTR) {
            interrupted++;
            continue;
        }
        check(found > 0, "epoll_wait");
        for (int i = 0; i < found; i++) {
            ssize_t len;
            do
                len = read(streams[events[i].data.u64][0], bytes, sizeof bytes);
            while (len < 0 && errno == EINTR);
            check(len > 0 || errno == EAGAIN, "read");
            taken += len > 0 ? (int)len : 0;
        }
    }
    check(pthread_join(writer, NULL) == 0, "pthread_join");
    check(interrupted <= alarms, "a wait was interrupted without a signal");
    printf("%d bytes\n", taken);
    return 0;
}
