/* Services that converse, each for one thing that can go wrong meanwhile. */
#include <atmi.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static void wait_ms(long ms) {
  struct timespec rest = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&rest, NULL);
}

static void ECHO(TPSVCINFO *call) { tpreturn(TPSUCCESS, 0, call->data, call->len, 0); }

static void SLOW(TPSVCINFO *call) {
  wait_ms(atol(call->data));
  tpreturn(TPSUCCESS, 0, call->data, 0, 0);
}

/* Says which process it is, gives control away if the text is "listen", and ends with its process or with
 * the initiator. */
static void STAYS(TPSVCINFO *call) {
  char *data = tpalloc("STRING", NULL, 64);
  int listens = call->data != NULL && strcmp(call->data, "listen") == 0;
  long len = 0, event = 0;
  sprintf(data, "%d", (int)getpid());
  CHECK(tpsend(call->cd, data, 0, listens ? TPRECVONLY : 0, &event) == 0);
  if (listens) {
    while (tprecv(call->cd, &data, &len, 0, &event) == 0) continue;
  } else {
    for (;;) pause();
  }
  tpreturn(TPSUCCESS, 0, NULL, 0, 0);
}

/* Writes the moment at which it knows that the initiator is gone to the file that the request names. */
static void NOTES(TPSVCINFO *call) {
  char path[512], *data = tpalloc("CARRAY", NULL, 10000);
  long len = 0, event = 0;
  struct timespec moment;
  int result = 0;
  snprintf(path, sizeof path, "%s", call->data);
  while (result == 0) {
    result = call->flags & TPSENDONLY ? tpsend(call->cd, data, 10000, TPNOTIME, &event)
                                      : tprecv(call->cd, &data, &len, TPNOTIME, &event);
  }
  clock_gettime(CLOCK_MONOTONIC, &moment);
  CHECK(tperrno == TPEEVENT && event == TPEV_DISCONIMM);
  int file = open(path, O_WRONLY);
  CHECK(write(file, &moment, sizeof moment) == (ssize_t)sizeof moment && close(file) == 0);
  tpreturn(TPSUCCESS, 0, NULL, 0, 0);
}

/* Neither sends nor receives for as many milliseconds as the text says. */
static void DEAF(TPSVCINFO *call) {
  wait_ms(atol(call->data));
  tpreturn(TPFAIL, 0, NULL, 0, 0);
}

/* Ends before anything was said. */
static void LEAVES(TPSVCINFO *call) {
  (void)call;
  tpreturn(TPFAIL, 7, NULL, 0, 0);
}

/* From now on this server opens no further descriptor, or does again. */
static void STARVES(TPSVCINFO *call) {
  struct rlimit limit;
  CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = strcmp(call->data, "starve") == 0 ? 0 : limit.rlim_max;
  CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  tpreturn(TPSUCCESS, 0, NULL, 0, 0);
}

/* The caller's CLIENTID, as tpnotify takes it. */
static void WHO(TPSVCINFO *call) {
  char *data = tpalloc("CARRAY", NULL, sizeof call->cltid);
  memcpy(data, &call->cltid, sizeof call->cltid);
  tpreturn(TPSUCCESS, 0, data, sizeof call->cltid, 0);
}

/* The caller gets its data once more, as an unsolicited message. */
static void TELL(TPSVCINFO *call) {
  CHECK(tpnotify(&call->cltid, call->data, call->len, 0) == 0);
  tpreturn(TPSUCCESS, 0, NULL, 0, 0);
}

/* More than a message holds. */
static void LONG(TPSVCINFO *call) {
  (void)call;
  char *data = tpalloc("CARRAY", NULL, 100000);
  memset(data, 'l', 100000);
  tpreturn(TPSUCCESS, 0, data, 100000, 0);
}

int tpsvrinit(int argc, char **argv) {
  (void)argc;
  (void)argv;
  CHECK(tpadvertise("ECHO", ECHO) == 0 && tpadvertise("SLOW", SLOW) == 0);
  CHECK(tpadvertise("STAYS", STAYS) == 0 && tpadvertise("NOTES", NOTES) == 0);
  CHECK(tpadvertise("DEAF", DEAF) == 0 && tpadvertise("LEAVES", LEAVES) == 0);
  CHECK(tpadvertise("STARVES", STARVES) == 0 && tpadvertise("WHO", WHO) == 0);
  CHECK(tpadvertise("TELL", TELL) == 0 && tpadvertise("LONG", LONG) == 0);
  return failures;
}
