/* Calls of epoll, reads, writes and closes by syscall(2); registers by a ring of io_uring where there is one, as
   libuv does. */
#include <stdint.h>
#include <sys/epoll.h>

#include "ring.h"

enum { ROUNDS = 40, PIPES = 8 };

/* 0, or the errno. */
static int update(struct ring *ring, int epfd, int op, int fd, struct epoll_event *event) {
    if (ring->fd < 0) return syscall(SYS_epoll_ctl, epfd, op, fd, event) < 0 ? errno : 0;
    unsigned place = *ring->tail & ring->mask;
    memset(&ring->entries[place], 0, sizeof ring->entries[place]);
    ring->entries[place].opcode = IORING_OP_EPOLL_CTL;
    ring->entries[place].fd = epfd;
    ring->entries[place].off = (unsigned)fd;
    ring->entries[place].addr = (uintptr_t)event;
    ring->entries[place].len = (unsigned)op;
    ring->entries[place].user_data = 7;
    ring->array[place] = place;
    __atomic_store_n(ring->tail, *ring->tail + 1, __ATOMIC_RELEASE);
    CHECK(syscall(SYS_io_uring_enter, ring->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 1);
    CHECK(*ring->cq_head != __atomic_load_n(ring->cq_tail, __ATOMIC_ACQUIRE));
    return -ring->results[(*ring->cq_head)++ & ring->cq_mask].res;
}

int main(void) {
    for (int life = 0; life < ROUNDS; life++) {
        struct ring ring;
        int pipes[PIPES][2], epfd = (int)syscall(SYS_epoll_create1, EPOLL_CLOEXEC);
        CHECK(epfd >= 0);
        /* The lowest number that is free: what is closed by number is closed. */
        CHECK(epfd < 8);
        open_ring(&ring);
        for (int index = 0; index < PIPES; index++) {
            struct epoll_event event = {.events = EPOLLIN, .data.fd = index};
            CHECK(pipe(pipes[index]) == 0);
            CHECK(update(&ring, epfd, EPOLL_CTL_ADD, pipes[index][0], &event) == 0);
            CHECK(update(&ring, epfd, EPOLL_CTL_ADD, pipes[index][0], &event) == EEXIST);
        }
        for (int index = 0; index < PIPES; index++) {
            struct epoll_event events[PIPES];
            char byte = 'x';
            CHECK(syscall(SYS_write, pipes[index][1], &byte, 1) == 1);
            CHECK(syscall(SYS_epoll_pwait, epfd, events, PIPES, 20000, NULL, 8) == 1);
            CHECK(events[0].data.fd == index);
            CHECK(syscall(SYS_read, pipes[index][0], &byte, 1) == 1);
        }
        for (int index = 0; index < PIPES; index++) {
            struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.fd = index};
            CHECK(update(&ring, epfd, EPOLL_CTL_MOD, pipes[index][0], &event) == 0);
            CHECK(syscall(SYS_epoll_ctl, epfd, EPOLL_CTL_DEL, pipes[index][0], NULL) == 0);
            syscall(SYS_close, pipes[index][0]);
            syscall(SYS_close, pipes[index][1]);
        }
        if (ring.fd >= 0) syscall(SYS_close, ring.fd);
        syscall(SYS_close, epfd);
    }
    return 0;
}
