/* An epoll whose number survives exec keeps its registrations: over an exec that fails, in a child that
 * becomes another program by fork or vfork, and in this program itself. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

static void check(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "%s (errno: %s)\n", what, strerror(errno));
        exit(1);
    }
}

/* Waits once: the bits of what was found. */
static int found(int epoll)
{
    struct epoll_event events[4];
    int bits = 0;
    for (int count = epoll_wait(epoll, events, 4, 50); count > 0; count--)
        bits |= (int)events[count - 1].data.u32;
    return bits;
}

int main(int count, char **words)
{
    if (count > 2) {
        int epoll = atoi(words[1]), pipes[2];
        struct epoll_event more = {.events = EPOLLIN, .data.u32 = 4};
        check(found(epoll) == 1, "the registrations are those from before exec");
        check(pipe(pipes) == 0 && write(pipes[1], "x", 1) == 1, "a pipe");
        check(epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[0], &more) == 0, "add in the new program");
        check(found(epoll) == 5, "both are found");
        check(epoll_ctl(epoll, EPOLL_CTL_DEL, pipes[0], NULL) == 0, "it is taken out again");
        puts(words[2]);
        return 0;
    }
    int epoll = epoll_create(1), closed = epoll_create1(EPOLL_CLOEXEC), ends[2], once[2];
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = 1};
    check(pipe(ends) == 0 && pipe(once) == 0, "pipes");
    check(write(ends[1], "x", 1) == 1 && write(once[1], "x", 1) == 1, "bytes");
    check(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event) == 0, "add");
    check(epoll_ctl(closed, EPOLL_CTL_ADD, ends[0], &event) == 0, "add to another one");
    event.events = EPOLLIN | EPOLLONESHOT, event.data.u32 = 2;
    check(epoll_ctl(epoll, EPOLL_CTL_ADD, once[0], &event) == 0, "add");
    int before = 0;
    while (before != 3)
        before |= found(epoll);
    check(found(epoll) == 1, "the oneshot is spent");

    char number[12], *by_fork[] = {words[0], number, "by fork", NULL},
         *by_vfork[] = {words[0], number, "by vfork", NULL}, *itself[] = {words[0], number, "itself", NULL};
    snprintf(number, sizeof number, "%d", epoll);
    check(execv("/no/such/program", itself) == -1 && errno == ENOENT, "no such program");
    check(found(epoll) == 1 && found(closed) == 1, "after an exec that failed it is as before");
    check(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event) == -1 && errno == EEXIST, "known as before");

    for (int is_shared = 0; is_shared < 2; is_shared++) {
        int status;
        pid_t child = is_shared ? vfork() : fork();
        if (child == 0) {
            execv("/proc/self/exe", is_shared ? by_vfork : by_fork);
            _exit(2);
        }
        check(child > 0 && waitpid(child, &status, 0) == child && status == 0, "the child");
        check(found(epoll) == 1 && found(closed) == 1, "with a child it is as before");
        check(epoll_ctl(epoll, EPOLL_CTL_MOD, once[0], &event) == 0 && found(epoll) == 3, "armed again");
        check(found(epoll) == 1, "and spent");
    }
    execve("/proc/self/exe", itself, environ);
    check(0, "exec");
}
