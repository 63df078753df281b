/* Conversations that end by SIGKILL, waits of theirs, and limits; the argument names a scenario. */
#include <atmi.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { ROUNDS = 5, CONVERSATIONS_MAX = 1024, SUBSCRIPTIONS_MAX = 1024, CONTEXTS_MAX = 8192 };

/* The longest that the death of one side may take to reach the other. */
static const double at_once_s = 1.0;

static double seconds(struct timespec moment) {
  return (double)moment.tv_sec + (double)moment.tv_nsec / 1e9;
}

static double now(void) {
  struct timespec moment;
  clock_gettime(CLOCK_MONOTONIC, &moment);
  return seconds(moment);
}

static int well(int result) {
  if (result == -1) fprintf(stderr, "%s\n", tpstrerror(tperrno));
  return result != -1;
}

static char *string(const char *text) {
  char *buffer = tpalloc("STRING", NULL, 512);
  strcpy(buffer, text);
  return buffer;
}

static void tell(const char *what, double longest_s) {
  printf("%s: %d times, longest %.3f ms\n", what, ROUNDS, longest_s * 1e3);
  CHECK(longest_s < at_once_s);
}

/* The service is killed while it receives: this side notices as it sends. */
static double service_dies_listening(void) {
  char *data = string("listen");
  long len = 0, event = 0;
  int cd = tpconnect("STAYS", data, 0, TPRECVONLY);
  CHECK(well(cd));
  CHECK(tprecv(cd, &data, &len, 0, &event) == -1 && tperrno == TPEEVENT && event == TPEV_SENDONLY);
  double begun = now();
  CHECK(kill((pid_t)atoi(data), SIGKILL) == 0);
  int sent = 0;
  while (sent == 0 && now() - begun < 10) sent = tpsend(cd, data, 0, 0, &event);
  double took = now() - begun;
  CHECK(sent == -1 && tperrno == TPEEVENT && event == TPEV_SVCERR);
  CHECK(tpsend(cd, data, 0, 0, &event) == -1 && tperrno == TPEBADDESC);
  tpfree(data);
  return took;
}

/* The service is killed while this side waits for it. */
static double service_dies_silently(void) {
  char *data = string("talk");
  long len = 0, event = 0;
  int ask[2];
  struct timespec *killed = mmap(NULL, sizeof *killed, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(killed != MAP_FAILED && pipe(ask) == 0);
  pid_t killer = fork();
  if (killer == 0) {
    pid_t service;
    if (read(ask[0], &service, sizeof service) != (ssize_t)sizeof service) _exit(1);
    clock_gettime(CLOCK_MONOTONIC, killed);
    _exit(kill(service, SIGKILL) != 0);
  }
  int cd = tpconnect("STAYS", data, 0, TPRECVONLY);
  CHECK(well(cd) && tprecv(cd, &data, &len, 0, &event) == 0);
  pid_t service = (pid_t)atoi(data);
  CHECK(write(ask[1], &service, sizeof service) == (ssize_t)sizeof service);
  CHECK(tprecv(cd, &data, &len, TPNOTIME, &event) == -1 && tperrno == TPEEVENT);
  double noticed = now();
  CHECK(event == TPEV_SVCERR);
  CHECK(tprecv(cd, &data, &len, 0, &event) == -1 && tperrno == TPEBADDESC);
  int status = -1;
  CHECK(waitpid(killer, &status, 0) == killer && status == 0);
  double took = noticed - seconds(*killed);
  close(ask[0]);
  close(ask[1]);
  munmap(killed, sizeof *killed);
  tpfree(data);
  return took;
}

/* The initiator is killed while the service receives, or while it sends to a client that does not read. */
static double initiator_dies(long role) {
  static int number;
  char path[256];
  int told[2];
  char byte = 0;
  struct timespec noticed;
  snprintf(path, sizeof path, "%s/noticed-%d-%d", getenv("NDRX_ULOG"), (int)getpid(), number++);
  CHECK(mkfifo(path, 0600) == 0 && pipe(told) == 0);
  int file = open(path, O_RDWR);
  CHECK(file != -1);
  pid_t initiator = fork();
  if (initiator == 0) {
    char *data = string(path);
    if (tpconnect("NOTES", data, 0, role) == -1) _exit(1);
    if (write(told[1], &byte, 1) != 1) _exit(1);
    for (;;) pause();
  }
  CHECK(read(told[0], &byte, 1) == 1);
  double killed = now();
  CHECK(kill(initiator, SIGKILL) == 0);
  CHECK(read(file, &noticed, sizeof noticed) == (ssize_t)sizeof noticed);
  CHECK(waitpid(initiator, NULL, 0) == initiator);
  close(file);
  close(told[0]);
  close(told[1]);
  unlink(path);
  return seconds(noticed) - killed;
}

static void deaths(void) {
  double listening = 0, silent = 0, receives = 0, sends = 0;
  for (int i = 0; i < ROUNDS && failures == 0; i++) {
    double took;
    if ((took = initiator_dies(TPSENDONLY)) > receives) receives = took;
    if ((took = initiator_dies(TPRECVONLY)) > sends) sends = took;
    if ((took = service_dies_listening()) > listening) listening = took;
    if ((took = service_dies_silently()) > silent) silent = took;
  }
  tell("service killed, initiator sends", listening);
  tell("service killed, initiator receives", silent);
  tell("initiator killed, service receives", receives);
  tell("initiator killed, service sends", sends);
  char *data = string("after all of them");
  long len = 0;
  CHECK(well(tpcall("ECHO", data, 0, &data, &len, 0)) && strcmp(data, "after all of them") == 0);
  tpfree(data);
}

static void nothing(int number) { (void)number; }

/* A signal comes in a tenth of a second. */
static void alarm_soon(void) {
  struct itimerval after = {{0, 0}, {0, 100000}};
  struct sigaction action = {0};
  action.sa_handler = nothing;
  sigaction(SIGALRM, &action, NULL);
  setitimer(ITIMER_REAL, &after, NULL);
}

/* What waits of a conversation end in when the other side does nothing. */
static void waits(void) {
  char *data = string("60000"), *big = tpalloc("CARRAY", NULL, 30000);
  long len = 0, event = 0;
  int deaf = tpconnect("DEAF", data, 0, TPSENDONLY), mute = tpconnect("DEAF", data, 0, TPRECVONLY);
  CHECK(well(deaf) && well(mute));
  int sent = 0;
  while (sent == 0) sent = tpsend(deaf, big, 30000, TPNOBLOCK, &event);
  CHECK(tpsend(deaf, big, 30000, TPNOBLOCK, &event) == -1 && tperrno == TPEBLOCK);
  CHECK(tprecv(mute, &data, &len, TPNOBLOCK, &event) == -1 && tperrno == TPEBLOCK);
  CHECK(tpsblktime(1, TPBLK_NEXT) == 0);
  double begun = now();
  CHECK(tpsend(deaf, big, 30000, 0, &event) == -1 && tperrno == TPETIME);
  CHECK(now() - begun > 0.99 && tpsblktime(1, TPBLK_NEXT) == 0);
  begun = now();
  CHECK(tprecv(mute, &data, &len, 0, &event) == -1 && tperrno == TPETIME);
  CHECK(now() - begun > 0.99);
  alarm_soon();
  CHECK(tpsend(deaf, big, 30000, TPNOTIME, &event) == -1 && tperrno == TPGOTSIG);
  alarm_soon();
  CHECK(tprecv(mute, &data, &len, TPNOTIME, &event) == -1 && tperrno == TPGOTSIG);
  CHECK(tpdiscon(deaf) == 0 && tpdiscon(mute) == 0);
  tpfree(data);
  tpfree(big);
}

/* One server, which is busy: a caller that begins a conversation waits for it. */
static void begins(void) {
  char *data = string("4000"), *word = string("starve"), *reply = NULL;
  long len = 0;
  int cd = tpacall("SLOW", data, 0, 0);
  CHECK(well(cd) && tpsblktime(1, TPBLK_NEXT) == 0);
  CHECK(tpconnect("STAYS", NULL, 0, TPSENDONLY) == -1 && tperrno == TPETIME);
  alarm_soon();
  CHECK(tpconnect("STAYS", NULL, 0, TPSENDONLY) == -1 && tperrno == TPGOTSIG);
  while (tpacall("LEAVES", NULL, 0, TPNOREPLY | TPNOBLOCK) == 0) continue;
  CHECK(tperrno == TPEBLOCK);
  CHECK(tpconnect("LEAVES", NULL, 0, TPSENDONLY | TPNOBLOCK) == -1 && tperrno == TPEBLOCK);
  alarm_soon();
  CHECK(tpacall("LEAVES", NULL, 0, TPNOTIME) == -1 && tperrno == TPGOTSIG);
  CHECK(tpsblktime(1, TPBLK_NEXT) == 0);
  CHECK(tpacall("LEAVES", NULL, 0, 0) == -1 && tperrno == TPETIME);
  CHECK(well(tpgetrply(&cd, &reply, &len, 0)));
  /* A service that cannot come to the conversation. */
  CHECK(well(tpcall("STARVES", word, 0, &reply, &len, 0)));
  CHECK(tpconnect("LEAVES", NULL, 0, TPSENDONLY) == -1 && tperrno == TPESVCERR);
  strcpy(word, "eat");
  CHECK(well(tpcall("STARVES", word, 0, &reply, &len, 0)));
  cd = tpconnect("LEAVES", NULL, 0, TPRECVONLY);
  long event = 0;
  CHECK(well(cd) && tprecv(cd, &reply, &len, 0, &event) == -1 && tperrno == TPEEVENT);
  CHECK(event == TPEV_SVCFAIL && tpurcode == 7);
  tpfree(data);
  tpfree(word);
  tpfree(reply);
}

/* Conversations that are over and were not looked at count as well. */
static void conversations(void) {
  static int cd[CONVERSATIONS_MAX];
  char *reply = NULL;
  long len = 0, event = 0;
  for (int i = 0; i < CONVERSATIONS_MAX && failures == 0; i++) {
    CHECK(well(cd[i] = tpconnect("LEAVES", NULL, 0, TPRECVONLY)));
  }
  CHECK(tpconnect("LEAVES", NULL, 0, TPRECVONLY) == -1 && tperrno == TPELIMIT);
  CHECK(tprecv(cd[0], &reply, &len, 0, &event) == -1 && event == TPEV_SVCFAIL);
  CHECK(well(cd[0] = tpconnect("LEAVES", NULL, 0, TPRECVONLY)));
  for (int i = 0; i < CONVERSATIONS_MAX; i++) {
    event = 0;
    CHECK(tprecv(cd[i], &reply, &len, 0, &event) == -1 && event == TPEV_SVCFAIL && tpurcode == 7);
  }
}

static void take_message(char *data, long len, long flags) {
  (void)data;
  (void)len;
  (void)flags;
}

static void subscriptions(void) {
  char *data = string("x");
  long last = 0;
  int made = 0;
  CHECK(tpsetunsol(take_message) == NULL && tperrno == 0);
  while ((last = tpsubscribe("E.*", NULL, NULL, 0)) > 0) made++;
  CHECK(made == SUBSCRIPTIONS_MAX);
  CHECK(tpsubscribe("E", NULL, NULL, 0) == -1 && tperrno == TPELIMIT);
  CHECK(strstr(tpstrerror(tperrno), "1024") != NULL);
  /* All of them want it; what finds no room is lost. */
  int posted = tppost("E1", data, 0, 0);
  CHECK(posted > 0 && posted <= made && tpchkunsol() == posted);
  CHECK(tpunsubscribe(-1, 0) == made && tpsubscribe("E", NULL, NULL, 0) > 0);
  tpfree(data);
}

/* A client that does not look at its messages. */
static void messages(void) {
  char *who = NULL, *data = string("x");
  long len = 0;
  int sent = 0;
  CHECK(tpsetunsol(take_message) == NULL && tperrno == 0);
  CHECK(well(tpcall("WHO", NULL, 0, &who, &len, 0)) && len == sizeof(CLIENTID));
  while (tpnotify((CLIENTID *)who, data, 0, 0) == 0) sent++;
  CHECK(tpnotify((CLIENTID *)who, data, 0, 0) == -1 && tperrno == TPEBLOCK);
  CHECK(sent > 0 && tpchkunsol() == sent && tpnotify((CLIENTID *)who, data, 0, 0) == 0);
  tpfree(who);
  tpfree(data);
}

static void contexts(void) {
  TPINIT *info = (TPINIT *)tpalloc("TPINIT", NULL, TPINITNEED(0));
  TPCONTEXT_T last = 0, seen = 0;
  char *data = string("in the last"), *reply = NULL;
  long len = 0;
  int made = 0;
  info->flags = TPMULTICONTEXTS;
  while (tpinit(info) == 0) made++;
  CHECK(tperrno == TPELIMIT && made == CONTEXTS_MAX);
  CHECK(tpinit(info) == -1 && tperrno == TPELIMIT);
  CHECK(tpgetctxt(&last, 0) >= 0 && well(tpcall("ECHO", data, 0, &reply, &len, 0)));
  CHECK(tpterm() == 0 && tpinit(info) == 0 && tpgetctxt(&seen, 0) >= 0 && seen != last);
  tpfree((char *)info);
  tpfree(data);
  tpfree(reply);
}

static int told;
static char last_told[64];

static void keep_message(char *data, long len, long flags) {
  (void)flags;
  told++;
  snprintf(last_told, sizeof last_told, "%.*s", (int)len, data);
}

/* What a member of the group may do in a pool of another one of them. */
static void guest(void) {
  char *data = string("from another user"), *big = tpalloc("CARRAY", NULL, 100000), *reply = NULL;
  long len = 0, event = 0;
  CHECK(well(tpcall("ECHO", data, 0, &reply, &len, 0)) && strcmp(reply, data) == 0);
  for (int i = 0; i < 100; i++) {
    int cd = tpacall("ECHO", data, 0, 0);
    CHECK(well(cd) && well(tpgetrply(&cd, &reply, &len, 0)) && strcmp(reply, data) == 0);
  }
  /* Memory of this process cannot be opened by another user. */
  CHECK(tpcall("ECHO", big, 100000, &reply, &len, 0) == -1 && tperrno == TPELIMIT);
  CHECK(strstr(tpstrerror(tperrno), "NDRX_MSGSIZEMAX") != NULL);
  CHECK(tpcall("LONG", NULL, 0, &reply, &len, 0) == -1 && tperrno == TPESVCERR);
  CHECK(well(tpcall("ECHO", data, 0, &reply, &len, 0)) && strcmp(reply, data) == 0);
  int cd = tpconnect("LEAVES", NULL, 0, TPRECVONLY);
  CHECK(well(cd) && tprecv(cd, &reply, &len, 0, &event) == -1 && event == TPEV_SVCFAIL);
  CHECK(tpsetunsol(keep_message) == NULL && tperrno == 0);
  CHECK(well(tpcall("TELL", data, 0, &reply, &len, 0)) && told == 1 && tpchkunsol() == 0);
  CHECK(strcmp(last_told, "from another user") == 0);
  CHECK(tpsubscribe("E", NULL, NULL, 0) > 0 && tppost("E", data, 0, 0) == 1 && tpchkunsol() == 1);
  tpfree(data);
  tpfree(big);
  tpfree(reply);
}

/* A call, then it waits for its end. */
static void waiter(void) {
  char *data = string("x");
  long len = 0;
  CHECK(well(tpcall("ECHO", data, 0, &data, &len, 0)) && printf("called\n") > 0 && fflush(stdout) == 0);
  for (;;) pause();
}

/* Words of the refusal. */
static const char *expected;

static void stranger(void) {
  char *data = string("x"), *reply = NULL;
  long len = 0;
  CHECK(tpinit(NULL) == -1 && tperrno == TPEPERM && tperrordetail(0) == TPED_PERM);
  CHECK(strstr(tpstrerrordetail(TPED_PERM, 0), "another user") != NULL);
  CHECK(tpcall("ECHO", data, 0, &reply, &len, 0) == -1 && tperrno == TPEPERM);
  CHECK(strstr(tpstrerror(tperrno), expected) != NULL);
  if (failures > 0) fprintf(stderr, "%s\n", tpstrerror(TPEPERM));
  CHECK(tppost("E", data, 0, 0) == -1 && tperrno == TPEPERM);
  tpfree(data);
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*run)(void);
  } scenarios[] = {
      {"deaths", deaths},     {"waits", waits},       {"begins", begins},
      {"contexts", contexts}, {"messages", messages}, {"conversations", conversations},
      {"subscriptions", subscriptions}, {"guest", guest}, {"stranger", stranger}, {"waiter", waiter},
  };
  struct rlimit limit;
  CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = limit.rlim_max;
  CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  expected = argc > 2 ? argv[2] : "";
  for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
    if (argc >= 2 && strcmp(argv[1], scenarios[i].name) == 0) {
      scenarios[i].run();
      return failures != 0;
    }
  }
  fprintf(stderr, "usage: %s SCENARIO\n", argv[0]);
  return 2;
}
