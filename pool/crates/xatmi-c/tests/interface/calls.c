/* Calls without a pool: arguments are judged, nothing crashes, and the error says what is missing. */
#include <atmi.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "check.h"

static void arguments(void) {
  char *buffer = tpalloc("UBF", NULL, 0), *other = NULL, *stray = STRAY;
  char on_stack[16] = "";
  char *own = on_stack;
  long len = 0;
  int cd = 0;
  CHECK(tpcall(NULL, buffer, 0, &buffer, &len, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpcall("X", STRAY, 0, &buffer, &len, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpcall("X", on_stack, 0, &buffer, &len, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpcall("X", buffer, 0, NULL, &len, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpcall("X", buffer, 0, &buffer, NULL, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpcall("X", buffer, 0, &stray, &len, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpcall("X", buffer, 0, &own, &len, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpacall(NULL, buffer, 0, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpacall("X", STRAY, 0, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpgetrply(NULL, &buffer, &len, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpgetrply(&cd, NULL, &len, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpgetrply(&cd, &buffer, NULL, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpgetrply(&cd, &stray, &len, 0) == -1 && tperrno == TPEINVAL);
  /* A buffer that was part of a refused call is still the caller's. */
  CHECK(tptypes(buffer, NULL, NULL) == 1024);
  tpfree(buffer);
  CHECK(tpcall("X", buffer, 0, &other, &len, 0) == -1 && tperrno == TPEINVAL);
}

static void what_is_said_of_buffers(void) {
  char *text = tpalloc("STRING", NULL, 10), *fields = tpalloc("UBF", NULL, 1024);
  UBFH *found = NULL, *stray = (UBFH *)STRAY;
  CHECK(tpsetcallinfo(text, (UBFH *)text, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpsetcallinfo(text, NULL, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpsetcallinfo(NULL, (UBFH *)fields, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpsetcallinfo(STRAY, (UBFH *)fields, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpsetcallinfo(text, (UBFH *)fields, 1) == -1 && tperrno == TPEINVAL);
  CHECK(tpgetcallinfo(text, &found, 0) == -1 && tperrno == TPESYSTEM && found == NULL);
  CHECK(tpgetcallinfo(text, &found, TPCI_NOEOFERR) == 0);
  CHECK(tpgetcallinfo(NULL, &found, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpgetcallinfo(text, NULL, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpgetcallinfo(text, &stray, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpgetcallinfo(text, &found, 2) == -1 && tperrno == TPEINVAL);
  CHECK(Badd((UBFH *)fields, Bmkfldid(BFLD_LONG, 9), (char *)&(long){7}, 0) == 0);
  CHECK(tpsetcallinfo(text, (UBFH *)fields, 0) == 0 && tpsetcallinfo(fields, (UBFH *)fields, 0) == 0);
  CHECK(tpgetcallinfo(text, &found, 0) == 0 && Bnum(found) == 1);
  CHECK(tpgetcallinfo(text, (UBFH **)&text, TPCI_NOEOFERR) == 1 && Bnum((UBFH *)text) == 1);
  tpfree((char *)found);
  tpfree(text);
  tpfree(fields);
}

static void without_a_pool(void) {
  char *buffer = tpalloc("CARRAY", NULL, 10);
  long len = 0;
  int cd = 1;
  CHECK(tpinit(NULL) == -1 && tperrno == TPESYSTEM);
  CHECK(strstr(tpstrerror(tperrno), "12:TPESYSTEM (last error 12: ") != NULL);
  CHECK(tpcall("X", buffer, 10, &buffer, &len, 0) == -1 && tperrno == TPESYSTEM);
  CHECK(tpacall("X", buffer, 10, 0) == -1 && tperrno == TPESYSTEM);
  CHECK(tpgetrply(&cd, &buffer, &len, 0) == -1 && tperrno == TPESYSTEM);
  CHECK(tpcancel(1) == -1 && tperrno == TPESYSTEM);
  long event = 0;
  CHECK(tpconnect("X", buffer, 10, TPSENDONLY) == -1 && tperrno == TPESYSTEM);
  CHECK(tpconnect("X", buffer, 10, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpconnect("X", buffer, 10, TPSENDONLY | TPRECVONLY) == -1 && tperrno == TPEINVAL);
  CHECK(tpconnect(NULL, buffer, 10, TPSENDONLY) == -1 && tperrno == TPEINVAL);
  CHECK(tpconnect("X", STRAY, 10, TPSENDONLY) == -1 && tperrno == TPEINVAL);
  CHECK(tpsend(1, buffer, 10, 0, NULL) == -1 && tperrno == TPEINVAL);
  CHECK(tpsend(1, STRAY, 10, 0, &event) == -1 && tperrno == TPEINVAL);
  CHECK(tpsend(1, buffer, 10, 0, &event) == -1 && tperrno == TPEBADDESC);
  CHECK(tprecv(1, NULL, &len, 0, &event) == -1 && tperrno == TPEINVAL);
  CHECK(tprecv(1, &buffer, NULL, 0, &event) == -1 && tperrno == TPEBADDESC);
  CHECK(tprecv(1, &buffer, &len, 0, NULL) == -1 && tperrno == TPEINVAL);
  CHECK(tprecv(1, &buffer, &len, 0, &event) == -1 && tperrno == TPEBADDESC);
  CHECK(tpdiscon(1) == -1 && tperrno == TPESYSTEM);
  CLIENTID unknown;
  memset(&unknown, 0, sizeof unknown);
  CHECK(tppost("E", buffer, 10, 0) == -1 && tperrno == TPESYSTEM);
  CHECK(tppost(NULL, buffer, 10, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tppost("E", STRAY, 10, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpsubscribe("E", NULL, NULL, 0) == -1 && tperrno == TPEPROTO);
  CHECK(tpunsubscribe(1, 0) == -1 && tperrno == TPESYSTEM);
  CHECK(tpnotify(NULL, buffer, 10, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpnotify(&unknown, buffer, 10, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpbroadcast(NULL, NULL, NULL, buffer, 10, 0) == -1 && tperrno == TPESYSTEM);
  CHECK(tpchkunsol() == -1 && tperrno == TPEPROTO);
  CHECK(tpsetunsol(NULL) == NULL && tperrno == 0);
  CHECK(tpterm() == 0 && tpterm() == 0 && tperrno == 0);
  tpfree(buffer);
}

static void take_message(char *data, long len, long flags) {
  (void)data;
  (void)len;
  (void)flags;
}

/* What needs a pool, and what needs a descriptor first. */
static void messages(int error, const char *words) {
  /* errors: TPESYSTEM, TPEOS */
  TPEVCTL control;
  CLIENTID unknown;
  char *buffer = tpalloc("CARRAY", NULL, 10), *reply = NULL;
  long len = 0;
  int cd = 1;
  memset(&control, 0, sizeof control);
  control.flags = TPEVSERVICE;
  strcpy(control.name1, "S");
  memset(&unknown, 0, sizeof unknown);
  strcpy(unknown.clientdata, "1,2,00000000000000ff");
  CHECK(tpinit(NULL) == -1 && tperrno == error);
  CHECK(strstr(tpstrerror(tperrno), words) != NULL);
  CHECK(tpcall("X", buffer, 10, &reply, &len, 0) == -1 && tperrno == error);
  CHECK(tpacall("X", buffer, 10, 0) == -1 && tperrno == error);
  CHECK(tpgetrply(&cd, &reply, &len, 0) == -1 && tperrno == error);
  CHECK(tpcancel(1) == -1 && tperrno == error);
  CHECK(tpconnect("X", buffer, 10, TPSENDONLY) == -1 && tperrno == error);
  CHECK(tpdiscon(1) == -1 && tperrno == error);
  CHECK(tpsubscribe("E", NULL, &control, 0) == -1 && tperrno == error);
  CHECK(tpunsubscribe(1, 0) == -1 && tperrno == error);
  CHECK(tpsetunsol(take_message) == TPUNSOLERR && tperrno == error);
  CHECK(tpchkunsol() == -1 && tperrno == TPEPROTO);
  CHECK(tpnotify(&unknown, buffer, 10, 0) == -1);
  CHECK(tperrno == (error == TPEOS ? TPEOS : TPENOENT));
  CHECK(tpbroadcast(NULL, NULL, NULL, STRAY, 10, 0) == -1 && tperrno == TPEINVAL);
  tpfree(buffer);
}

static void without_descriptors(void) {
  struct rlimit before, none;
  CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
  none = before;
  none.rlim_cur = 0;
  CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
  messages(TPEOS, "7:TPEOS (last error 7: ");
  CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

static void service(TPSVCINFO *info) { (void)info; }

static void outside_a_server(void) {
  tpreturn(TPSUCCESS, 0, NULL, 0, 0);
  CHECK(tperrno == TPEPROTO);
  tpforward("X", NULL, 0, 0);
  CHECK(tperrno == TPEPROTO);
  CHECK(tpadvertise("X", service) == -1 && tperrno == TPEPROTO);
  CHECK(tpadvertise_full(NULL, service, "f") == -1 && tperrno == TPEINVAL);
  CHECK(tpadvertise_full("X", NULL, "f") == -1 && tperrno == TPEINVAL);
  CHECK(tpunadvertise(NULL) == -1 && tperrno == TPEINVAL);
  CHECK(tpunadvertise("X") == -1 && tperrno == TPEPROTO);
}

static void times(void) {
  CHECK(tptoutget() == 60);
  CHECK(tptoutset(-1) == -1 && tperrno == TPEINVAL);
  CHECK(tptoutset(7) == 0 && tptoutget() == 7);
  CHECK(tptoutset(0) == 0 && tptoutget() == 60);
  CHECK(tpsblktime(-1, TPBLK_ALL) == -1 && tperrno == TPEINVAL);
  CHECK(tpsblktime(1, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpsblktime(1, TPBLK_ALL | TPBLK_NEXT) == -1 && tperrno == TPEINVAL);
  CHECK(tpsblktime(3, TPBLK_ALL) == 0 && tpsblktime(2, TPBLK_NEXT) == 0);
  CHECK(tpgblktime(TPBLK_ALL) == 3 && tpgblktime(TPBLK_NEXT) == 2 && tpgblktime(0) == 2);
  CHECK(tpgblktime(99) == -1 && tperrno == TPEINVAL);
  CHECK(tpsblktime(0, TPBLK_ALL) == 0 && tpsblktime(0, TPBLK_NEXT) == 0);
  CHECK(tpgblktime(0) == 0);
}

/* Each thread has its own error number. */
static void *other_thread(void *seen) {
  *(int *)seen = tperrno;
  tpalloc("NOTYPE", NULL, 0);
  return NULL;
}

static void threads(void) {
  pthread_t thread;
  int seen = -1;
  CHECK(tpalloc(NULL, NULL, 0) == NULL && tperrno == TPEINVAL);
  CHECK(pthread_create(&thread, NULL, other_thread, &seen) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(seen == 0 && tperrno == TPEINVAL);
}

int main(void) {
  arguments();
  what_is_said_of_buffers();
  without_a_pool();
  messages(TPESYSTEM, "pollux pool start");
  without_descriptors();
  outside_a_server();
  times();
  threads();
  return failures != 0;
}
