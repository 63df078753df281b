/* A program written for epoll, which knows nothing of pollux: a thread writes to pipes and sockets in
 * turn, the main thread reads what is reported, edge triggered, until all has come. */
#include "check.h"
#include <pollux/epoll.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STREAMS = 100, BYTES = 50000, ROOM = 64 };

static int readers[STREAMS], writers[STREAMS];

static void *write_all(void *nothing)
{
    for (int byte = 0; byte < BYTES; byte++)
        CHECK(write(writers[byte * 7 % STREAMS], "x", 1) == 1);
    return nothing;
}

int main(void)
{
    int epoll = epoll_create(STREAMS);
    CHECK(epoll >= 0);
    for (int i = 0; i < STREAMS; i++) {
        int ends[2];
        CHECK((i % 2 ? pipe(ends) : socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) == 0);
        CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
        readers[i] = ends[0], writers[i] = ends[1];
        struct epoll_event event = {.events = EPOLLIN | EPOLLET};
        event.data.u32 = (uint32_t)i;
        CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event) == 0);
    }
    pthread_t writer;
    CHECK(pthread_create(&writer, NULL, write_all, NULL) == 0);
    int taken = 0;
    while (taken < BYTES) {
        struct epoll_event events[ROOM];
        int found = epoll_wait(epoll, events, ROOM, 20000);
        CHECK(found > 0);
        for (int i = 0; i < found; i++) {
            char bytes[256];
            ssize_t count;
            while ((count = read(readers[events[i].data.u32], bytes, sizeof bytes)) > 0)
                taken += (int)count;
            CHECK(count == -1 && errno == EAGAIN);
        }
    }
    CHECK(pthread_join(writer, NULL) == 0);
    printf("%d bytes\n", taken);
    return 0;
}
