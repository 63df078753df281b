/* Eight connections, all of whose requests a wait returns; replies are written at once, and only one
   that finds no room waits for writability. Ends with the code that it is given. */
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PAIRS = 8, ROUNDS = 500, EVENTS = 64 };

int main(int count, char **arguments) {
    int pairs[PAIRS][2], epfd = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < PAIRS; i++) {
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pairs[i]) < 0) return 1;
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        if (epoll_ctl(epfd, EPOLL_CTL_ADD, pairs[i][0], &event) < 0) return 1;
    }
    for (int round = 0; round < ROUNDS; round++) {
        struct epoll_event events[EVENTS];
        char byte = 'x';
        for (int i = 0; i < PAIRS; i++)
            if (write(pairs[i][1], &byte, 1) != 1) return 1;
        for (int served = 0; served < PAIRS;) {
            int ready = epoll_wait(epfd, events, EVENTS, -1);
            if (ready < 0) return 1;
            for (int i = 0; i < ready; i++, served++) {
                int fd = pairs[events[i].data.u32][0];
                if (read(fd, &byte, 1) != 1 || write(fd, &byte, 1) != 1) return 1;
            }
        }
        for (int i = 0; i < PAIRS; i++)
            if (read(pairs[i][1], &byte, 1) != 1) return 1;
    }
    for (int i = 0; i < PAIRS; i++)
        if (epoll_ctl(epfd, EPOLL_CTL_DEL, pairs[i][0], NULL) < 0) return 1;
    return count > 1 ? atoi(arguments[1]) : 0;
}
