/* A server with descriptors and times of its own, started by its own main through _tmstartserver; and its client
 * (argument: client). */
#include <atmi.h>
#include <errno.h>
#include <fcntl.h>
#include <ndebug.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static int ends[2] = {-1, -1};
static long events, ticks, waits;
static char seen[32];

static int on_events(int fd, uint32_t flags, void *data) {
  char bytes[sizeof seen] = "";
  if (!(flags & EPOLLIN) || data != (void *)seen) return -1;
  if (read(fd, bytes, sizeof bytes - 1) < 0) return errno == EAGAIN ? 0 : -1;
  memcpy(seen, bytes, sizeof seen);
  events++;
  return strcmp(bytes, "fail") == 0 ? -1 : 0;
}

static int on_time(void) {
  ticks++;
  return 0;
}

static int on_wait(void) {
  waits++;
  return 0;
}

/* Writes into the pipe; the callback has come by the next call. */
void POKE(TPSVCINFO *call) {
  int ok = write(ends[1], call->data, strlen(call->data)) > 0;
  tpreturn(ok ? TPSUCCESS : TPFAIL, 0, call->data, 0, 0);
}

void COUNTS(TPSVCINFO *call) {
  char *text = tprealloc(call->data, 256);
  snprintf(text, 256, "%ld %s %d %d", events, seen, ticks > 0, waits > 0);
  tpreturn(TPSUCCESS, 0, text, 0, 0);
}

/* Takes all of it off, and looks at the errors of each. */
void OFF(TPSVCINFO *call) {
  CHECK(tpext_addpollerfd(ends[0], EPOLLIN, seen, on_events) == -1 && tperrno == TPEMATCH);
  CHECK(tpext_addpollerfd(-1, EPOLLIN, seen, on_events) == -1 && tperrno == TPEINVAL);
  CHECK(tpext_addpollerfd(ends[1], EPOLLIN, seen, NULL) == -1 && tperrno == TPEINVAL);
  CHECK(tpext_addpollerfd(12345, EPOLLIN, seen, on_events) == -1 && tperrno == TPEOS);
  CHECK(tpext_delpollerfd(-1) == -1 && tperrno == TPEINVAL);
  CHECK(tpext_delpollerfd(ends[1]) == -1 && tperrno == TPEMATCH);
  CHECK(tpext_delpollerfd(ends[0]) == 0);
  CHECK(tpext_addperiodcb(-1, on_time) == -1 && tperrno == TPEINVAL);
  CHECK(tpext_addperiodcb(0, NULL) == 0 && tpext_delperiodcb() == 0);
  CHECK(tpext_addb4pollcb(NULL) == -1 && tperrno == TPEINVAL);
  CHECK(tpext_delb4pollcb() == 0);
  events = 0;
  tpreturn(failures == 0 ? TPSUCCESS : TPFAIL, failures, call->data, 0, 0);
}

/* Closes a descriptor before it is taken off, while a duplicate of it lives and has something to read; its number is
 * another file's then, whose function is called. */
void CLOSED(TPSVCINFO *call) {
  int old[2];
  CHECK(pipe(old) == 0 && tpext_addpollerfd(old[0], EPOLLIN, seen, on_events) == 0);
  CHECK(dup(old[0]) >= 0 && close(old[0]) == 0 && tpext_delpollerfd(old[0]) == 0);
  CHECK(write(old[1], "x", 1) == 1);
  /* And one whose number comes back without having been taken off. */
  CHECK(pipe(old) == 0 && tpext_addpollerfd(old[0], EPOLLIN, seen, on_events) == 0);
  CHECK(dup(old[0]) >= 0 && write(old[1], "x", 1) == 1 && dup2(ends[0], old[0]) == old[0]);
  CHECK(tpext_addpollerfd(old[0], EPOLLIN, seen, on_events) == 0);
  CHECK(tpext_delpollerfd(old[0]) == 0 && close(old[0]) == 0);
  tpreturn(failures == 0 ? TPSUCCESS : TPFAIL, failures, call->data, 0, 0);
}

/* CPU time of this process, in milliseconds. */
void USED(TPSVCINFO *call) {
  struct timespec used;
  CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) == 0);
  char *text = tprealloc(call->data, 256);
  snprintf(text, 256, "%ld", used.tv_sec * 1000L + used.tv_nsec / 1000000L);
  tpreturn(TPSUCCESS, 0, text, 0, 0);
}

static pthread_t own;
static volatile sig_atomic_t elsewhere;

static void on_signal(int number) {
  (void)number;
  if (!pthread_equal(pthread_self(), own)) elsewhere = 1;
}

/* A signal to the process comes to a thread of the server, though that one is busy, and not to one of the library. */
void SIGNALS(TPSVCINFO *call) {
  sigset_t usr1, before;
  own = pthread_self();
  CHECK(signal(SIGUSR1, on_signal) != SIG_ERR && sigemptyset(&usr1) == 0 && sigaddset(&usr1, SIGUSR1) == 0);
  CHECK(pthread_sigmask(SIG_BLOCK, &usr1, &before) == 0);
  CHECK(kill(getpid(), SIGUSR1) == 0);
  struct timespec none = {0, 0};
  CHECK(sigtimedwait(&usr1, NULL, &none) == SIGUSR1 && !elsewhere);
  CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
  tpreturn(failures == 0 ? TPSUCCESS : TPFAIL, failures, call->data, 0, 0);
}

void PID(TPSVCINFO *call) {
  char *text = tprealloc(call->data, 256);
  snprintf(text, 256, "%ld", (long)getpid());
  tpreturn(TPSUCCESS, 0, text, 0, 0);
}

/* Names the log file of a request. */
void NAMES(TPSVCINFO *call) {
  int ok = tplogsetreqfile(&call->data, "./request.log", NULL) == 0;
  tplogclosereqfile();
  tpreturn(ok ? TPSUCCESS : TPFAIL, 0, call->data, 0, 0);
}

void LEAVE(TPSVCINFO *call) {
  tpexit();
  tpreturn(TPSUCCESS, 0, call->data, 0, 0);
}

static void *leave_later(void *unused) {
  usleep(20000);
  tpexit();
  return unused;
}

/* Another thread ends the server, which waits for requests by then. */
void THREAD(TPSVCINFO *call) {
  pthread_t thread;
  int ok = pthread_create(&thread, NULL, leave_later, NULL) == 0 && pthread_detach(thread) == 0;
  tpreturn(ok ? TPSUCCESS : TPFAIL, 0, call->data, 0, 0);
}

static int init(int argc, char **argv) {
  (void)argc;
  (void)argv;
  if (pipe(ends) != 0 || fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) return -1;
  if (tpext_addpollerfd(ends[0], EPOLLIN, seen, on_events) != 0) return -1;
  return tpext_addperiodcb(1, on_time) == 0 && tpext_addb4pollcb(on_wait) == 0 ? 0 : -1;
}

static void done(void) { fprintf(stderr, "done\n"); }

static int server(int argc, char **argv) {
  /* Without a name a function is only linked in: -S gives it one. The rows behind it count. */
  static struct tmdsptchtbl_t services[] = {{"", "linked", PID, 0, 0},
                                            {"POKE", "POKE", POKE, 0, 0},    {"COUNTS", "COUNTS", COUNTS, 0, 0},
                                            {"OFF", "OFF", OFF, 0, 0},       {"LEAVE", "LEAVE", LEAVE, 0, 0},
                                            {"PID", "PID", PID, 0, 0},       {"NAMES", "NAMES", NAMES, 0, 0},
                                            {"CLOSED", "CLOSED", CLOSED, 0, 0}, {"USED", "USED", USED, 0, 0},
                                            {"SIGNALS", "SIGNALS", SIGNALS, 0, 0},
                                            {"THREAD", "THREAD", THREAD, 0, 0},
                                            {NULL, NULL, NULL, 0, 0}};
  struct tmsvrargs_t arguments;
  memset(&arguments, 0, sizeof arguments);
  arguments.xa_switch = &tmnull_switch;
  arguments.svctab = services;
  arguments.p_tpsvrinit = init;
  arguments.p_tpsvrdone = done;
  _tmbuilt_with_thread_option = 0;
  return _tmstartserver(argc, argv, &arguments);
}

static char *ask(const char *service, const char *text) {
  static char *data = NULL;
  long len = 0;
  if (data == NULL) data = tpalloc("STRING", NULL, 256);
  strcpy(data, text);
  CHECK(tpcall(service, data, 0, &data, &len, 0) == 0);
  return data;
}

/* Asks until the server says so: callbacks come between requests. */
static void until(const char *said) {
  for (int tries = 0; tries < 20000; tries++) {
    if (strcmp(ask("COUNTS", ""), said) == 0) return;
    usleep(1000);
  }
  CHECK(!said);
}

/* The server's process; 0 while there is none. */
static long process(void) {
  char *data = tpalloc("STRING", NULL, 256);
  long len = 0;
  strcpy(data, "");
  long pid = tpcall("PID", data, 0, &data, &len, 0) == 0 ? atol(data) : 0;
  tpfree(data);
  return pid;
}

static void until_other(long before) {
  for (int tries = 0; tries < 20000; tries++) {
    long now = process();
    if (now != 0 && now != before) return;
    usleep(1000);
  }
  CHECK(!"another process");
}

static int client(void) {
  CHECK(tpext_addpollerfd(0, EPOLLIN, seen, on_events) == -1 && tperrno == TPEPROTO);
  CHECK(tpext_delpollerfd(0) == -1 && tperrno == TPEPROTO);
  CHECK(tpext_addperiodcb(1, on_time) == -1 && tperrno == TPEPROTO);
  CHECK(tpext_delperiodcb() == -1 && tperrno == TPEPROTO);
  CHECK(tpext_addb4pollcb(on_time) == -1 && tperrno == TPEPROTO);
  CHECK(tpext_delb4pollcb() == -1 && tperrno == TPEPROTO);
  tpexit();
  CHECK(tperrno == TPEPROTO);
  CHECK(atol(ask("LINKED", "")) > 1);
  ask("POKE", "one");
  until("1 one 1 1");
  ask("POKE", "two");
  until("2 two 1 1");
  /* What was closed has no events that nobody takes, and what is watched beside it still has its own. */
  ask("CLOSED", "");
  long used = atol(ask("USED", ""));
  usleep(500000);
  used = atol(ask("USED", "")) - used;
  CHECK(used < 200);
  ask("SIGNALS", "");
  ask("POKE", "again");
  until("3 again 1 1");
  ask("OFF", "");
  ask("POKE", "three");
  until("0 again 1 1");
  /* Another process takes its place. */
  long before = process();
  ask("LEAVE", "");
  until_other(before);
  before = process();
  ask("THREAD", "");
  until_other(before);
  /* A callback that fails ends the server, which is started again. */
  before = process();
  ask("POKE", "fail");
  until_other(before);
  char *fields = tpalloc("UBF", NULL, 1024), file[64] = "";
  CHECK(tplogsetreqfile(&fields, NULL, "NOSUCH") == -1 && tperrno == TPENOENT);
  CHECK(tplogsetreqfile(&fields, NULL, "NAMES") == 0 && tploggetreqfile(file, sizeof file) == 1);
  CHECK(strcmp(file, "./request.log") == 0 && tploggetbufreqfile(fields, file, sizeof file) == 0);
  tplogclosereqfile();
  tpfree(fields);
  CHECK(tpsprio(101, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpsprio(20, 0) == 0);
  ask("COUNTS", "");
  CHECK(tpgprio() == 70);
  CHECK(tpsprio(10, TPABSOLUTE) == 0);
  ask("COUNTS", "");
  CHECK(tpgprio() == 10);
  ask("COUNTS", "");
  CHECK(tpgprio() == 50);
  tpterm();
  return failures != 0;
}

int main(int argc, char **argv) {
  return argc > 1 && strcmp(argv[1], "client") == 0 ? client() : server(argc, argv);
}
