/* The services of the scenarios, each for one way in which a call can go. */
#include <atmi.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <ubf.h>
#include <unistd.h>

#include "check.h"

/* Services of tpsvrinit. */
enum { OFFERED = 29 };

static void wait_ms(long ms) {
  struct timespec rest = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&rest, NULL);
}

static void ECHO(TPSVCINFO *call) { tpreturn(TPSUCCESS, 77, call->data, call->len, 0); }

static void FAIL(TPSVCINFO *call) { tpreturn(TPFAIL, 5, call->data, call->len, 0); }

static void SILENT(TPSVCINFO *call) { (void)call; }

static void DIE(TPSVCINFO *call) {
  (void)call;
  _exit(3);
}

/* Takes as many milliseconds as the text says; with the path of a pipe, until its lock is free. */
static void SLOW(TPSVCINFO *call) {
  if (*call->data == '/') {
    int gate = open(call->data, O_WRONLY);
    CHECK(write(gate, "x", 1) == 1 && flock(gate, LOCK_SH) == 0 && close(gate) == 0);
  } else {
    wait_ms(atol(call->data));
  }
  tpreturn(TPSUCCESS, 0, call->data, 0, 0);
}

static void HOP(TPSVCINFO *call) { tpforward("ECHO", call->data, call->len, 0); }

static void PASS(TPSVCINFO *call) { tpforward("ECHO", call->data, call->len, 0); }

static void NOWHERE(TPSVCINFO *call) { tpforward("NO SUCH", call->data, call->len, 0); }

static void EMPTY(TPSVCINFO *call) {
  (void)call;
  tpreturn(TPSUCCESS, 9, NULL, 0, 0);
}

static void STRAYS(TPSVCINFO *call) {
  (void)call;
  tpreturn(TPSUCCESS, 0, STRAY, 0, 0);
}

static void SOFT(TPSVCINFO *call) {
  tpreturn(TPEITYPE, 0, call->data, call->len, TPSOFTERR);
}

static void SOFTTIME(TPSVCINFO *call) {
  tpreturn(TPSUCCESS, 0, call->data, call->len, TPSOFTTIMEOUT);
}

static void SOFTNONE(TPSVCINFO *call) {
  tpreturn(TPSUCCESS, 0, call->data, call->len, TPSOFTENOENT);
}

/* Its caller's transaction is not its own, and the one that it begins is not ended. */
static void UNENDED(TPSVCINFO *call) {
  CHECK((call->flags & TPTRAN) == 0 && tpgetlev() == 0 && tpbegin(0, 0) == 0 && tpgetlev() == 1);
  tpreturn(TPSUCCESS, 0, call->data, call->len, 0);
}

/* Takes part in the transaction of its caller, if that has one; does what the text says. */
static void PART(TPSVCINFO *call) {
  char *data = tpalloc("STRING", NULL, 16), *reply = NULL;
  long len = 0;
  int level = tpgetlev(), result = 0;
  strcpy(data, "x");
  CHECK(level == ((call->flags & TPTRAN) != 0));
  if (level == 1) {
    CHECK(tpbegin(0, 0) == -1 && tperrno == TPEPROTO);
    CHECK(tpcommit(0) == -1 && tperrno == TPEPROTO && tpabort(0) == -1 && tperrno == TPEPROTO);
  }
  if (strcmp(call->data, "calls") == 0) {
    strcpy(data, "part");
    CHECK(tpcall("PART", data, 0, &reply, &len, 0) == 0 && tpurcode == level);
  } else if (strcmp(call->data, "fails") == 0) {
    result = tpcall("FAIL", data, 0, &reply, &len, 0);
    CHECK(result == -1 && tperrno == TPESVCFAIL);
  } else if (strcmp(call->data, "leaves") == 0) {
    CHECK(tpacall("ECHO", data, 0, 0) > 0);
  } else if (strcmp(call->data, "alone") == 0) {
    CHECK(tpcall("FAIL", data, 0, &reply, &len, TPNOTRAN) == -1 && tperrno == TPESVCFAIL);
  }
  tpfree(reply);
  tpfree(data);
  tpreturn(failures == 0 ? TPSUCCESS : TPFAIL, level, call->data, call->len, 0);
}

static void TOPART(TPSVCINFO *call) { tpforward("PART", call->data, call->len, 0); }

/* The first argument of tpreturn is what the text says; what is none of them is TPFAIL. */
static void ODD(TPSVCINFO *call) {
  tpreturn(atoi(call->data), 8, call->data, call->len, 0);
}

static void leave(TPSVCINFO *call, int depth) {
  char filler[100];
  memset(filler, depth, sizeof filler);
  if (depth > 0) leave(call, depth - 1);
  if (depth == 0) tpreturn(TPSUCCESS, filler[99], call->data, call->len, 0);
  CHECK(filler[99] != depth);
}

static void DEEP(TPSVCINFO *call) { leave(call, 100); }

static void TOOLONG(TPSVCINFO *call) { tpreturn(TPSUCCESS, 0, call->data, 1L << 40, 0); }

/* Another buffer, of another type and ten times as large. */
static void GROW(TPSVCINFO *call) {
  char *text = tpalloc("STRING", NULL, 10 * call->len + 1);
  memset(text, 'g', (size_t)(10 * call->len));
  text[10 * call->len] = '\0';
  tpreturn(TPSUCCESS, 0, text, 0, 0);
}

static void later(TPSVCINFO *call) { tpreturn(TPSUCCESS, 1, call->data, call->len, 0); }

static void other(TPSVCINFO *call) { tpreturn(TPSUCCESS, 2, call->data, call->len, 0); }

static void OPEN(TPSVCINFO *call) {
  CHECK(tpadvertise("LATER", later) == 0);
  CHECK(tpadvertise("LATER", later) == 0 && tpadvertise("LATER", &later) == 0);
  CHECK(tpadvertise_full("LATER", other, "later") == -1 && tperrno == TPEMATCH);
  CHECK(tpadvertise("LATER", other) == -1 && tperrno == TPEMATCH);
  CHECK(tpadvertise("A NAME OF MORE THAN THIRTY LETTERS", later) == -1 && tperrno == TPEINVAL);
  CHECK(tpadvertise("", later) == -1 && tperrno == TPEINVAL);
  CHECK(tpadvertise("A,B", later) == -1 && tperrno == TPEINVAL);
  tpreturn(failures == 0 ? TPSUCCESS : TPFAIL, getpid(), call->data, call->len, 0);
}

static void CLOSE(TPSVCINFO *call) {
  int result = tpunadvertise("LATER");
  tpreturn(TPSUCCESS, result == 0 ? getpid() : 0, call->data, call->len, 0);
}

/* A call from within a call, into the request's own buffer. */
static void NESTED(TPSVCINFO *call) {
  char *data = call->data;
  long len = 0;
  TPINIT *info = (TPINIT *)tpalloc("TPINIT", NULL, TPINITNEED(0));
  info->flags = TPMULTICONTEXTS;
  CHECK(tpinit(info) == -1 && tperrno == TPEPROTO);
  tpfree((char *)info);
  int result = tpcall("ECHO", data, call->len, &data, &len, 0);
  CHECK(tpterm() == -1 && tperrno == TPEPROTO);
  CHECK(tpappthrterm() == -1 && tperrno == TPEPROTO);
  CHECK(tpnewctxt(0, 1) == NULL && tperrno == TPEPROTO);
  CHECK(tpsetctxt(TPNULLCONTEXT, 0) == -1 && tperrno == TPEPROTO);
  tpfree(data);
  CHECK(tptypes(data, NULL, NULL) > 0);
  tpreturn(result == 0 && failures == 0 ? TPSUCCESS : TPFAIL, tpurcode, data, len, 0);
}

static void INFO(TPSVCINFO *call) {
  CHECK(strcmp(call->name, "INFO") == 0 && strcmp(call->fname, "INFO") == 0);
  CHECK(call->len == 21 && strcmp(call->data, "twenty and one bytes") == 0);
  CHECK(call->flags == 0 && call->cd > 0);
  CHECK(tptypes(call->data, NULL, NULL) >= 21);
  char *moved = tprealloc(call->data, 5000);
  CHECK(moved != NULL && strcmp(moved, "twenty and one bytes") == 0);
  tpreturn(failures == 0 ? TPSUCCESS : TPFAIL, 0, moved, 0, 0);
}

static void LENGTH(TPSVCINFO *call) { tpreturn(TPSUCCESS, call->len, NULL, 0, 0); }

static void PID(TPSVCINFO *call) {
  (void)call;
  tpreturn(TPSUCCESS, getpid(), NULL, 0, 0);
}

/* Says what it was given until it has control; then what the last text was decides how it ends. */
static void TALK(TPSVCINFO *call) {
  char *data = tpalloc("STRING", NULL, 64);
  long len = 0, event = 0;
  int result;
  if ((call->flags & TPCONV) == 0) tpreturn(TPFAIL, 0, NULL, 0, 0);
  CHECK(tpdiscon(call->cd) == -1 && tperrno == TPEBADDESC);
  if (call->flags & TPSENDONLY) {
    CHECK(tprecv(call->cd, &data, &len, 0, &event) == -1 && tperrno == TPEPROTO);
    for (int i = 0; i < 3; i++) {
      sprintf(data, "%s %d", call->data, i);
      CHECK(tpsend(call->cd, data, 0, 0, &event) == 0);
    }
    CHECK(tpsend(call->cd, data, 0, TPRECVONLY, &event) == 0);
  }
  do {
    event = 0;
    result = tprecv(call->cd, &data, &len, 0, &event);
  } while (result == 0);
  CHECK(tperrno == TPEEVENT);
  if (event == TPEV_DISCONIMM) {
    CHECK(tprecv(call->cd, &data, &len, 0, &event) == -1 && tperrno == TPEBADDESC);
    tpreturn(TPSUCCESS, 0, data, 0, 0);
  }
  CHECK(event == TPEV_SENDONLY);
  if (strcmp(data, "die") == 0) _exit(3);
  if (strcmp(data, "silent") == 0) return;
  if (strcmp(data, "away") == 0) {
    CHECK(tpsend(call->cd, data, 0, TPRECVONLY, &event) == 0);
    tpreturn(TPSUCCESS, 0, data, 0, 0);
  }
  if (strcmp(data, "stay") == 0) {
    int sent = tpsend(call->cd, NULL, 0, 0, &event);
    while (sent == 0) {
      wait_ms(1);
      sent = tpsend(call->cd, data, 0, 0, &event);
    }
    CHECK(tperrno == TPEEVENT && event == TPEV_DISCONIMM);
  }
  tpreturn(strcmp(data, "fail") == 0 ? TPFAIL : TPSUCCESS, 42, data, 0, 0);
}

/* The data goes back to the caller as an unsolicited message. */
static void BACK(TPSVCINFO *call) {
  CHECK(tpnotify(&call->cltid, call->data, call->len, 0) == 0);
  tpreturn(TPSUCCESS, 0, NULL, 0, 0);
}

static void EXIT(TPSVCINFO *call) {
  tpreturn(TPSUCCESS | TPEXIT, getpid(), call->data, call->len, 0);
}

/* A server has 48 services and no more; there is room for others when some are taken back. */
static void fill_up(void) {
  char name[16];
  int more = 0;
  for (; more < 48; more++) {
    sprintf(name, "MORE%d", more);
    if (tpadvertise(name, later) == -1) break;
  }
  CHECK(tperrno == TPELIMIT && more == 48 - OFFERED);
  while (more-- > 0) {
    sprintf(name, "MORE%d", more);
    CHECK(tpunadvertise(name) == 0);
  }
  CHECK(tpunadvertise(name) == -1 && tperrno == TPENOENT);
}

/* Calls of tpsvrthrinit; -1 behind tpsvrthrdone. */
static int thread_starts;

int tpsvrthrinit(int argc, char **argv) {
  CHECK(argc > 3 && strcmp(argv[argc - 1], "42") == 0 && optind == argc - 2 && thread_starts == 0 && tpgetsrvid() >= 1);
  thread_starts++;
  return failures;
}

void tpsvrthrdone(void) {
  CHECK(thread_starts == 1);
  thread_starts = -1;
}

void tpsvrdone(void) { CHECK(thread_starts == -1); }

/* The whole command line; getopt begins behind `--`. */
int tpsvrinit(int argc, char **argv) {
  CHECK(argc > 5 && strcmp(argv[argc - 3], "--") == 0 && optind == argc - 2 && argv[argc] == NULL);
  CHECK(getopt(argc, argv, "x:") == 'x' && strcmp(optarg, "42") == 0 && getopt(argc, argv, "x:") == -1);
  CHECK(tpadvertise("ECHO", ECHO) == 0 && tpadvertise("FAIL", FAIL) == 0);
  CHECK(tpadvertise("SILENT", SILENT) == 0 && tpadvertise("DIE", DIE) == 0);
  CHECK(tpadvertise("SLOW", SLOW) == 0 && tpadvertise("HOP", HOP) == 0);
  CHECK(tpadvertise("NOWHERE", NOWHERE) == 0 && tpadvertise("PASS", PASS) == 0);
  CHECK(tpadvertise("EMPTY", EMPTY) == 0);
  CHECK(tpadvertise("PART", PART) == 0 && tpadvertise("TOPART", TOPART) == 0);
  CHECK(tpadvertise("STRAYS", STRAYS) == 0 && tpadvertise("SOFT", SOFT) == 0);
  CHECK(tpadvertise("TOOLONG", TOOLONG) == 0 && tpadvertise("GROW", GROW) == 0);
  CHECK(tpadvertise("OPEN", OPEN) == 0 && tpadvertise("CLOSE", CLOSE) == 0);
  CHECK(tpadvertise("NESTED", NESTED) == 0 && tpadvertise("INFO", INFO) == 0);
  CHECK(tpadvertise("PID", PID) == 0 && tpadvertise("EXIT", EXIT) == 0);
  CHECK(tpadvertise("SOFTTIME", SOFTTIME) == 0 && tpadvertise("SOFTNONE", SOFTNONE) == 0);
  CHECK(tpadvertise("ODD", ODD) == 0 && tpadvertise("DEEP", DEEP) == 0);
  CHECK(tpadvertise("LENGTH", LENGTH) == 0 && tpadvertise("UNENDED", UNENDED) == 0);
  CHECK(tpadvertise("TALK", TALK) == 0 && tpadvertise("BACK", BACK) == 0);
  fill_up();
  tpreturn(TPSUCCESS, 0, NULL, 0, 0);
  CHECK(tperrno == TPEPROTO);
  return failures;
}
