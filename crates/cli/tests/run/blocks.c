/* Each turn sleeps for 20 ms, as for a file or a name that is long in coming. */
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { TURNS = 12 };

static void look_something_up(void) {
    struct timespec time = {.tv_sec = 0, .tv_nsec = 20000000};
    nanosleep(&time, NULL); /* fault */
}

int main(void) {
    int ends[2], epfd = epoll_create1(0);
    if (pipe(ends) < 0) return 1;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = ends[0]}, events[64];
    if (epoll_ctl(epfd, EPOLL_CTL_ADD, ends[0], &event) < 0) return 1;
    for (int turn = 0; turn < TURNS; turn++) {
        char byte = 'x';
        if (write(ends[1], &byte, 1) != 1) return 1;
        if (epoll_wait(epfd, events, 64, -1) != 1) return 1;
        if (read(ends[0], &byte, 1) != 1) return 1;
        look_something_up();
    }
    return epoll_wait(epfd, events, 64, 0);
}
