/* Each turn sleeps for 20 ms in what its argument names; "loop" by a loop of its own within a callback, "after work" for
   60 ms behind 20 ms on the CPU. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>
#include <linux/futex.h>

enum { TURNS = 6 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, unshared = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static mtx_t plain;
static pthread_barrier_t barrier;
static sem_t semaphore, taken;

static struct timespec in(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    time.tv_nsec += 20000000;
    if (time.tv_nsec >= 1000000000) time.tv_sec++, time.tv_nsec -= 1000000000;
    return time;
}

static void rest(void) {
    /* Not by the C library's names, as this is not what is looked at. */
    struct timespec time = {.tv_nsec = 20000000};
    syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &time, NULL);
}

static void works(void) {
    struct timespec began, now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &began);
    do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while ((now.tv_sec - began.tv_sec) * 1000000000L + now.tv_nsec - began.tv_nsec < 20000000);
}

static void *holds(void *what) {
    if (what == &lock) pthread_mutex_lock(&lock);
    if (what == &rwlock) pthread_rwlock_wrlock(&rwlock);
    if (what == &plain) mtx_lock(&plain);
    sem_post(&taken);
    rest();
    if (what == &lock) pthread_mutex_unlock(&lock);
    if (what == &rwlock) pthread_rwlock_unlock(&rwlock);
    if (what == &plain) mtx_unlock(&plain);
    if (what == &barrier) pthread_barrier_wait(&barrier);
    return NULL;
}

static void sleeps(const char *how) {
    pthread_t other;
    struct timespec until = in(CLOCK_REALTIME);
#define IS(name) (strcmp(how, name) == 0)
    if (IS("pthread_mutex_lock")) {
        pthread_create(&other, NULL, holds, &lock);
        sem_wait(&taken);
        pthread_mutex_lock(&lock);
        pthread_mutex_unlock(&lock);
        pthread_detach(other);
    } else if (IS("pthread_rwlock_lock")) {
        pthread_create(&other, NULL, holds, &rwlock);
        sem_wait(&taken);
        pthread_rwlock_rdlock(&rwlock);
        pthread_rwlock_unlock(&rwlock);
        pthread_detach(other);
    } else if (IS("mtx_lock")) {
        pthread_create(&other, NULL, holds, &plain);
        sem_wait(&taken);
        mtx_lock(&plain);
        mtx_unlock(&plain);
        pthread_detach(other);
    } else if (IS("pthread_barrier_wait")) {
        pthread_create(&other, NULL, holds, &barrier);
        sem_wait(&taken);
        pthread_barrier_wait(&barrier);
        pthread_detach(other);
    } else if (IS("pthread_join")) {
        pthread_create(&other, NULL, holds, NULL);
        pthread_join(other, NULL);
        sem_wait(&taken);
    } else if (IS("pthread_cond_timedwait")) {
        pthread_mutex_lock(&unshared);
        pthread_cond_timedwait(&condition, &unshared, &until);
        pthread_mutex_unlock(&unshared);
    } else if (IS("sem_wait")) {
        sem_timedwait(&semaphore, &until);
    } else if (IS("system")) {
        if (system("sleep 0.02") != 0) exit(1);
    } else if (IS("posix_spawn")) {
        extern char **environ;
        char *words[] = {"sleep", "0.02", NULL};
        pid_t child;
        if (posix_spawnp(&child, "sleep", NULL, NULL, words, environ) != 0) exit(1);
        if (wait4(child, NULL, 0, NULL) != child) exit(1);
    } else if (IS("futex")) {
        int word = 0;
        struct timespec time = {.tv_nsec = 20000000};
        syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &time, NULL, 0);
    } else if (IS("sigtimedwait")) {
        sigset_t set;
        struct timespec time = {.tv_nsec = 20000000};
        sigemptyset(&set);
        sigaddset(&set, SIGUSR2);
        sigtimedwait(&set, NULL, &time);
    } else if (IS("loop")) {
        int epfd = epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, 0);
        struct itimerspec time = {.it_value.tv_nsec = 20000000};
        struct epoll_event event = {.events = EPOLLIN};
        timerfd_settime(timer, 0, &time, NULL);
        if (epoll_ctl(epfd, EPOLL_CTL_ADD, timer, &event) < 0) exit(1);
        if (epoll_wait(epfd, &event, 1, -1) != 1) exit(1);
        close(timer);
        close(epfd);
    } else if (IS("after work")) {
        struct timespec time = {.tv_nsec = 60000000};
        works();
        nanosleep(&time, NULL);
    } else if (IS("nothing that is followed")) {
        /* Of the C library's own calls none goes by the names that are taken. */
        FILE *stream = popen("sleep 0.02", "r");
        if (stream == NULL || fgetc(stream) != EOF) exit(1);
        pclose(stream);
    } else {
        exit(2);
    }
}

int main(int argc, char **argv) {
    int ends[2], epfd = epoll_create1(0);
    if (argc < 2 || pipe(ends) < 0) return 1;
    sem_init(&semaphore, 0, 0);
    sem_init(&taken, 0, 0);
    mtx_init(&plain, mtx_plain);
    pthread_barrier_init(&barrier, NULL, 2);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = ends[0]}, events[8];
    if (epoll_ctl(epfd, EPOLL_CTL_ADD, ends[0], &event) < 0) return 1;
    for (int turn = 0; turn < TURNS; turn++) {
        char byte = 'x';
        if (write(ends[1], &byte, 1) != 1) return 1;
        if (epoll_wait(epfd, events, 8, -1) != 1) return 1;
        if (read(ends[0], &byte, 1) != 1) return 1;
        sleeps(argv[1]);
    }
    return epoll_wait(epfd, events, 8, 0);
}
