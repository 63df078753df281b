/* Locks within a turn answer as without the library: what is printed is compared. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

static pthread_mutex_t robust, plain = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static sem_t semaphore;
static int epfd;

static void *dies(void *unused) {
    pthread_mutex_lock(&robust);
    return unused;
}

static void *cancelled(void *unused) {
    struct epoll_event event;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    epoll_wait(epfd, &event, 1, 0);
    pthread_cancel(pthread_self());
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    sem_wait(&semaphore);
    return unused;
}

int main(void) {
    struct epoll_event event;
    struct timespec never = {.tv_nsec = 2000000000};
    pthread_mutexattr_t kind;
    pthread_t other;
    void *result = NULL;
    alarm(20);
    epfd = epoll_create1(0);
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&robust, &kind);
    sem_init(&semaphore, 0, 9);
    epoll_wait(epfd, &event, 1, 0);
    pthread_create(&other, NULL, dies, NULL);
    pthread_join(other, NULL);
    printf("robust %d", pthread_mutex_lock(&robust));
    pthread_mutex_unlock(&robust);
    printf(" %d", pthread_mutex_lock(&robust));
    printf(" %d\n", pthread_mutex_lock(&robust));
    printf("clock %d %d %d %d\n", pthread_mutex_clocklock(&plain, 99, &never), pthread_rwlock_timedrdlock(&rwlock, &never),
           pthread_rwlock_timedwrlock(&rwlock, &never), pthread_rwlock_clockwrlock(&rwlock, 99, &never));
    errno = 0;
    int timed = sem_timedwait(&semaphore, &never), error = errno;
    int clocked = sem_clockwait(&semaphore, 99, &never), other_error = errno;
    printf("semaphore %d %d %d %d\n", timed, error, clocked, other_error);
    pthread_create(&other, NULL, cancelled, NULL);
    pthread_join(other, &result);
    printf("cancelled %d\n", result == PTHREAD_CANCELED);
    return 0;
}
