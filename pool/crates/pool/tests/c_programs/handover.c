/* A server whose service functions leave calls to other threads, with a main of its own; with converted buffers. And its
 * client (argument: client). */
#include <atmi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ubf.h>

#include "check.h"

/* What another thread is given. */
struct work {
  char *call;
  char text[64];
};

static void answer(const char *text, char *call) {
  char *reply = tpalloc("STRING", NULL, 100);
  long len = 0;
  CHECK(tpsrvsetctxdata(call, SYS_SRV_THREAD) == 0);
  tpsrvfreectxdata(call);
  if (strcmp(text, "forward") == 0) {
    strcpy(reply, "by way of another");
    tpforward("PLAIN", reply, 0, 0);
  } else if (strcmp(text, "call") == 0) {
    /* It is a client of its own meanwhile, in the transaction of the caller. */
    strcpy(reply, "nested");
    CHECK(tpcall("PLAIN", reply, 0, &reply, &len, 0) == 0 && strcmp(reply, "plain: nested") == 0);
    int level = tpgetlev();
    tpreturn(TPSUCCESS, level, reply, 0, 0);
  } else if (strcmp(text, "fail") == 0) {
    tpreturn(TPFAIL, 5, NULL, 0, 0);
    tpfree(reply);
  } else if (strcmp(text, "exit") == 0) {
    strcpy(reply, "the last");
    tpreturn(TPSUCCESS | TPEXIT, 0, reply, 0, 0);
  } else {
    snprintf(reply, 100, "later: %s", text);
    tpreturn(TPSUCCESS, 3, reply, 0, 0);
  }
  CHECK(tperrno == 0);
  /* It has answered, and has nothing more to answer. */
  tpreturn(TPSUCCESS, 0, NULL, 0, 0);
  CHECK(tperrno == TPEPROTO);
}

static void *works(void *given) {
  struct work *work = given;
  CHECK(tpinit(NULL) == 0);
  answer(work->text, work->call);
  CHECK(tpterm() == 0);
  free(work);
  return NULL;
}

static void LATER(TPSVCINFO *call) {
  pthread_t thread;
  struct work *work = calloc(1, sizeof *work);
  char own[256];
  long room = sizeof own, small = 4;
  CHECK(tpisautobuf(call->data) == 1);
  snprintf(work->text, sizeof work->text, "%s", call->data);
  CHECK(tpsrvgetctxdata2(own, &small) == NULL && tperrno == TPEINVAL);
  CHECK(tpsrvgetctxdata2(own, &room) == own && room < (long)sizeof own);
  CHECK(tpsrvsetctxdata(own, 0) == -1 && tperrno == TPEPROTO);
  CHECK((work->call = tpsrvgetctxdata()) != NULL && memcmp(work->call, own, (size_t)room) == 0);
  CHECK(pthread_create(&thread, NULL, works, work) == 0 && pthread_detach(thread) == 0);
  tpcontinue();
}

static void NEVER(TPSVCINFO *call) {
  (void)call;
  tpcontinue();
}

static void PLAIN(TPSVCINFO *call) {
  char *reply = tpalloc("STRING", NULL, 100);
  snprintf(reply, 100, "plain: %s", call->data);
  tpreturn(TPSUCCESS, tpgetlev(), reply, 0, 0);
}

/* -xFIELDS:JSON2UBF: it is given fields. */
static void FIELDS(TPSVCINFO *call) {
  UBFH *fields = (UBFH *)call->data;
  char type[16] = "", name[64] = "";
  CHECK(tptypes(call->data, type, NULL) > 0 && strcmp(type, "UBF") == 0);
  BFLDID id = Bfldid("T_NAME");
  CHECK(Bgets(fields, id, 0, name) == 0 && Badds(fields, id, "added") == 0);
  tpreturn(strcmp(name, "fail") == 0 ? TPFAIL : TPSUCCESS, 1, call->data, 0, 0);
}

/* -xTEXT:UBF2JSON: it is given JSON. */
static void TEXT(TPSVCINFO *call) {
  char type[16] = "", *reply = tpalloc("JSON", NULL, 100);
  CHECK(tptypes(call->data, type, NULL) > 0 && strcmp(type, "JSON") == 0);
  CHECK(strcmp(call->data, "{\"T_NAME\":\"Ada\"}") == 0);
  strcpy(reply, "{\"T_NAME\":[\"Ada\",\"Jim\"]}");
  tpreturn(TPSUCCESS, 2, reply, 0, 0);
}

static int init(int argc, char **argv) {
  (void)argc;
  (void)argv;
  CHECK(tpadvertise("LATER", LATER) == 0 && tpadvertise("NEVER", NEVER) == 0);
  CHECK(tpadvertise("PLAIN", PLAIN) == 0);
  CHECK(tpadvertise("FIELDS", FIELDS) == 0 && tpadvertise("TEXT", TEXT) == 0);
  return failures;
}

static void done(void) {
  fprintf(stderr, "done\n");
  CHECK(failures == 0);
}

static char *string(const char *text) {
  char *buffer = tpalloc("STRING", NULL, 100);
  strcpy(buffer, text);
  return buffer;
}

/* A context that ends has the manager look. */
static void *comes_and_goes(void *nothing) {
  CHECK(tpinit(NULL) == 0 && tpterm() == 0);
  return nothing;
}

static void handed_over(void) {
  char *data = string("one"), *reply = NULL;
  long len = 0;
  int cds[50];
  CHECK(tpcall("LATER", data, 0, &reply, &len, 0) == 0 && strcmp(reply, "later: one") == 0 && tpurcode == 3);
  /* Many at once with one server: it serves on. */
  for (int i = 0; i < 50; i++) CHECK((cds[i] = tpacall("LATER", data, 0, 0)) > 0);
  CHECK(tpcall("PLAIN", data, 0, &reply, &len, 0) == 0 && strcmp(reply, "plain: one") == 0);
  for (int i = 0; i < 50; i++) {
    CHECK(tpgetrply(&cds[i], &reply, &len, 0) == 0 && strcmp(reply, "later: one") == 0);
  }
  strcpy(data, "forward");
  CHECK(tpcall("LATER", data, 0, &reply, &len, 0) == 0 && strcmp(reply, "plain: by way of another") == 0);
  strcpy(data, "fail");
  CHECK(tpcall("LATER", data, 0, &reply, &len, 0) == -1 && tperrno == TPESVCFAIL && tpurcode == 5);
  strcpy(data, "call");
  CHECK(tpcall("LATER", data, 0, &reply, &len, 0) == 0 && tpurcode == 0);
  CHECK(tpbegin(30, 0) == 0 && tpcall("LATER", data, 0, &reply, &len, 0) == 0 && tpurcode == 1);
  CHECK(tpcommit(0) == 0);
  /* One that no thread answers ends with its time, and so does the next. */
  for (int i = 0; i < 2; i++) {
    CHECK(tpsblktime(1, TPBLK_NEXT) == 0);
    CHECK(tpcall("NEVER", data, 0, &reply, &len, 0) == -1 && tperrno == TPETIME);
  }
  /* Until then it is the server's, whatever the manager finds when it looks for what dead processes have left. */
  CHECK(tpsblktime(6, TPBLK_NEXT) == 0 && (cds[0] = tpacall("NEVER", data, 0, 0)) > 0);
  pthread_t other;
  CHECK(pthread_create(&other, NULL, comes_and_goes, NULL) == 0 && pthread_join(other, NULL) == 0);
  CHECK(tpgetrply(&cds[0], &reply, &len, 0) == -1 && tperrno == TPETIME);
  CHECK(tpacall("LATER", data, 0, TPNOREPLY) == 0);
  strcpy(data, "still");
  CHECK(tpcall("LATER", data, 0, &reply, &len, 0) == 0 && strcmp(reply, "later: still") == 0);
  tpfree(data);
  tpfree(reply);
}

static void converted(void) {
  char *json = tpalloc("JSON", NULL, 1024), *text = tpalloc("STRING", NULL, 16), type[16] = "";
  UBFH *fields = (UBFH *)tpalloc("UBF", NULL, 1024);
  long len = 0;
  BFLDID id = Bfldid("T_NAME");
  strcpy(json, "{\"T_NAME\":\"Ada\"}");
  CHECK(tpcall("FIELDS", json, 0, &json, &len, 0) == 0 && tpurcode == 1);
  CHECK(tptypes(json, type, NULL) > 0 && strcmp(type, "JSON") == 0);
  CHECK(strcmp(json, "{\"T_NAME\":[\"Ada\",\"added\"]}") == 0);
  strcpy(json, "{\"T_NAME\":\"fail\"}");
  CHECK(tpcall("FIELDS", json, 0, &json, &len, 0) == -1 && tperrno == TPESVCFAIL);
  CHECK(strcmp(json, "{\"T_NAME\":[\"fail\",\"added\"]}") == 0);
  /* Fields are passed as they are. */
  CHECK(Badds(fields, id, "Ada") == 0 && tpcall("FIELDS", (char *)fields, 0, (char **)&fields, &len, 0) == 0);
  CHECK(Boccur(fields, id) == 2 && Bdelall(fields, id) == 0);
  CHECK(Badds(fields, id, "Ada") == 0 && tpcall("TEXT", (char *)fields, 0, (char **)&fields, &len, 0) == 0);
  CHECK(tptypes((char *)fields, type, NULL) > 0 && strcmp(type, "UBF") == 0 && Boccur(fields, id) == 2);
  for (int i = 0; i < 100; i++) {
    strcpy(json, "Some ][ very bad json{");
    CHECK(tpcall("FIELDS", json, 0, &json, &len, 0) == -1 && tperrno == TPESVCERR);
  }
  tpfree(json);
  tpfree(text);
  tpfree((char *)fields);
}

static int client(void) {
  handed_over();
  converted();
  char *data = string("exit"), *reply = NULL;
  long len = 0;
  CHECK(tpcall("LATER", data, 0, &reply, &len, 0) == 0 && strcmp(reply, "the last") == 0);
  /* The server that takes its place is there, before the pool is stopped. */
  const struct timespec moment = {0, 10000000};
  int tries = 0, called;
  strcpy(data, "next");
  while ((called = tpcall("PLAIN", data, 0, &reply, &len, 0)) == -1 && tperrno == TPENOENT && tries++ < 3000) {
    nanosleep(&moment, NULL);
  }
  CHECK(called == 0 && strcmp(reply, "plain: next") == 0);
  tpfree(data);
  tpfree(reply);
  CHECK(tpterm() == 0);
  return failures != 0;
}

int main(int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "client") == 0) return client();
  if (getenv("OWN_MAIN") == NULL) return ndrx_main_integra(argc, argv, init, done, 0);
  G_tpsvrinit__ = init;
  G_tpsvrdone__ = done;
  return ndrx_main(argc, argv);
}
