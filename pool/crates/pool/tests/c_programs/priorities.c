/* A server whose only copy notes in which order requests come, and its client (argument: client). */
#include <atmi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

enum { MANY = 40 };

static char came[4096];

/* Serves nothing else until the file is there that the text names. */
static void HOLD(TPSVCINFO *call) {
  char inside[256];
  snprintf(inside, sizeof inside, "%s.inside", call->data);
  FILE *file = fopen(inside, "w");
  CHECK(file != NULL && fclose(file) == 0);
  while (access(call->data, F_OK) != 0) usleep(1000);
  CHECK(unlink(call->data) == 0);
  tpreturn(TPSUCCESS, 0, NULL, 0, 0);
}

static void NOTE(TPSVCINFO *call) {
  size_t len = strlen(came);
  snprintf(came + len, sizeof came - len, "%s:%d ", call->data, tpgprio());
  tpreturn(TPSUCCESS, 0, NULL, 0, 0);
}

/* Passes on: with the priority that the request has, or what the letter behind the text says. */
static void PASS(TPSVCINFO *call) {
  if (strchr(call->data, '+') != NULL) CHECK(tpsprio(10, 0) == 0);
  if (strchr(call->data, '=') != NULL) CHECK(tpsprio(3, TPABSOLUTE) == 0);
  tpforward("NOTE", call->data, 0, 0);
}

static void CAME(TPSVCINFO *call) {
  (void)call;
  char *reply = tpalloc("STRING", NULL, sizeof came);
  strcpy(reply, came);
  *came = '\0';
  tpreturn(TPSUCCESS, 0, reply, 0, 0);
}

static int init(int argc, char **argv) {
  (void)argc;
  (void)argv;
  CHECK(tpadvertise("HOLD", HOLD) == 0 && tpadvertise("NOTE", NOTE) == 0);
  CHECK(tpadvertise("NOTED", NOTE) == 0 && tpadvertise("PASS", PASS) == 0);
  CHECK(tpadvertise("CAME", CAME) == 0);
  return failures;
}

static void done(void) { CHECK(failures == 0); }

static char *string(const char *text) {
  char *buffer = tpalloc("STRING", NULL, 256);
  strcpy(buffer, text);
  return buffer;
}

static int gate;
static char path[64];

static void hold(void) {
  char inside[80];
  snprintf(path, sizeof path, "./gate.%d", ++gate);
  snprintf(inside, sizeof inside, "%s.inside", path);
  char *text = string(path);
  CHECK(tpacall("HOLD", text, 0, TPNOREPLY) == 0);
  while (access(inside, F_OK) != 0) usleep(1000);
  tpfree(text);
}

static void let_go(void) {
  FILE *file = fopen(path, "w");
  CHECK(file != NULL && fclose(file) == 0);
}

static void note(const char *service, const char *text) {
  char *buffer = string(text);
  CHECK(tpacall(service, buffer, 0, TPNOREPLY) == 0);
  tpfree(buffer);
}

static void with(int priority, long flags, const char *service, const char *text, int is_now) {
  CHECK(tpsprio(priority, flags) == 0);
  note(service, text);
  CHECK(tpgprio() == is_now);
}

/* What came so far: `CAME` is another service, whose requests may be served between. */
static const char *order(size_t count) {
  static char all[8192];
  char *reply = string("");
  long len = 0;
  *all = '\0';
  for (size_t seen = 0; seen < count;) {
    CHECK(tpcall("CAME", NULL, 0, &reply, &len, 0) == 0);
    strcat(all, reply);
    seen = 0;
    for (const char *at = all; *at != '\0'; at++) seen += *at == ' ';
  }
  tpfree(reply);
  return all;
}

static void is(const char *is, const char *expected) {
  if (strcmp(is, expected) != 0) {
    fprintf(stderr, "%s instead of %s\n", is, expected);
    failures++;
  }
}

static int client(int has_turns) {
  CHECK(tpinit(NULL) == 0);
  hold();
  with(20, TPABSOLUTE, "NOTE", "a", 20);
  note("NOTE", "b");
  with(40, 0, "NOTE", "c", 90);
  with(70, TPABSOLUTE, "NOTE", "d", 70);
  note("NOTE", "e");
  with(100, 0, "NOTE", "f", 100);
  with(-100, 0, "NOTE", "g", 1);
  with(70, TPABSOLUTE, "NOTE", "h", 70);
  let_go();
  is(order(8), "f:100 c:90 d:70 h:70 b:50 e:50 a:20 g:1 ");
  /* A service that has one by the configuration. */
  hold();
  with(79, TPABSOLUTE, "NOTED", "a", 79);
  note("NOTED", "b");
  CHECK(tpgprio() == 80);
  with(-2, 0, "NOTED", "c", 78);
  with(5, 0, "NOTED", "d", 85);
  let_go();
  is(order(4), "d:85 b:80 a:79 c:78 ");
  /* One that is passed on keeps its own, unless the service says another. */
  note("PASS", "a");
  is(order(1), "a:50 ");
  with(30, TPABSOLUTE, "PASS", "b", 30);
  is(order(1), "b:30 ");
  with(30, TPABSOLUTE, "PASS", "c+", 30);
  is(order(1), "c+:40 ");
  note("PASS", "d=");
  is(order(1), "d=:3 ");
  if (has_turns) {
    /* The one that came first is not last, however many there are of a higher one. */
    hold();
    with(1, TPABSOLUTE, "NOTE", "low", 1);
    for (int i = 0; i < MANY; i++) with(100, TPABSOLUTE, "NOTE", "high", 100);
    let_go();
    const char *all = order(MANY + 1), *low = strstr(all, "low:1 ");
    CHECK(low != NULL && (low - all) / (long)strlen("high:100 ") < 10);
  }
  tpterm();
  return failures != 0;
}

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "client") == 0) return client(argc > 2);
  return ndrx_main_integra(argc, argv, init, done, 0);
}
