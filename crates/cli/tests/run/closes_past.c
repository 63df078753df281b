/* Closes by system calls of its own, or by their numbers, what an instance watches, what the library holds for it, or
   the instance itself. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

static int is_by_number;

static long own(long number, long a, long b, long c) {
    if (is_by_number) return syscall(number, a, b, c);
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c)
                     : "rcx", "r11", "memory");
    return result;
}

static void add(int epfd, int fd, int data) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = data};
    CHECK(epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &event) == 0);
}

/* The data of the one event there is, -1 for none. */
static int waits(int epfd, int timeout_ms) {
    struct epoll_event events[4];
    int found = epoll_wait(epfd, events, 4, timeout_ms);
    CHECK(found == 0 || found == 1);
    return found == 0 ? -1 : events[0].data.fd;
}

static void is_at_its_end(int fd) {
    struct pollfd end = {.fd = fd, .events = POLLIN};
    char byte;
    CHECK(poll(&end, 1, 20000) == 1);
    CHECK(read(fd, &byte, 1) == 0);
}

static void streams(int epfd) {
    for (int turn = 0; turn < 50; turn++) {
        int pair[2];
        char byte = 'x';
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        add(epfd, pair[0], turn);
        CHECK(waits(epfd, 0) == -1);
        CHECK(write(pair[1], &byte, 1) == 1);
        CHECK(waits(epfd, 20000) == turn);
        CHECK(read(pair[0], &byte, 1) == 1);
        CHECK(own(SYS_close, pair[0], 0, 0) == 0);
        CHECK(waits(epfd, 0) == -1);
        is_at_its_end(pair[1]);
        CHECK(close(pair[1]) == 0);
    }
}

static void used_again(int epfd) {
    int closed[2], other[2];
    CHECK(pipe(closed) == 0 && pipe(other) == 0);
    add(epfd, closed[0], 1);
    CHECK(waits(epfd, 0) == -1);
    CHECK(own(SYS_close, closed[0], 0, 0) == 0);
    CHECK(fcntl(other[0], F_DUPFD, closed[0]) == closed[0]);
    CHECK(write(other[1], "x", 1) == 1);
    CHECK(waits(epfd, 20) == -1);
    add(epfd, closed[0], 2);
    CHECK(waits(epfd, 20000) == 2);
    CHECK(epoll_ctl(epfd, EPOLL_CTL_DEL, closed[0], NULL) == 0);
    CHECK(waits(epfd, 0) == -1);
}

static void listeners(int epfd) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(listener, (struct sockaddr *)&address, length) == 0 && listen(listener, 8) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &length) == 0);
    add(epfd, listener, 1);
    CHECK(waits(epfd, 0) == -1);
    CHECK(own(SYS_close, listener, 0, 0) == 0);
    CHECK(waits(epfd, 0) == -1);
    CHECK(connect(client, (struct sockaddr *)&address, length) == -1 && errno == ECONNREFUSED);
}

/* All that was opened behind `first`; then files of the program's own take these numbers. */
static void all_behind(int first, int epfd) {
    enum { PAIRS = 6 };
    int pairs[PAIRS][2];
    char bytes[16];
    CHECK(own(SYS_close_range, first, ~0U, 0) == 0);
    for (int index = 0; index < PAIRS; index++) {
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pairs[index]) == 0);
    }
    if (epfd < 0) epfd = epoll_create1(EPOLL_CLOEXEC);
    CHECK(epfd >= 0);
    add(epfd, pairs[PAIRS - 1][0], 3);
    CHECK(waits(epfd, 0) == -1);
    CHECK(write(pairs[PAIRS - 1][1], "hello", 5) == 5);
    CHECK(waits(epfd, 20000) == 3);
    CHECK(read(pairs[PAIRS - 1][0], bytes, sizeof bytes) == 5);
    CHECK(close(epfd) == 0);
    epfd = epoll_create1(EPOLL_CLOEXEC);
    CHECK(epfd >= 0 && close(epfd) == 0);
    /* Nothing was written to them, read from them or closed. */
    for (int index = 0; index < PAIRS; index++) {
        for (int end = 0; end < 2; end++) {
            CHECK(read(pairs[index][end], bytes, sizeof bytes) == -1 && errno == EAGAIN);
            CHECK(write(pairs[index][1 - end], "x", 1) == 1);
            CHECK(read(pairs[index][end], bytes, sizeof bytes) == 1);
        }
    }
}

static void instances(void) {
    int first = -1;
    for (int life = 0; life < 60; life++) {
        int ends[2], epfd = epoll_create1(EPOLL_CLOEXEC);
        CHECK(epfd >= 0 && pipe(ends) == 0);
        add(epfd, ends[0], life);
        CHECK(write(ends[1], "x", 1) == 1);
        CHECK(waits(epfd, 20000) == life);
        CHECK(own(SYS_close, epfd, 0, 0) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
        if (life == 1) first = ends[1];
        CHECK(life < 2 || ends[1] <= first);
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    is_by_number = strcmp(argv[2], "number") == 0;
    const char *what = argv[1];
    if (strcmp(what, "instances") == 0) {
        instances();
        return 0;
    }
    int epfd = epoll_create1(EPOLL_CLOEXEC), ends[2];
    CHECK(epfd >= 0 && pipe(ends) == 0);
    add(epfd, ends[0], 9);
    CHECK(waits(epfd, 0) == -1);
    if (strcmp(what, "streams") == 0) streams(epfd);
    else if (strcmp(what, "used_again") == 0) used_again(epfd);
    else if (strcmp(what, "listeners") == 0) listeners(epfd);
    else if (strcmp(what, "behind") == 0) all_behind(epfd + 1, epfd);
    else if (strcmp(what, "all") == 0) all_behind(3, -1);
    else CHECK(0);
    return 0;
}
