/* Eight descriptors are ready at once, and each wait takes one of them. */
#include <stdint.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { PIPES = 8, ROUNDS = 300 };

int main(void) {
    int pipes[PIPES][2], epfd = epoll_create1(0);
    for (int i = 0; i < PIPES; i++) {
        if (pipe(pipes[i]) < 0) return 1;
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        if (epoll_ctl(epfd, EPOLL_CTL_ADD, pipes[i][0], &event) < 0) return 1;
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < PIPES; i++)
            if (write(pipes[i][1], "x", 1) != 1) return 1;
        for (int i = 0; i < PIPES; i++) {
            struct epoll_event event;
            char byte;
            if (epoll_wait(epfd, &event, 1, -1) != 1) return 1; /* fault */
            if (read(pipes[event.data.u32][0], &byte, 1) != 1) return 1;
        }
    }
    return 0;
}
