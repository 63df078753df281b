/* A descriptor is registered for each request and taken out behind it. */
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { REQUESTS = 400 };

int main(void) {
    int ends[2], epfd = epoll_create1(0);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0) return 1;
    for (int request = 0; request < REQUESTS; request++) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = ends[0]}, events[64];
        char byte = 'x';
        if (epoll_ctl(epfd, EPOLL_CTL_ADD, ends[0], &event) < 0) return 1; /* fault */
        if (write(ends[1], &byte, 1) != 1) return 1;
        if (epoll_wait(epfd, events, 64, -1) != 1) return 1;
        if (read(ends[0], &byte, 1) != 1) return 1;
        if (epoll_ctl(epfd, EPOLL_CTL_DEL, ends[0], NULL) < 0) return 1;
    }
    return 0;
}
