/* Four processes wait for one listener, each with an epoll instance of its own. Every round waits until
   all have seen the connection before the first of them accepts it. */
#include <netinet/in.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORKERS = 4, ROUNDS = 60 };

static int work(int listener, pthread_barrier_t *all) {
    struct epoll_event event = {.events = EPOLLIN}, events[64];
    int epfd = epoll_create1(0);
    if (epoll_ctl(epfd, EPOLL_CTL_ADD, listener, &event) < 0) return 1;
    for (int round = 0; round < ROUNDS; round++) {
        if (epoll_wait(epfd, events, 64, -1) != 1) return 1;
        pthread_barrier_wait(all);
        int fd = accept(listener, NULL, NULL); /* fault */
        if (fd >= 0) close(fd);
        pthread_barrier_wait(all);
    }
    return 0;
}

int main(void) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    if (bind(listener, (struct sockaddr *)&address, len) < 0 || listen(listener, 16) < 0) return 1;
    if (getsockname(listener, (struct sockaddr *)&address, &len) < 0) return 1;
    pthread_barrier_t *all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(all, &shared, WORKERS + 1);
    for (int worker = 0; worker < WORKERS; worker++)
        if (fork() == 0) return work(listener, all);
    for (int round = 0; round < ROUNDS; round++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&address, len) < 0) return 1;
        pthread_barrier_wait(all);
        pthread_barrier_wait(all);
        close(fd);
    }
    int failed = 0;
    for (int worker = 0, status; worker < WORKERS; worker++)
        if (wait(&status) < 0 || status != 0) failed = 1;
    return failed;
}
