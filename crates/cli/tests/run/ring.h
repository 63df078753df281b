/* A ring of io_uring, for the programs of these tests. */
#include <linux/io_uring.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

struct ring {
    int fd;
    unsigned *head, *tail, mask, *array, *cq_head, *cq_tail, cq_mask;
    struct io_uring_sqe *entries;
    struct io_uring_cqe *results;
};

/* 0 where there is no io_uring. */
static int open_ring(struct ring *ring) {
    struct io_uring_params params = {0};
    ring->fd = (int)syscall(SYS_io_uring_setup, 16, &params);
    if (ring->fd < 0) return 0;
    size_t sq_bytes = params.sq_off.array + params.sq_entries * sizeof(unsigned);
    size_t cq_bytes = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
    size_t bytes = sq_bytes > cq_bytes ? sq_bytes : cq_bytes;
    char *both = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, IORING_OFF_SQ_RING);
    CHECK(both != MAP_FAILED);
    ring->entries = mmap(0, params.sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE,
                         MAP_SHARED, ring->fd, IORING_OFF_SQES);
    CHECK(ring->entries != MAP_FAILED);
    ring->head = (unsigned *)(both + params.sq_off.head);
    ring->tail = (unsigned *)(both + params.sq_off.tail);
    ring->mask = *(unsigned *)(both + params.sq_off.ring_mask);
    ring->array = (unsigned *)(both + params.sq_off.array);
    ring->cq_head = (unsigned *)(both + params.cq_off.head);
    ring->cq_tail = (unsigned *)(both + params.cq_off.tail);
    ring->cq_mask = *(unsigned *)(both + params.cq_off.ring_mask);
    ring->results = (struct io_uring_cqe *)(both + params.cq_off.cqes);
    return 1;
}
