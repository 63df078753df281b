/* Calls what panics in the library and what does not. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CHECK(what)                                                                               \
    do {                                                                                          \
        if (!(what)) {                                                                            \
            fprintf(stderr, "%s:%d: %s does not hold (errno: %s)\n", __FILE__, __LINE__, #what,    \
                    strerror(errno));                                                             \
            exit(1);                                                                              \
        }                                                                                         \
    } while (0)

static int serve(int rounds)
{
    int epoll = epoll_create1(EPOLL_CLOEXEC), ends[2], seen = 0;
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epoll >= 0 && pipe(ends) == 0);
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event) == 0);
    for (; seen < rounds; seen++) {
        char byte = 'x';
        CHECK(write(ends[1], &byte, 1) == 1);
        CHECK(epoll_wait(epoll, &event, 1, 20000) == 1);
        CHECK(read(ends[0], &byte, 1) == 1);
    }
    CHECK(close(ends[0]) + close(ends[1]) + close(epoll) == 0);
    return seen;
}

int main(void)
{
    CHECK(serve(3) == 3);
    errno = 0;
    CHECK(getppid() == (pid_t)syscall(SYS_getppid) && errno == 0);
    CHECK(getpgrp() == -1 && errno == ENOTRECOVERABLE);
    CHECK(serve(3) == 3);
    puts("done");
    return 0;
}
