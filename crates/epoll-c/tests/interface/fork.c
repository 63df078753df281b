/* A child uses the instance of its parent, and the parent continues. */
#include "check.h"
#include <pollux/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

static int found(int epoll, uint64_t expected)
{
    struct epoll_event event;
    int count = px_epoll_wait(epoll, &event, 1, 0);
    CHECK(count == 0 || (count == 1 && event.data.u64 == expected));
    return count;
}

int main(void)
{
    int epoll = px_epoll_create(1), ends[2];
    struct epoll_event event = {.events = EPOLLIN};
    event.data.u64 = 1;
    CHECK(epoll >= 0 && pipe(ends) == 0);
    CHECK(px_epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event) == 0);
    CHECK(write(ends[1], "x", 1) == 1);
    CHECK(found(epoll, 1) == 1);
    pid_t child = fork();
    if (child == 0) {
        CHECK(found(epoll, 1) == 1);
        event.data.u64 = 2;
        CHECK(px_epoll_ctl(epoll, EPOLL_CTL_MOD, ends[0], &event) == 0);
        CHECK(found(epoll, 2) == 1);
        CHECK(px_epoll_ctl(epoll, EPOLL_CTL_DEL, ends[0], NULL) == 0);
        CHECK(found(epoll, 0) == 0);
        _exit(0);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    puts(found(epoll, 1) == 1 ? "copied" : "shared");
    return 0;
}
