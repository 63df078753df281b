/* What each function answers, right and wrong. */
#include "check.h"
#include <fcntl.h>
#include <pollux/epoll.h>
#include <unistd.h>

static struct epoll_event event(uint32_t events, uint64_t data)
{
    struct epoll_event made = {.events = events};
    made.data.u64 = data;
    return made;
}

static void creates(void)
{
    REFUSED(px_epoll_create(0), EINVAL);
    REFUSED(px_epoll_create1(~EPOLL_CLOEXEC), EINVAL);
    REFUSED(px_epoll_create_on("kqueue", 0), EINVAL);
    REFUSED(px_epoll_create_on(NULL, 0), EFAULT);
    int plain = px_epoll_create(1), closed = px_epoll_create1(EPOLL_CLOEXEC);
    CHECK(plain >= 0 && closed >= 0);
    CHECK((fcntl(plain, F_GETFD) & FD_CLOEXEC) == 0);
    CHECK((fcntl(closed, F_GETFD) & FD_CLOEXEC) != 0);
    CHECK(close(plain) == 0 && close(closed) == 0);
    struct epoll_event room;
    REFUSED(px_epoll_wait(plain, &room, 1, 0), EBADF);
    REFUSED(px_epoll_ctl(plain, EPOLL_CTL_DEL, 0, NULL), EBADF);
}

static void changes(int epoll)
{
    struct epoll_event in = event(EPOLLIN, 7);
    struct epoll_event alone = event(EPOLLIN | EPOLLEXCLUSIVE, 7);
    struct epoll_event impossible = event(EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT, 7);
    int ends[2], file = open("/proc/self/exe", O_RDONLY), path = open("/", O_PATH);
    CHECK(pipe(ends) == 0 && file >= 0 && path >= 0);
    REFUSED(px_epoll_ctl(epoll, EPOLL_CTL_MOD, ends[0], &in), ENOENT);
    REFUSED(px_epoll_ctl(epoll, EPOLL_CTL_DEL, ends[0], NULL), ENOENT);
    REFUSED(px_epoll_ctl(epoll, EPOLL_CTL_ADD, file, &in), EPERM);
    REFUSED(px_epoll_ctl(epoll, EPOLL_CTL_MOD, file, &in), EPERM);
    REFUSED(px_epoll_ctl(epoll, EPOLL_CTL_ADD, path, &in), EBADF);
    REFUSED(px_epoll_ctl(epoll, EPOLL_CTL_ADD, -1, &in), EBADF);
    REFUSED(px_epoll_ctl(epoll, EPOLL_CTL_ADD, 1 << 20, &in), EBADF);
    REFUSED(px_epoll_ctl(epoll, EPOLL_CTL_ADD, epoll, &in), EINVAL);
    REFUSED(px_epoll_ctl(epoll, 99, ends[0], &in), EINVAL);
    REFUSED(px_epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], NULL), EFAULT);
    REFUSED(px_epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &impossible), EINVAL);
    REFUSED(px_epoll_ctl(ends[1], EPOLL_CTL_ADD, ends[0], &in), EINVAL);
    CHECK(px_epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &alone) == 0);
    REFUSED(px_epoll_ctl(epoll, EPOLL_CTL_MOD, ends[0], &in), EINVAL);
    CHECK(px_epoll_ctl(epoll, EPOLL_CTL_DEL, ends[0], NULL) == 0);
    CHECK(px_epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &in) == 0);
    REFUSED(px_epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &in), EEXIST);
    REFUSED(px_epoll_ctl(epoll, EPOLL_CTL_MOD, ends[0], &alone), EINVAL);
    int twin = dup(ends[0]);
    CHECK(px_epoll_ctl(epoll, EPOLL_CTL_ADD, twin, &in) == 0);
    CHECK(px_epoll_ctl(epoll, EPOLL_CTL_DEL, twin, NULL) == 0);
    CHECK(px_epoll_ctl(epoll, EPOLL_CTL_DEL, ends[0], NULL) == 0);
    CHECK(close(twin) + close(ends[0]) + close(ends[1]) + close(file) + close(path) == 0);
}

static void waits(int epoll)
{
    struct epoll_event room[4], all = event(EPOLLIN | EPOLLWAKEUP, UINT64_MAX - 1);
    struct timespec wrong = {.tv_sec = 0, .tv_nsec = 1000000000}, short_time = {.tv_nsec = 300000};
    int ends[2];
    CHECK(pipe(ends) == 0);
    REFUSED(px_epoll_wait(epoll, room, 0, 0), EINVAL);
    REFUSED(px_epoll_wait(epoll, room, -1, 0), EINVAL);
    REFUSED(px_epoll_pwait2(epoll, room, 4, &wrong, NULL), EINVAL);
    REFUSED(px_epoll_wait(ends[0], room, 4, 0), EINVAL);
    CHECK(px_epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &all) == 0);
    CHECK(px_epoll_wait(epoll, room, 4, 0) == 0);
    CHECK(px_epoll_pwait2(epoll, room, 4, &short_time, NULL) == 0);
    CHECK(write(ends[1], "x", 1) == 1);
    for (int turn = 0; turn < 3; turn++) {
        CHECK(px_epoll_pwait(epoll, room, 4, -1, NULL) == 1);
        CHECK(room[0].events == EPOLLIN && room[0].data.u64 == UINT64_MAX - 1);
    }
    /* Closed without EPOLL_CTL_DEL, and the end of the pipe in the place of both. */
    CHECK(px_epoll_ctl(epoll, EPOLL_CTL_DEL, ends[0], NULL) == 0);
    CHECK(close(ends[0]) + close(ends[1]) == 0);
    CHECK(px_epoll_wait(epoll, room, 4, 0) == 0);
}

int main(void)
{
    creates();
    int epoll = px_epoll_create1(EPOLL_CLOEXEC);
    CHECK(epoll >= 0);
    changes(epoll);
    waits(epoll);
    puts(px_epoll_poller(epoll));
    return 0;
}
