/* A reply waits for writability although the socket could take it; then reading is asked for again. */
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { REQUESTS = 500 };

static int ask_for(int epfd, int fd, unsigned events) {
    struct epoll_event event = {.events = events, .data.fd = fd};
    return epoll_ctl(epfd, EPOLL_CTL_MOD, fd, &event); /* fault */
}

int main(void) {
    int ends[2], epfd = epoll_create1(0);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0) return 1;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = ends[0]}, events[64];
    if (epoll_ctl(epfd, EPOLL_CTL_ADD, ends[0], &event) < 0) return 1;
    for (int request = 0; request < REQUESTS; request++) {
        char byte = 'x';
        if (write(ends[1], &byte, 1) != 1) return 1;
        if (epoll_wait(epfd, events, 64, -1) != 1) return 1;
        if (read(ends[0], &byte, 1) != 1) return 1;
        if (ask_for(epfd, ends[0], EPOLLOUT) < 0) return 1;
        if (epoll_wait(epfd, events, 64, -1) != 1) return 1;
        if (write(ends[0], &byte, 1) != 1) return 1;
        if (ask_for(epfd, ends[0], EPOLLIN) < 0) return 1;
        if (read(ends[1], &byte, 1) != 1) return 1;
    }
    return 0;
}
