/* The calls of the scenarios; the argument names one. What does not hold is printed, exit code 1. */
#include <atmi.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ubf.h>
#include <unistd.h>

#include "check.h"

enum { NAME = 167773161 /* string 1001 */ };

static double now(void) {
  struct timespec moment;
  clock_gettime(CLOCK_MONOTONIC, &moment);
  return (double)moment.tv_sec + (double)moment.tv_nsec / 1e9;
}

/* Says what a call that should have gone well ended in; its own result. */
static int well(int result) {
  if (result == -1) fprintf(stderr, "%s\n", tpstrerror(tperrno));
  return result != -1;
}

static char *string(const char *text) {
  char *buffer = tpalloc("STRING", NULL, 128);
  strcpy(buffer, text);
  return buffer;
}

/* One echo that must come back as it went. */
static void echo(const char *text) {
  char *buffer = string(text);
  long len = 0;
  CHECK(tpcall("ECHO", buffer, 0, &buffer, &len, 0) == 0 && tpurcode == 77);
  CHECK(strcmp(buffer, text) == 0 && len == (long)strlen(text) + 1);
  tpfree(buffer);
}

static void basic(void) {
  UBFH *fields = (UBFH *)tpalloc("UBF", NULL, 1024);
  char value[32], *reply = NULL, *wrong = string("x");
  long len = 0;
  CHECK(Badd(fields, NAME, "ACC00000000001", 0) == 0);
  for (int i = 0; i < 100; i++) {
    CHECK(tpcall("ECHO", (char *)fields, 0, (char **)&fields, &len, 0) == 0);
    CHECK(len == 1024 && tpurcode == 77);
  }
  CHECK(Bget(fields, NAME, 0, value, NULL) == 0 && strcmp(value, "ACC00000000001") == 0);
  CHECK(tpcall("FAIL", (char *)fields, 0, &reply, &len, 0) == -1 && tperrno == TPESVCFAIL);
  CHECK(tpurcode == 5 && Bpres((UBFH *)reply, NAME, 0) && len == 1024);
  CHECK(tpcall("NONE", (char *)fields, 0, &reply, &len, 0) == -1 && tperrno == TPENOENT);
  CHECK(tpcall("", (char *)fields, 0, &reply, &len, 0) == -1 && tperrno == TPENOENT);
  CHECK(tpcall("SILENT", (char *)fields, 0, &reply, &len, 0) == -1 && tperrno == TPESVCERR);
  CHECK(tpcall("STRAYS", (char *)fields, 0, &reply, &len, 0) == -1 && tperrno == TPESVCERR);
  CHECK(tpcall("SOFT", (char *)fields, 0, &reply, &len, 0) == -1 && tperrno == TPEITYPE);
  CHECK(tpcall("SOFTTIME", (char *)fields, 0, &reply, &len, 0) == -1 && tperrno == TPETIME);
  CHECK(tpcall("SOFTNONE", (char *)fields, 0, &reply, &len, 0) == -1 && tperrno == TPENOENT);
  CHECK(tpcall("DEEP", (char *)fields, 0, &reply, &len, 0) == 0 && tpurcode == 0 && len == 1024);
  CHECK(tpcall("EMPTY", (char *)fields, 0, &reply, &len, 0) == 0 && len == 0 && tpurcode == 9);
  CHECK(tpcall("EMPTY", NULL, 0, &reply, &len, 0) == 0 && len == 0);
  CHECK(tpcall("ECHO", NULL, 0, &reply, &len, 0) == 0 && len == 0);
  CHECK(tpcall("ECHO", (char *)fields, 0, &wrong, &len, TPNOCHANGE) == -1);
  CHECK(tperrno == TPEOTYPE && strcmp(wrong, "x") == 0);
  CHECK(tpcall("ECHO", (char *)fields, 0, &wrong, &len, 0) == 0 && Bnum((UBFH *)wrong) == 1);
  tpfree((char *)fields);
  fields = (UBFH *)string("twenty and one bytes");
  CHECK(tpcall("INFO", (char *)fields, 0, (char **)&fields, &len, 0) == 0 && len == 21);
  CHECK(tptypes((char *)fields, NULL, NULL) == 5000);
  CHECK(tpcall("NESTED", (char *)fields, 0, (char **)&fields, &len, 0) == 0 && tpurcode == 77);
  CHECK(strcmp((char *)fields, "twenty and one bytes") == 0);
  tpfree((char *)fields);
  tpfree(reply);
  tpfree(wrong);
}

static void *calls_of_a_thread(void *number) {
  char text[32];
  for (int i = 0; i < 50; i++) {
    snprintf(text, sizeof text, "%d of thread %d", i, *(int *)number);
    echo(text);
  }
  /* The context ends with the thread, by tpterm or without. */
  if (*(int *)number % 2 == 0) CHECK(tpterm() == 0 && tpterm() == 0);
  return NULL;
}

static void threads(void) {
  pthread_t thread[16];
  int number[16];
  for (int i = 0; i < 16; i++) {
    number[i] = i;
    CHECK(pthread_create(&thread[i], NULL, calls_of_a_thread, &number[i]) == 0);
  }
  for (int i = 0; i < 16; i++) CHECK(pthread_join(thread[i], NULL) == 0);
}

/* A conversation that this side begins; what it ends with when the last text is `last`. */
static long talk(const char *last, char **data) {
  long len = 0, event = 0;
  int cd = tpconnect("TALK", NULL, 0, TPSENDONLY);
  CHECK(well(cd) && cd > 0);
  CHECK(tprecv(cd, data, &len, 0, &event) == -1 && tperrno == TPEPROTO);
  for (int i = 0; i < 3; i++) CHECK(tpsend(cd, *data, 0, 0, &event) == 0);
  strcpy(*data, last);
  CHECK(tpsend(cd, *data, 0, TPRECVONLY, &event) == 0);
  CHECK(tpsend(cd, *data, 0, 0, &event) == -1 && tperrno == TPEPROTO);
  do {
    event = 0;
    if (tprecv(cd, data, &len, 0, &event) == -1) CHECK(tperrno == TPEEVENT);
  } while (event == 0 && failures == 0);
  if (event == TPEV_SENDONLY) {
    /* The service has ended without control, or is about to. */
    while (tpsend(cd, *data, 0, 0, &event) == 0) continue;
    CHECK(tperrno == TPEEVENT);
  }
  CHECK(tprecv(cd, data, &len, 0, &event) == -1 && tperrno == TPEBADDESC);
  return event;
}

static void conversation(void) {
  char *data = string("x"), *big = tpalloc("CARRAY", NULL, 1000000), *reply = NULL;
  long len = 0, event = 0;
  CHECK(talk("well", &data) == TPEV_SVCSUCC && tpurcode == 42 && strcmp(data, "well") == 0);
  CHECK(talk("fail", &data) == TPEV_SVCFAIL && tpurcode == 42 && strcmp(data, "fail") == 0);
  CHECK(talk("silent", &data) == TPEV_SVCERR);
  CHECK(talk("away", &data) == TPEV_SVCERR);
  CHECK(talk("die", &data) == TPEV_SVCERR);

  /* The service has control first. */
  strcpy(data, "number");
  int cd = tpconnect("TALK", data, 0, TPRECVONLY);
  CHECK(tpsend(cd, data, 0, 0, &event) == -1 && tperrno == TPEPROTO);
  for (int i = 0; i < 3; i++) {
    char expected[32];
    sprintf(expected, "number %d", i);
    CHECK(tprecv(cd, &data, &len, 0, &event) == 0 && strcmp(data, expected) == 0);
    CHECK(len == (long)strlen(expected) + 1);
  }
  CHECK(tprecv(cd, &data, &len, 0, &event) == -1 && tperrno == TPEEVENT && event == TPEV_SENDONLY);
  CHECK(tpdiscon(cd) == 0 && tpdiscon(cd) == -1 && tperrno == TPEBADDESC);
  CHECK(tpsend(cd, data, 0, 0, &event) == -1 && tperrno == TPEBADDESC);

  /* Long messages, several conversations at once, TPNOCHANGE. */
  int one = tpconnect("TALK", NULL, 0, TPSENDONLY), other = tpconnect("TALK", NULL, 0, TPSENDONLY);
  CHECK(well(one) && well(other) && one != other);
  for (int i = 0; i < 3; i++) CHECK(tpsend(one, big, 1000000, 0, &event) == 0);
  strcpy(data, "stay");
  CHECK(tpsend(one, data, 0, TPRECVONLY, &event) == 0);
  CHECK(tprecv(one, &data, &len, 0, &event) == 0 && len == 0);
  CHECK(tprecv(one, &big, &len, TPNOCHANGE, &event) == -1 && tperrno == TPEOTYPE);
  CHECK(tprecv(one, &reply, NULL, 0, &event) == 0 && strcmp(reply, "stay") == 0);
  CHECK(tpdiscon(one) == 0);
  strcpy(data, "well");
  CHECK(tpsend(other, data, 0, TPRECVONLY, &event) == 0);
  CHECK(tprecv(other, &data, &len, 0, &event) == -1 && event == TPEV_SVCSUCC);

  CHECK(tpconnect("NONE", NULL, 0, TPSENDONLY) == -1 && tperrno == TPENOENT);
  CHECK(tpcall("TALK", data, 0, &data, &len, 0) == -1 && tperrno == TPESVCFAIL);
  cd = tpconnect("TALK", NULL, 0, TPSENDONLY);
  CHECK(well(cd) && tpsblktime(1, TPBLK_NEXT) == 0);
  strcpy(data, "stay");
  CHECK(tpsend(cd, data, 0, TPRECVONLY, &event) == 0);
  while (tprecv(cd, &data, &len, TPNOBLOCK, &event) == 0) continue;
  CHECK(tperrno == TPEBLOCK);
  /* The end of the context is the end of its conversations. */
  CHECK(tpterm() == 0);
  tpfree(data);
  tpfree(big);
  tpfree(reply);
}

static int messages;
static char last_message[64];

static void take_message(char *data, long len, long flags) {
  (void)flags;
  messages++;
  snprintf(last_message, sizeof last_message, "%s", len > 0 ? data : "");
}

static void call_from_handler(char *data, long len, long flags) {
  CHECK(tpcall(NULL, NULL, 0, NULL, NULL, 0) == -1 && tperrno == TPEINVAL);
  echo("in a handler");
  take_message(data, len, flags);
}

static void events(void) {
  TPEVCTL control;
  TPINIT *info = (TPINIT *)tpalloc("TPINIT", NULL, TPINITNEED(0));
  char *data = string("abc"), *fields = tpalloc("UBF", NULL, 0), *big = tpalloc("CARRAY", NULL, 200000);
  CLIENTID gone;
  strcpy(info->cltname, "listener");
  CHECK(well(tpinit(info)));
  CHECK(tppost("ORDER1", data, 0, 0) == 0 && tperrno == 0);
  CHECK(tpsubscribe("ORDER.*", NULL, NULL, 0) == -1 && tperrno == TPEPROTO);
  CHECK(tpchkunsol() == -1 && tperrno == TPEPROTO);
  CHECK(tpsetunsol(take_message) == NULL && tperrno == 0);
  long all = tpsubscribe("ORDER.*", NULL, NULL, 0), some = tpsubscribe("ORDER[0-9]", "b.*", NULL, 0);
  CHECK(all > 0 && some > 0 && all != some);
  CHECK(tppost("ORDER1", data, 0, 0) == 1 && tpurcode == 1);
  strcpy(data, "bcd");
  CHECK(tppost("ORDER2", data, 0, 0) == 2 && tppost("ORDERS", data, 0, 0) == 1);
  CHECK(tppost("OTHER", data, 0, 0) == 0 && tppost("ORDER3", NULL, 0, 0) == 1);
  CHECK(tpchkunsol() == 5 && messages == 5 && last_message[0] == 0 && tpchkunsol() == 0);
  CHECK(tppost("ORDER4", big, 200000, 0) == 1 && tpchkunsol() == 1);

  /* Filters of fields are expressions. */
  CHECK(tpunsubscribe(some, 0) == 1 && tpunsubscribe(some, 0) == -1 && tperrno == TPENOENT);
  CHECK(tpsubscribe("FIELDS", "1 == 1", NULL, 0) > 0 && tpsubscribe("FIELDS", "1 == 2", NULL, 0) > 0);
  CHECK(tppost("FIELDS", fields, 0, 0) == 1 && tppost("FIELDS", big, 10, 0) == 0);
  CHECK(tpchkunsol() == 1);
  CHECK(tpunsubscribe(0, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpunsubscribe(-1, 0) == 3 && tpurcode == 3 && tpunsubscribe(-1, 0) == 0);
  CHECK(tppost("ORDER1", data, 0, 0) == 0);

  /* A service gets the event, and tells its caller. */
  memset(&control, 0, sizeof control);
  control.flags = TPEVSERVICE;
  CHECK(tpsubscribe("E", NULL, &control, 0) == -1 && tperrno == TPEINVAL);
  strcpy(control.name1, "BACK");
  CHECK(tpsubscribe("E", NULL, &control, 0) > 0 && tppost("E", data, 0, 0) == 1);
  double deadline = now() + 30;
  int count = 0;
  while (count == 0 && now() < deadline) {
    count = tpchkunsol();
    nanosleep(&(struct timespec){0, 1000000}, NULL);
  }
  CHECK(count == 1 && strcmp(last_message, "bcd") == 0);
  /* A second subscription for the same service, as each copy of a server has one: it is called once. */
  CHECK(tpsubscribe("E", NULL, &control, 0) > 0 && tpsubscribe("E", "b.*", &control, 0) > 0);
  CHECK(tppost("E", data, 0, 0) == 1 && tpurcode == 1);
  for (count = 0; count == 0 && now() < deadline; nanosleep(&(struct timespec){0, 1000000}, NULL)) count = tpchkunsol();
  CHECK(count == 1);
  control.flags = TPEVQUEUE;
  CHECK(tpsubscribe("E", NULL, &control, 0) == -1 && tperrno == TPEINVAL);

  CHECK(tpbroadcast(NULL, NULL, "listener", data, 0, 0) == 1 && tpbroadcast(NULL, NULL, NULL, data, 0, 0) == 1);
  CHECK(tpbroadcast(NULL, "nobody", NULL, data, 0, 0) == 0 && tpchkunsol() == 2);

  /* A client that only calls gets its messages, whose handler calls in turn; the call's outcome stays. */
  CHECK(tpbroadcast(NULL, NULL, "listener", data, 0, 0) == 1);
  int before = messages;
  echo("with a message");
  CHECK(messages == before + 1 && tpchkunsol() == 0);
  CHECK(tpsetunsol(call_from_handler) == take_message);
  CHECK(tpbroadcast(NULL, NULL, "listener", data, 0, 0) == 1);
  long olen = 0;
  CHECK(tpcall("FAIL", data, 0, &data, &olen, 0) == -1 && tperrno == TPESVCFAIL && tpurcode == 5);
  CHECK(messages == before + 2 && tpsetunsol(take_message) == call_from_handler);
  memset(&gone, 0, sizeof gone);
  CHECK(tpnotify(&gone, data, 0, 0) == -1 && tperrno == TPEINVAL);
  strcpy(gone.clientdata, "1,2,00000000000000ff");
  CHECK(tpnotify(&gone, data, 0, 0) == -1 && tperrno == TPENOENT);
  CHECK(tpsubscribe("(", NULL, NULL, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpsubscribe(NULL, NULL, NULL, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tppost("a name of more than thirty letters", data, 0, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tppost("", data, 0, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpsetunsol(NULL) == take_message && tpchkunsol() == -1 && tperrno == TPEPROTO);
  tpfree(data);
  tpfree(fields);
  tpfree(big);
  tpfree((char *)info);
}

static void *one_call(void *unused) {
  echo("in and out");
  return unused;
}

/* Each context takes from the user's limit on queues, and workers keep its queue for a while. */
static void comings(void) {
  pthread_t thread[40];
  for (int round = 0; round < 50 && failures == 0; round++) {
    for (int i = 0; i < 40; i++) CHECK(pthread_create(&thread[i], NULL, one_call, NULL) == 0);
    for (int i = 0; i < 40; i++) CHECK(pthread_join(thread[i], NULL) == 0);
  }
}

static TPCONTEXT_T another_context(void) {
  TPINIT *info = (TPINIT *)tpalloc("TPINIT", NULL, TPINITNEED(0));
  TPCONTEXT_T context = TPNULLCONTEXT;
  info->flags = TPMULTICONTEXTS;
  CHECK(well(tpinit(info)) && tpgetctxt(&context, 0) == TPMULTICONTEXTS && context != TPNULLCONTEXT);
  tpfree((char *)info);
  return context;
}

static void *in_the_same_context(void *context) {
  CHECK(tpsetctxt(*(TPCONTEXT_T *)context, 0) == 0);
  for (int i = 0; i < 100; i++) echo("in the same context");
  return NULL;
}

static void *ends_the_context(void *context) {
  CHECK(tpsetctxt(*(TPCONTEXT_T *)context, 0) == 0 && tpterm() == 0);
  CHECK(tpgetctxt((TPCONTEXT_T *)context, 0) >= 0);
  return NULL;
}

static void *leaves_its_own(void *context) {
  echo("own");
  CHECK(tpgetctxt((TPCONTEXT_T *)context, 0) >= 0);
  return NULL;
}

static void contexts(void) {
  pthread_t thread;
  TPCONTEXT_T first = another_context(), second = another_context(), seen, left = 0;
  char *buffer = string("one"), *reply = NULL;
  long len = 0;
  CHECK(first != second);
  int cd = tpacall("ECHO", buffer, 0, 0);
  CHECK(well(cd) && tpsetctxt(first, 0) == 0);
  CHECK(tpgetrply(&cd, &reply, &len, 0) == -1 && tperrno == TPEBADDESC);
  CHECK(tpbegin(0, 0) == 0 && tpsetctxt(second, 0) == 0 && tpgetlev() == 0);
  CHECK(tpgetrply(&cd, &reply, &len, 0) == 0 && strcmp(reply, "one") == 0);
  CHECK(tpsetctxt(first, 0) == 0 && tpgetlev() == 1 && tpabort(0) == 0);

  CHECK(pthread_create(&thread, NULL, in_the_same_context, &first) == 0);
  for (int i = 0; i < 100; i++) echo("in the first");
  CHECK(pthread_join(thread, NULL) == 0);

  seen = first;
  CHECK(pthread_create(&thread, NULL, ends_the_context, &seen) == 0);
  CHECK(pthread_join(thread, NULL) == 0 && seen == TPNULLCONTEXT);
  CHECK(tpgetctxt(&seen, 0) >= 0 && seen == TPINVALIDCONTEXT);
  CHECK(tpcall("ECHO", buffer, 0, &reply, &len, 0) == -1 && tperrno == TPEPROTO);
  CHECK(tpsetctxt(second, 0) == 0);
  CHECK(tpsetctxt(first, 0) == -1 && tperrno == TPENOENT);
  echo("still in the second");

  CHECK(pthread_create(&thread, NULL, leaves_its_own, &left) == 0);
  CHECK(pthread_join(thread, NULL) == 0 && left != TPNULLCONTEXT);
  CHECK(tpsetctxt(left, 0) == 0);
  echo("in a context whose thread is gone");

  int status = -1;
  fflush(stderr);
  pid_t child = fork();
  if (child == 0) {
    CHECK(tpsetctxt(second, 0) == -1 && tperrno == TPENOENT);
    echo("in the child");
    exit(failures != 0);
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(tpsetctxt(TPNULLCONTEXT, 0) == 0 && tpgetctxt(&seen, 0) >= 0 && seen == TPNULLCONTEXT);
  CHECK(tpsetctxt(second, 0) == 0);
  echo("the parent continues");
  CHECK(tpterm() == 0 && tpsetctxt(left, 0) == 0 && tpterm() == 0);
  tpfree(buffer);
  tpfree(reply);
}

static void *calls_with_one_request(void *request) {
  char *reply = NULL;
  long len = 0;
  for (int i = 0; i < 100; i++) {
    int cd = tpacall("ECHO", request, 0, 0);
    CHECK(well(tpcall("ECHO", request, 0, &reply, &len, 0)) && strcmp(reply, request) == 0);
    CHECK(well(cd) && well(tpgetrply(&cd, &reply, &len, 0)) && strcmp(reply, request) == 0);
  }
  tpfree(reply);
  return NULL;
}

/* Threads may send one buffer at the same time. */
static void shared(void) {
  pthread_t thread[8];
  char *request = string("the same for all");
  for (int i = 0; i < 8; i++) {
    CHECK(pthread_create(&thread[i], NULL, calls_with_one_request, request) == 0);
  }
  for (int i = 0; i < 8; i++) CHECK(pthread_join(thread[i], NULL) == 0);
  tpfree(request);
}

/* Only one server runs in this scenario. */
static void advertise(void) {
  char *buffer = string("x");
  long len = 0;
  CHECK(tpcall("LATER", buffer, 0, &buffer, &len, 0) == -1 && tperrno == TPENOENT);
  CHECK(tpcall("OPEN", buffer, 0, &buffer, &len, 0) == 0);
  CHECK(well(tpcall("LATER", buffer, 0, &buffer, &len, 0)) && tpurcode == 1);
  CHECK(tpcall("CLOSE", buffer, 0, &buffer, &len, 0) == 0 && tpurcode != 0);
  CHECK(tpcall("LATER", buffer, 0, &buffer, &len, 0) == -1 && tperrno == TPENOENT);
  CHECK(tpcall("CLOSE", buffer, 0, &buffer, &len, 0) == 0 && tpurcode == 0);
  CHECK(tpcall("OPEN", buffer, 0, &buffer, &len, 0) == 0);
  CHECK(well(tpcall("LATER", buffer, 0, &buffer, &len, 0)) && tpurcode == 1);
  tpfree(buffer);
}

static void death(void) {
  char *buffer = string("x");
  long len = 0;
  double start = now();
  CHECK(tpcall("DIE", buffer, 0, &buffer, &len, 0) == -1 && tperrno == TPESVCERR);
  CHECK(now() - start < 20);
  CHECK(strcmp(buffer, "x") == 0);
  for (int i = 0; i < 10; i++) echo("others continue");
  tpfree(buffer);
}

static void timeout(void) {
  char *buffer = string("1500");
  long len = 0;
  int cd;
  double start = now();
  CHECK(tptoutset(1) == 0);
  CHECK(tpcall("SLOW", buffer, 0, &buffer, &len, 0) == -1 && tperrno == TPETIME);
  CHECK(now() - start > 0.99);
  echo("the late reply is not this one");
  CHECK(tptoutset(0) == 0 && tpsblktime(1, TPBLK_NEXT) == 0);
  CHECK(tpcancel(1) == -1 && tpinit(NULL) == 0 && tpgblktime(TPBLK_NEXT) == 1);
  CHECK(tpcall("SLOW", buffer, 0, &buffer, &len, 0) == -1 && tperrno == TPETIME);
  CHECK(tpgblktime(TPBLK_NEXT) == 0);
  CHECK(tpsblktime(1, TPBLK_ALL) == 0);
  CHECK(tpcall("SLOW", buffer, 0, &buffer, &len, TPNOTIME) == 0);
  /* After TPETIME the descriptor holds, and the reply is delivered. */
  cd = tpacall("SLOW", buffer, 0, 0);
  CHECK(cd > 0);
  /* One that only looks learns of it as well. */
  while (tpgetrply(&cd, &buffer, &len, TPNOBLOCK) == -1 && tperrno == TPEBLOCK) usleep(10000);
  CHECK(tperrno == TPETIME);
  CHECK(tpgetrply(&cd, &buffer, &len, 0) == 0 && strcmp(buffer, "1500") == 0);
  CHECK(tpgetrply(&cd, &buffer, &len, 0) == -1 && tperrno == TPEBADDESC);
  tpfree(buffer);
}

static void mix(void) {
  char *buffer = string("a text"), *reply = NULL;
  long len = 0;
  int cd[20], any = 9999;
  CHECK(tpgetrply(&any, &reply, &len, 0) == -1 && tperrno == TPEBADDESC);
  CHECK(tpgetrply(&any, &reply, &len, TPGETANY | TPNOBLOCK) == -1 && tperrno == TPEBLOCK);
  CHECK(any == 0);
  for (int i = 0; i < 20; i++) {
    sprintf(buffer, "call %d", i);
    cd[i] = tpacall(i % 5 == 0 ? "HOP" : "ECHO", buffer, 0, 0);
    CHECK(cd[i] > 0);
    if (i % 3 == 0) echo("in between");
  }
  CHECK(tpacall("ECHO", buffer, 0, TPNOREPLY) == 0);
  for (int i = 19; i >= 10; i--) {
    char expected[16];
    int asked = cd[i];
    sprintf(expected, "call %d", i);
    CHECK(tpgetrply(&asked, &reply, &len, 0) == 0 && strcmp(reply, expected) == 0);
    CHECK(tpgetrply(&asked, &reply, &len, 0) == -1 && tperrno == TPEBADDESC);
  }
  for (int i = 0; i < 10; i++) {
    CHECK(tpgetrply(&any, &reply, &len, TPGETANY) == 0);
    int found = 0;
    for (int k = 0; k < 10; k++) found |= cd[k] == any && atoi(reply + 5) == k;
    CHECK(found);
  }
  CHECK(tpgetrply(&any, &reply, &len, TPGETANY | TPNOBLOCK) == -1 && tperrno == TPEBLOCK);
  tpfree(buffer);
  tpfree(reply);
}

/* What tpcall can end in, tpgetrply can; errors: TPESVCFAIL, TPESVCERR, TPEITYPE, TPETIME, TPENOENT, TPEOTYPE. */
static void outcomes(void) {
  static const struct {
    const char *service;
    long flags;
    int error;
  } each[] = {
      {"ECHO", TPNOCHANGE, 0},      {"FAIL", 0, TPESVCFAIL},    {"SILENT", 0, TPESVCERR},
      {"SOFT", 0, TPEITYPE},        {"SOFTTIME", 0, TPETIME},   {"SOFTNONE", 0, TPENOENT},
      {"GROW", TPNOCHANGE, TPEOTYPE}, {"TOOLONG", 0, TPESVCERR}, {"NOWHERE", 0, TPESVCERR},
  };
  for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
    char *bytes = tpalloc("CARRAY", NULL, 10), *reply = tpalloc("CARRAY", NULL, 10);
    long len = 0;
    int cd = tpacall(each[i].service, memcpy(bytes, "ten bytes", 10), 10, 0), asked = cd;
    tpfree(bytes);
    int result = tpgetrply(&cd, &reply, &len, each[i].flags);
    CHECK(result == (each[i].error == 0 ? 0 : -1) && tperrno == each[i].error && cd == asked);
    if (each[i].error == 0 || each[i].error == TPESVCFAIL) {
      CHECK(len == 10 && memcmp(reply, "ten bytes", 10) == 0);
    }
    CHECK(tpgetrply(&cd, &reply, &len, 0) == -1 && tperrno == TPEBADDESC);
    tpfree(reply);
  }
}

/* As many calls as there are descriptors are out, and as many large requests as are held. */
static void limits(void) {
  enum { MOST = 16384, LARGE = 64 };
  static int cd[MOST];
  char *bytes = tpalloc("CARRAY", NULL, 10000), *reply = NULL;
  long len = 0;
  for (int i = 0; i < MOST; i++) CHECK(well(cd[i] = tpacall("EMPTY", NULL, 0, 0)));
  CHECK(tpacall("EMPTY", NULL, 0, 0) == -1 && tperrno == TPELIMIT);
  CHECK(tpcall("EMPTY", NULL, 0, &reply, &len, 0) == -1 && tperrno == TPELIMIT);
  CHECK(tpacall("EMPTY", NULL, 0, TPNOREPLY) == 0);
  for (int i = 0; i < MOST; i++) CHECK(tpcancel(cd[i]) == 0);
  for (int i = 0; i < LARGE; i++) CHECK(well(cd[i] = tpacall("LENGTH", bytes, 10000 - i, 0)));
  CHECK(well(tpcall("EMPTY", NULL, 0, &reply, &len, 0)));
  for (int i = 0; i < LARGE; i++) {
    CHECK(well(tpgetrply(&cd[i], &reply, &len, 0)) && tpurcode == 10000 - i);
  }
  tpfree(bytes);
}

/* What calls do to the transaction that they belong to. */
static void transactions(void) {
  static const struct {
    const char *service;
    long flags;
    int error;
    int is_aborted;
  } each[] = {
      {"ECHO", 0, 0, 0},                {"FAIL", 0, TPESVCFAIL, 1},
      {"FAIL", TPNOTRAN, TPESVCFAIL, 0}, {"SILENT", 0, TPESVCERR, 1},
      {"SOFTTIME", 0, TPETIME, 1},      {"NONE", 0, TPENOENT, 0},
      {"UNENDED", TPNOTRAN, TPESVCERR, 0}, {"GROW", TPNOCHANGE, TPEOTYPE, 1},
  };
  char *reply = tpalloc("CARRAY", NULL, 10), *bytes = tpalloc("CARRAY", NULL, 10);
  long len = 0;
  int cd;
  for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
    for (int is_later = 0; is_later < 2; is_later++) {
      CHECK(tpbegin(30, 0) == 0);
      int result;
      if (is_later) {
        cd = tpacall(each[i].service, bytes, 10, each[i].flags & TPNOTRAN);
        result = cd == -1 ? -1 : tpgetrply(&cd, &reply, &len, each[i].flags);
      } else {
        result = tpcall(each[i].service, bytes, 10, &reply, &len, each[i].flags);
      }
      CHECK(result == (each[i].error == 0 ? 0 : -1) && tperrno == each[i].error);
      CHECK(tpcommit(0) == (each[i].is_aborted ? -1 : 0));
      CHECK(tperrno == (each[i].is_aborted ? TPEABORT : 0) && tpgetlev() == 0);
    }
  }
  /* A reply that is outstanding. */
  CHECK(tpbegin(30, 0) == 0 && (cd = tpacall("ECHO", bytes, 10, 0)) > 0);
  CHECK(tpcancel(cd) == -1 && tperrno == TPETRAN);
  TPTRANID aside;
  CHECK(tpsuspend(&aside, 0) == -1 && tperrno == TPEABORT && tpgetlev() == 1);
  CHECK(tpcommit(0) == -1 && tperrno == TPEABORT);
  CHECK(tpgetrply(&cd, &reply, &len, 0) == -1 && tperrno == TPEBADDESC);
  CHECK(tpbegin(30, 0) == 0 && (cd = tpacall("ECHO", bytes, 10, TPNOTRAN)) > 0);
  CHECK(tpcommit(0) == 0 && tpgetrply(&cd, &reply, &len, 0) == 0);
  CHECK(tpbegin(30, 0) == 0 && tpacall("ECHO", bytes, 10, TPNOREPLY | TPNOTRAN) == 0);
  CHECK(tpabort(0) == 0);
  /* The time of the transaction ends a call that would take longer, even one without a time. */
  char *slow = string("1500");
  CHECK(tpbegin(1, 0) == 0);
  CHECK(tpcall("SLOW", slow, 0, &slow, &len, TPNOTIME) == -1 && tperrno == TPETIME);
  CHECK(tpcall("ECHO", slow, 0, &slow, &len, 0) == -1 && tperrno == TPETIME);
  CHECK(tpabort(0) == 0);
  echo("after it");
  tpfree(slow);
  /* A service that is called takes part: its level, flags and calls are in the transaction, which is not its to end. */
  static const struct {
    const char *what;
    int is_aborted;
  } parts[] = {{"part", 0}, {"calls", 0}, {"fails", 1}, {"leaves", 1}, {"alone", 0}};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    char *what = string(parts[i].what);
    CHECK(tpcall("PART", what, 0, &what, &len, 0) == 0 && tpurcode == 0);
    CHECK(tpbegin(30, 0) == 0 && tpcall("PART", what, 0, &what, &len, TPNOTRAN) == 0 && tpurcode == 0);
    CHECK(tpcall("PART", what, 0, &what, &len, 0) == 0 && tpurcode == 1);
    CHECK(tpcommit(0) == (parts[i].is_aborted ? -1 : 0));
    CHECK(tperrno == (parts[i].is_aborted ? TPEABORT : 0) && tpgetlev() == 0);
    /* By way of another service, and later. */
    CHECK(tpbegin(30, 0) == 0 && (cd = tpacall("TOPART", what, 0, 0)) > 0);
    CHECK(tpgetrply(&cd, &what, &len, 0) == 0 && tpurcode == 1);
    CHECK(tpcommit(0) == (parts[i].is_aborted ? -1 : 0));
    tpfree(what);
  }
  tpfree(bytes);
  tpfree(reply);
}

static void cancel(void) {
  char *buffer = string("300"), *reply = NULL;
  long len = 0;
  int cd = tpacall("SLOW", buffer, 0, 0), other;
  CHECK(cd > 0 && tpcancel(cd) == 0);
  CHECK(tpcancel(cd) == -1 && tperrno == TPEBADDESC);
  CHECK(tpcancel(9999) == -1 && tperrno == TPEBADDESC);
  CHECK(tpcancel(-1) == -1 && tperrno == TPEBADDESC);
  CHECK(tpgetrply(&cd, &reply, &len, 0) == -1 && tperrno == TPEBADDESC);
  /* The late reply never surfaces. */
  other = tpacall("SLOW", string("600"), 0, 0);
  CHECK(tpgetrply(&cd, &reply, &len, TPGETANY) == 0 && cd == other);
  CHECK(strcmp(reply, "600") == 0);
  tpfree(buffer);
  tpfree(reply);
}

/* Sends so many calls to SLOW and waits until a worker is inside each; they end when the descriptor is closed. */
static int hold(int count, int *calls) {
  char path[128], inside;
  CHECK(getcwd(path, sizeof path - sizeof "/gate") != NULL);
  strcat(path, "/gate");
  CHECK(mkfifo(path, 0600) == 0);
  int gate = open(path, O_RDWR);
  CHECK(flock(gate, LOCK_EX) == 0);
  char *buffer = string(path);
  for (int i = 0; i < count; i++) CHECK(well(calls[i] = tpacall("SLOW", buffer, 0, 0)));
  for (int i = 0; i < count; i++) CHECK(read(gate, &inside, 1) == 1);
  tpfree(buffer);
  return gate;
}

static void noblock(int room_min) {
  enum { WORKERS = 3, MOST = 16000 };
  char *buffer = string("x"), *reply = NULL;
  long len = 0;
  static int cd[MOST];
  int held[WORKERS], sent = 0, gate = hold(WORKERS, held);
  while (sent < MOST && (cd[sent] = tpacall("ECHO", buffer, 0, TPNOBLOCK)) > 0) sent++;
  CHECK(sent >= room_min && sent < MOST && tperrno == TPEBLOCK);
  CHECK(tpcall("ECHO", buffer, 0, &reply, &len, TPNOBLOCK) == -1 && tperrno == TPEBLOCK);
  close(gate);
  for (int i = 0; i < sent; i++) CHECK(well(tpgetrply(&cd[i], &reply, &len, 0)));
  for (int i = 0; i < WORKERS; i++) CHECK(well(tpgetrply(&held[i], &reply, &len, 0)));
  tpfree(buffer);
  tpfree(reply);
}

static void noblock_queue(void) { noblock(1); }

/* The ring of a service holds 1,024 requests in shared memory. */
static void noblock_ring(void) { noblock(1024); }

/* The only worker serves one request of each service in turn: of two that are passed on to a service
 * whose ring is full, one at least finds no room. */
static void forward_full(void) {
  char *buffer = string("x"), *reply = NULL;
  long len = 0;
  static int cd[16000];
  int held, sent = 0, limited = 0, gate = hold(1, &held);
  while (sent < 16000 && (cd[sent] = tpacall("ECHO", buffer, 0, TPNOBLOCK)) > 0) sent++;
  CHECK(sent >= 1024 && sent < 16000 && tperrno == TPEBLOCK);
  int passed[] = {tpacall("HOP", buffer, 0, 0), tpacall("PASS", buffer, 0, 0)};
  close(gate);
  for (int i = 0; i < 2; i++) {
    CHECK(well(passed[i]));
    limited += tpgetrply(&passed[i], &reply, &len, 0) == -1 && tperrno == TPELIMIT;
  }
  CHECK(limited > 0);
  for (int i = 0; i < sent; i++) CHECK(well(tpgetrply(&cd[i], &reply, &len, 0)));
  CHECK(well(tpgetrply(&held, &reply, &len, 0)));
  echo("there is room again");
  tpfree(buffer);
  tpfree(reply);
}

static void forward(void) {
  char *buffer = string("forwarded");
  long len = 0;
  CHECK(tpcall("HOP", buffer, 0, &buffer, &len, 0) == 0 && tpurcode == 77);
  CHECK(strcmp(buffer, "forwarded") == 0 && len == 10);
  CHECK(tpcall("NOWHERE", buffer, 0, &buffer, &len, 0) == -1 && tperrno == TPESVCERR);
  CHECK(tpacall("HOP", buffer, 0, TPNOREPLY) == 0);
  echo("after one that nobody waits for");
  tpfree(buffer);
}

static void lengths(void) {
  char *bytes = tpalloc("CARRAY", NULL, 600), *reply = tpalloc("CARRAY", NULL, 10), type[9];
  long len = 0;
  memcpy(bytes, "one\0two", 7);
  CHECK(tpcall("ECHO", bytes, 7, &reply, &len, 0) == 0 && len == 7);
  CHECK(memcmp(reply, "one\0two", 7) == 0 && tptypes(reply, type, NULL) == 600);
  CHECK(tpcall("ECHO", bytes, 0, &reply, &len, 0) == 0 && len == 0);
  CHECK(tpcall("ECHO", bytes, 601, &reply, &len, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpcall("ECHO", bytes, -1, &reply, &len, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpcall("TOOLONG", bytes, 7, &reply, &len, 0) == -1 && tperrno == TPESVCERR);
  CHECK(tpcall("GROW", bytes, 50, &reply, &len, 0) == 0 && len == 501);
  CHECK(tptypes(reply, type, NULL) >= 501 && strcmp(type, "STRING") == 0);
  CHECK(strspn(reply, "g") == 500);
  /* Longer than a message: it goes another way and looks the same. */
  bytes = tprealloc(bytes, 1000000);
  memset(bytes, 'b', 1000000);
  CHECK(tpcall("ECHO", bytes, 1000000, &bytes, &len, 0) == 0 && len == 1000000);
  CHECK(bytes[0] == 'b' && bytes[999999] == 'b');
  char *text = tpalloc("STRING", NULL, 10);
  memset(text, 's', 10);
  CHECK(tpcall("ECHO", text, 0, &text, &len, 0) == 0 && len == 11);
  tpfree(text);
  text = tpalloc("JSON", NULL, 600);
  memset(text, '1', 600);
  CHECK(tpcall("ECHO", text, 0, &text, &len, 0) == -1 && tperrno == TPEINVAL);
  strcpy(text, "{\"a\": [1, 2]}");
  CHECK(tpcall("ECHO", text, 0, &text, &len, 0) == 0 && len == 14);
  CHECK(strcmp(text, "{\"a\": [1, 2]}") == 0);
  tpfree(bytes);
  tpfree(reply);
  tpfree(text);
}

static void nothing(int number) { (void)number; }

static void interrupted(void) {
  char *buffer = string("400");
  long len = 0;
  struct sigaction action = {0};
  struct itimerval after = {{0, 0}, {0, 100000}};
  action.sa_handler = nothing;
  sigaction(SIGALRM, &action, NULL);
  setitimer(ITIMER_REAL, &after, NULL);
  CHECK(tpcall("SLOW", buffer, 0, &buffer, &len, 0) == -1 && tperrno == TPGOTSIG);
  setitimer(ITIMER_REAL, &after, NULL);
  CHECK(tpcall("SLOW", buffer, 0, &buffer, &len, TPSIGRSTRT) == 0);
  int cd = tpacall("SLOW", buffer, 0, 0);
  setitimer(ITIMER_REAL, &after, NULL);
  CHECK(tpgetrply(&cd, &buffer, &len, 0) == -1 && tperrno == TPGOTSIG);
  CHECK(tpgetrply(&cd, &buffer, &len, 0) == 0 && strcmp(buffer, "400") == 0);
  CHECK(tpacall("NONE", buffer, 0, 0) == -1 && tperrno == TPENOENT);
  tpfree(buffer);
}

/* Descriptors that are open. */
static int descriptors(void) {
  int open = 0;
  for (int fd = 0; fd < 1000; fd++) open += fcntl(fd, F_GETFD) != -1;
  return open;
}

/* After fork the child has a context of its own and the parent keeps its. */
static void forked(void) {
  int status = -1, before = descriptors();
  echo("before");
  CHECK(descriptors() > before);
  fflush(stderr);
  pid_t child = fork();
  if (child == 0) {
    CHECK(descriptors() == before);
    echo("in the child");
    exit(failures != 0);
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  child = fork();
  if (child == 0) exit(0);
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  echo("after children came and went");
}

/* Only one server runs: it answers, ends, and is started again. */
static void ending(void) {
  static const char *odd[] = {"0", "-1", "3", "7", "2147483647", "-134217729"};
  char *buffer = string("x");
  long len = 0, before;
  double deadline = now() + 30;
  CHECK(tpcall("PID", NULL, 0, &buffer, &len, 0) == 0);
  before = tpurcode;
  for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
    strcpy(buffer, odd[i]);
    CHECK(tpcall("ODD", buffer, 0, &buffer, &len, 0) == -1 && tperrno == TPESVCFAIL);
    CHECK(tpurcode == 8 && well(tpcall("PID", NULL, 0, &buffer, &len, 0)));
    CHECK(tpurcode == before);
  }
  CHECK(tpcall("EXIT", buffer, 0, &buffer, &len, 0) == 0);
  before = tpurcode;
  while (tpcall("PID", NULL, 0, &buffer, &len, 0) == -1 && now() < deadline) {
    CHECK(tperrno == TPENOENT || tperrno == TPESVCERR || tperrno == TPETIME);
    nanosleep(&(struct timespec){0, 10000000}, NULL);
  }
  CHECK(now() < deadline && tpurcode != before);
  tpfree(buffer);
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*run)(void);
  } scenarios[] = {
      {"basic", basic},     {"threads", threads}, {"advertise", advertise},
      {"death", death},     {"timeout", timeout}, {"mix", mix},
      {"cancel", cancel},   {"noblock", noblock_queue}, {"forward", forward},
      {"noblock_ring", noblock_ring}, {"forward_full", forward_full},
      {"lengths", lengths}, {"ending", ending},   {"interrupted", interrupted},
      {"forked", forked},   {"outcomes", outcomes}, {"limits", limits},
      {"transactions", transactions},
      {"shared", shared},   {"contexts", contexts},
      {"comings", comings}, {"conversation", conversation},
      {"events", events},
  };
  for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
    if (argc == 2 && strcmp(argv[1], scenarios[i].name) == 0) {
      scenarios[i].run();
      return failures != 0;
    }
  }
  fprintf(stderr, "usage: %s SCENARIO\n", argv[0]);
  return 2;
}
