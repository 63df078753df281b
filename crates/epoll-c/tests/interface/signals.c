/* A signal that is blocked but for the wait: it ends the wait with EINTR, its handler has run by then,
 * and it comes neither before nor after. Sent to the waiting thread by a second one that looks at
 * nothing, so that some signals come just before the wait blocks. */
#include "check.h"
#include <pollux/epoll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { ROUNDS = 2000 };

static atomic_int handled, asked;

static void count(int number)
{
    (void)number;
    handled++;
}

static void *send_all(void *waiter)
{
    for (int sent = 0; sent < ROUNDS; sent++) {
        while (asked <= sent)
            ;
        CHECK(pthread_kill(*(pthread_t *)waiter, SIGUSR1) == 0);
    }
    return NULL;
}

int main(void)
{
    int epoll = px_epoll_create1(EPOLL_CLOEXEC), ends[2];
    struct epoll_event event = {.events = EPOLLIN}, room[2];
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
    struct timespec second = {.tv_sec = 20};
    sigset_t blocked, none;
    CHECK(epoll >= 0 && pipe(ends) == 0);
    CHECK(px_epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event) == 0);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    sigemptyset(&none), sigemptyset(&blocked), sigaddset(&blocked, SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &blocked, NULL) == 0);
    pthread_t self = pthread_self(), sender;
    CHECK(pthread_create(&sender, NULL, send_all, &self) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        asked++;
        int found = round % 2 ? px_epoll_pwait(epoll, room, 2, 20000, &none)
                              : px_epoll_pwait2(epoll, room, 2, &second, &none);
        CHECK(found == -1 && errno == EINTR);
        CHECK(handled == round + 1);
    }
    CHECK(pthread_join(sender, NULL) == 0);
    /* Blocked again: it waits for the next one that lets it through. */
    CHECK(pthread_kill(self, SIGUSR1) == 0);
    CHECK(px_epoll_wait(epoll, room, 2, 1) == 0 && handled == ROUNDS);
    CHECK(write(ends[1], "x", 1) == 1);
    CHECK(px_epoll_pwait(epoll, room, 2, 20000, &blocked) == 1);
    CHECK(handled == ROUNDS);
    printf("%d\n", handled);
    return 0;
}
