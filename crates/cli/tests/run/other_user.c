/* Becomes nobody before its first call of epoll, as servers do that are started by root. */
#include <sys/epoll.h>
#include <unistd.h>

int main(void) {
    struct epoll_event events[1];
    if (setgid(65534) < 0 || setuid(65534) < 0) return 1;
    return epoll_wait(epoll_create1(0), events, 1, 0);
}
