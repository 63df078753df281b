/* Registers, or does all of epoll, by system calls of its own. */
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

static long own(long number, long a, long b, long c, long d, long e) {
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = 8;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

int main(int argc, char **argv) {
    int all = argc > 1 && strcmp(argv[1], "all") == 0, ends[2];
    int epfd = all ? (int)own(SYS_epoll_create1, 0, 0, 0, 0, 0) : epoll_create1(0);
    /* A further number of it is not counted as another one. */
    if (epfd < 0 || dup(epfd) < 0 || pipe(ends) < 0) return 1;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = 7}, events[4];
    if (own(SYS_epoll_ctl, epfd, EPOLL_CTL_ADD, ends[0], (long)&event, 0) != 0) return 2;
    for (int turn = 0; turn < 20; turn++) {
        char byte = 'x';
        if (write(ends[1], &byte, 1) != 1) return 3;
        int found = all ? (int)own(SYS_epoll_pwait, epfd, (long)events, 4, 20000, 0)
                        : epoll_wait(epfd, events, 4, 20000);
        if (found != 1 || events[0].data.fd != 7) return 4;
        if (read(ends[0], &byte, 1) != 1) return 5;
    }
    return 0;
}
