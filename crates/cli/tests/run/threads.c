/* Threads that wait on one instance and change it, while others fork, vfork, spawn, start a shell and are
 * cancelled: every byte is taken once, and nothing hangs. */
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { WAITERS = 4, PAIRS = 16, BYTES = 4000, CHILDREN = 20, STOP = 1000 };

extern char **environ;
static int epoll, ends[PAIRS][2];
static atomic_int taken;

static void arm(int op, int pair)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT};
    event.data.u64 = (uint64_t)pair;
    CHECK(epoll_ctl(epoll, op, ends[pair][0], &event) == 0);
}

static void *wait_and_take(void *nothing)
{
    (void)nothing;
    for (;;) {
        struct epoll_event events[3];
        int found = epoll_wait(epoll, events, 3, 20000);
        /* SIGCHLD of system(3), which blocks it in its own thread. */
        if (found < 0 && errno == EINTR)
            continue;
        CHECK(found > 0);
        for (int i = 0; i < found; i++) {
            int pair = (int)events[i].data.u64;
            char bytes[16];
            if (pair == STOP)
                return NULL;
            ssize_t count = read(ends[pair][0], bytes, sizeof bytes);
            CHECK(count > 0);
            taken += (int)count;
            arm(EPOLL_CTL_MOD, pair);
        }
    }
}

/* An instance of its own, in whatever process this is. */
static int uses_epoll(void)
{
    struct epoll_event event = {.events = EPOLLIN};
    int own = epoll_create1(EPOLL_CLOEXEC), pair[2];
    if (own < 0 || pipe(pair) < 0 || epoll_ctl(own, EPOLL_CTL_ADD, pair[0], &event) < 0)
        return 2;
    if (epoll_wait(own, &event, 1, 0) != 0 || write(pair[1], "x", 1) != 1)
        return 3;
    if (epoll_wait(own, &event, 1, 20000) != 1)
        return 4;
    close(pair[0]), close(pair[1]), close(own);
    return 0;
}

static pid_t by_vfork(char **words)
{
    pid_t pid = vfork();
    if (pid == 0) {
        execvp(words[0], words);
        _exit(5);
    }
    return pid;
}

static pid_t by_fork(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(uses_epoll());
    return pid;
}

static pid_t by_spawn(char **words)
{
    pid_t pid;
    CHECK(posix_spawnp(&pid, words[0], NULL, NULL, words, environ) == 0);
    return pid;
}

static void *start_processes(void *nothing)
{
    char *words[] = {"true", NULL};
    for (int child = 0; child < CHILDREN; child += 4) {
        pid_t pids[] = {by_fork(), by_vfork(words), by_spawn(words)};
        for (int i = 0; i < 3; i++) {
            int status;
            CHECK(pids[i] > 0 && waitpid(pids[i], &status, 0) == pids[i] && status == 0);
        }
        CHECK(system("exit 0") == 0);
    }
    return nothing;
}

int main(void)
{
    epoll = epoll_create1(EPOLL_CLOEXEC);
    CHECK(epoll >= 0);
    for (int pair = 0; pair < PAIRS; pair++) {
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends[pair]) == 0);
        arm(EPOLL_CTL_ADD, pair);
    }
    pthread_t waiters[WAITERS], starter;
    for (int i = 0; i < WAITERS; i++)
        CHECK(pthread_create(&waiters[i], NULL, wait_and_take, NULL) == 0);
    CHECK(pthread_create(&starter, NULL, start_processes, NULL) == 0);
    for (int byte = 0; byte < BYTES; byte++)
        CHECK(write(ends[byte % PAIRS][1], "x", 1) == 1);
    CHECK(pthread_join(starter, NULL) == 0);
    while (taken < BYTES)
        CHECK(usleep(100) == 0);
    int stop[2];
    struct epoll_event event = {.events = EPOLLIN};
    event.data.u64 = STOP;
    CHECK(pipe(stop) == 0 && write(stop[1], "x", 1) == 1);
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, stop[0], &event) == 0);
    for (int i = 0; i < WAITERS; i++)
        CHECK(pthread_join(waiters[i], NULL) == 0);
    CHECK(taken == BYTES && uses_epoll() == 0);
    printf("%d bytes\n", (int)taken);
    return 0;
}
