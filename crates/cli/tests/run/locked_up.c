/* Sets a filter that kills for each call but those below, and serves a turn then: by prctl, by its number, or by seccomp.
   "forbidden" makes a call that the filter forbids. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAY(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "prctl";
    int ends[2], epfd = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN}, events[4];
    if (epfd < 0 || pipe(ends) < 0 || epoll_ctl(epfd, EPOLL_CTL_ADD, ends[0], &event) < 0) return 1;
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        MAY(SYS_read), MAY(SYS_write), MAY(SYS_epoll_pwait), MAY(SYS_exit_group),
        MAY(SYS_brk), MAY(SYS_mmap), MAY(SYS_munmap), MAY(SYS_futex), MAY(SYS_ppoll),
#ifdef SYS_epoll_wait
        MAY(SYS_epoll_wait), MAY(SYS_poll),
#endif
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) return 2;
    long set = strcmp(how, "seccomp") == 0  ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)
               : strcmp(how, "number") == 0 ? syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0)
                                            : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    if (set < 0) return 3;
    for (int turn = 0; turn < 20; turn++) {
        char byte = 'x';
        if (write(ends[1], &byte, 1) != 1 || epoll_wait(epfd, events, 4, -1) != 1) return 4;
        if (read(ends[0], &byte, 1) != 1) return 5;
    }
    if (strcmp(how, "forbidden") == 0) syscall(SYS_getppid);
    return write(1, "served\n", 7) == 7 ? 0 : 6;
}
