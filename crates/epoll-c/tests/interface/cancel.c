/* Threads that are cancelled while they wait leave the instance to others: on the kernel's epoll in the
 * wait, elsewhere as soon as it has ended. */
#include "check.h"
#include <pollux/epoll.h>
#include <pthread.h>
#include <unistd.h>

enum { ROUNDS = 100, THREADS = 3 };

static int epoll;

static void *wait_for_ever(void *nothing)
{
    for (;;) {
        struct epoll_event event;
        CHECK(px_epoll_wait(epoll, &event, 1, -1) == 1);
        pthread_testcancel();
    }
    return nothing;
}

int main(void)
{
    int ends[2];
    struct epoll_event event = {.events = EPOLLIN};
    epoll = px_epoll_create1(EPOLL_CLOEXEC);
    CHECK(epoll >= 0 && pipe(ends) == 0);
    event.data.u64 = 7;
    CHECK(px_epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[THREADS];
        char byte;
        for (int i = 0; i < THREADS; i++)
            CHECK(pthread_create(&threads[i], NULL, wait_for_ever, NULL) == 0);
        for (int i = 0; i < THREADS; i++)
            CHECK(pthread_cancel(threads[i]) == 0);
        CHECK(write(ends[1], "x", 1) == 1);
        for (int i = 0; i < THREADS; i++) {
            void *result;
            CHECK(pthread_join(threads[i], &result) == 0 && result == PTHREAD_CANCELED);
        }
        CHECK(px_epoll_wait(epoll, &event, 1, 20000) == 1 && event.data.u64 == 7);
        CHECK(read(ends[0], &byte, 1) == 1);
    }
    puts(px_epoll_poller(epoll));
    return 0;
}
