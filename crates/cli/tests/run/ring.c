/* What a ring of io_uring does to epoll beside one update at a time: a ring that another thread sleeps in, closes, and
   updates behind a link. Streams that are opened anew, forks by their number, and errno. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "ring.h"

enum { WITHIN_MS = 20000 };

static struct io_uring_sqe *entry(struct ring *ring, int opcode, int fd, int flags) {
    unsigned place = *ring->tail & ring->mask;
    struct io_uring_sqe *entry = &ring->entries[place];
    memset(entry, 0, sizeof *entry);
    entry->opcode = (uint8_t)opcode;
    entry->flags = (uint8_t)flags;
    entry->fd = fd;
    ring->array[place] = place;
    __atomic_store_n(ring->tail, *ring->tail + 1, __ATOMIC_RELEASE);
    return entry;
}

static void add(struct ring *ring, int epfd, int fd, struct epoll_event *event) {
    struct io_uring_sqe *update = entry(ring, IORING_OP_EPOLL_CTL, epfd, 0);
    update->off = (unsigned)fd;
    update->addr = (uintptr_t)event;
    update->len = EPOLL_CTL_ADD;
}

static int enter(struct ring *ring, unsigned submitted, unsigned least) {
    unsigned flags = least ? IORING_ENTER_GETEVENTS : 0;
    return (int)syscall(SYS_io_uring_enter, ring->fd, submitted, least, flags, NULL, 0);
}

static int result(struct ring *ring) {
    CHECK(*ring->cq_head != __atomic_load_n(ring->cq_tail, __ATOMIC_ACQUIRE));
    return ring->results[(*ring->cq_head)++ & ring->cq_mask].res;
}

static int waited(int epfd, int ms) {
    struct epoll_event event;
    int found = epoll_wait(epfd, &event, 1, ms);
    CHECK(found >= 0);
    return found ? event.data.fd : -1;
}

static struct ring shared;

static void *sleeps(void *unused) {
    CHECK(enter(&shared, 1, 2) == 1);
    return unused;
}

static void two_threads(int epfd) {
    int wakes[2], ready[2];
    char byte = 'x';
    pthread_t thread;
    CHECK(pipe(wakes) == 0 && pipe(ready) == 0 && open_ring(&shared));
    struct io_uring_sqe *read = entry(&shared, IORING_OP_READ, wakes[0], 0);
    read->addr = (uintptr_t)&byte;
    read->len = 1;
    CHECK(pthread_create(&thread, NULL, sleeps, NULL) == 0);
    /* Submitted: the thread is in its call, and stays there. */
    while (__atomic_load_n(shared.head, __ATOMIC_ACQUIRE) == 0) sched_yield();
    struct epoll_event event = {.events = EPOLLIN, .data.fd = 7};
    CHECK(write(ready[1], "x", 1) == 1);
    add(&shared, epfd, ready[0], &event);
    CHECK(enter(&shared, 1, 0) == 1);
    CHECK(waited(epfd, WITHIN_MS) == 7);
    CHECK(write(wakes[1], "x", 1) == 1);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(epoll_ctl(epfd, EPOLL_CTL_DEL, ready[0], NULL) == 0);
    close(shared.fd);
}

static void closes(struct ring *ring, int epfd) {
    int pair[2];
    char byte;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = 8};
    add(ring, epfd, pair[0], &event);
    CHECK(enter(ring, 1, 1) == 1 && result(ring) == 0);
    CHECK(waited(epfd, 0) == -1);
    entry(ring, IORING_OP_CLOSE, pair[0], 0);
    CHECK(enter(ring, 1, 1) == 1 && result(ring) == 0);
    /* The peer sees it at once: nothing holds the socket. */
    CHECK(recv(pair[1], &byte, 1, 0) == 0);
    CHECK(waited(epfd, 0) == -1);
    close(pair[1]);
}

static void linked(struct ring *ring) {
    int epfd = epoll_create1(0), ready[2];
    CHECK(epfd >= 0 && pipe(ready) == 0 && write(ready[1], "x", 1) == 1);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = 9};
    entry(ring, IORING_OP_READ, 9999, IOSQE_IO_LINK);
    add(ring, epfd, ready[0], &event);
    CHECK(enter(ring, 2, 2) >= 1);
    CHECK(result(ring) == -EBADF && result(ring) == -ECANCELED);
    CHECK(waited(epfd, 50) == -1);
    add(ring, epfd, ready[0], &event);
    CHECK(enter(ring, 1, 1) == 1 && result(ring) == 0);
    CHECK(waited(epfd, WITHIN_MS) == 9);
    close(epfd);
}

static void reopens(int epfd) {
    int pair[2];
    char byte;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    FILE *stream = fdopen(pair[0], "r+");
    struct epoll_event event = {.events = EPOLLIN, .data.fd = 10};
    CHECK(stream && epoll_ctl(epfd, EPOLL_CTL_ADD, pair[0], &event) == 0);
    CHECK(waited(epfd, 0) == -1);
    CHECK(freopen("/dev/null", "r", stream) != NULL);
    CHECK(recv(pair[1], &byte, 1, 0) == 0);
    CHECK(waited(epfd, 0) == -1);
    fclose(stream);
    close(pair[1]);
}

static void forks(int epfd) {
    int parents[2], childs[2], status;
    CHECK(pipe(parents) == 0 && pipe(childs) == 0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = 11};
    CHECK(epoll_ctl(epfd, EPOLL_CTL_ADD, parents[0], &event) == 0);
    CHECK(waited(epfd, 0) == -1);
    int child = (int)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    CHECK(child >= 0);
    if (child == 0) {
        int own = epoll_create1(0);
        event.data.fd = 12;
        CHECK(own >= 0 && epoll_ctl(own, EPOLL_CTL_ADD, childs[0], &event) == 0);
        CHECK(write(childs[1], "x", 1) == 1);
        CHECK(waited(own, WITHIN_MS) == 12);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(write(parents[1], "x", 1) == 1);
    CHECK(waited(epfd, WITHIN_MS) == 11);
    CHECK(epoll_ctl(epfd, EPOLL_CTL_DEL, parents[0], NULL) == 0);
}

static void keeps_errno(int epfd) {
    int terminal = open("/dev/ptmx", O_RDWR | O_NOCTTY);
    struct epoll_event event = {.events = EPOLLPRI, .data.fd = 13};
    if (terminal < 0) return;
    errno = 0;
    CHECK(epoll_ctl(epfd, EPOLL_CTL_ADD, terminal, &event) == 0);
    CHECK(errno == 0);
    CHECK(epoll_ctl(epfd, EPOLL_CTL_DEL, terminal, NULL) == 0);
    CHECK(errno == 0);
    close(terminal);
}

int main(void) {
    struct ring ring;
    int epfd = epoll_create1(0);
    CHECK(epfd >= 0);
    /* A close that is not seen is a peer that waits for ever. */
    alarm(60);
    keeps_errno(epfd);
    reopens(epfd);
    forks(epfd);
    if (!open_ring(&ring)) return 0;
    closes(&ring, epfd);
    linked(&ring);
    two_threads(epfd);
    return 0;
}
