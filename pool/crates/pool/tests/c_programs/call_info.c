/* A server that reads and changes what travels beside the data of buffers, and its client (argument: client). */
#include <atmi.h>
#include <stdlib.h>
#include <string.h>
#include <ubf.h>

#include "check.h"

#define NAME Bmkfldid(BFLD_STRING, 11)
#define LONG_TEXT Bmkfldid(BFLD_STRING, 12)
#define LARGE 100000

static void said(const char *buffer, const char *expected) {
  UBFH *info = NULL;
  CHECK(tpgetcallinfo(buffer, &info, 0) == 0);
  const char *name = info == NULL ? NULL : Bfind(info, NAME, 0, NULL);
  if (name == NULL || strcmp(name, expected) != 0) {
    fprintf(stderr, "%s instead of %s\n", name == NULL ? "nothing" : name, expected);
    failures++;
  }
  tpfree((char *)info);
}

static void say(char *buffer, const char *text) {
  UBFH *info = (UBFH *)tpalloc("UBF", NULL, 1024);
  CHECK(Badd(info, NAME, (char *)text, 0) == 0 && tpsetcallinfo(buffer, info, 0) == 0);
  tpfree((char *)info);
}

/* What came, with a word behind it. */
static void ADDS(TPSVCINFO *call) {
  UBFH *info = (UBFH *)tpalloc("UBF", NULL, 1024);
  char text[256];
  CHECK(tpgetcallinfo(call->data, &info, TPCI_NOEOFERR) == 1);
  snprintf(text, sizeof text, "%s and back", Bfind(info, NAME, 0, NULL));
  CHECK(Bchg(info, NAME, 0, text, 0) == 0 && tpsetcallinfo(call->data, info, 0) == 0);
  tpfree((char *)info);
  tpreturn(TPSUCCESS, 0, call->data, call->len, 0);
}

/* Another buffer, without anything beside it. */
static void OTHER(TPSVCINFO *call) {
  UBFH *info = NULL;
  char *reply = tpalloc("STRING", NULL, 100);
  int result = tpgetcallinfo(call->data, &info, TPCI_NOEOFERR);
  strcpy(reply, result == 1 ? "with" : "without");
  tpfree((char *)info);
  tpreturn(TPSUCCESS, 0, reply, 0, 0);
}

static void FAIL(TPSVCINFO *call) {
  say(call->data, "why");
  tpreturn(TPFAIL, 0, call->data, call->len, 0);
}

static void PASS(TPSVCINFO *call) { tpforward("ADDS", call->data, call->len, 0); }

static int init(int argc, char **argv) {
  (void)argc;
  (void)argv;
  CHECK(tpadvertise("ADDS", ADDS) == 0 && tpadvertise("OTHER", OTHER) == 0);
  CHECK(tpadvertise("FAIL", FAIL) == 0 && tpadvertise("PASS", PASS) == 0);
  return failures;
}

static void done(void) { CHECK(failures == 0); }

static void of_type(const char *type, long size) {
  char *data = tpalloc((char *)type, NULL, size), *reply = NULL, *nothing = NULL;
  long len = 0;
  int cd, is_bytes = strcmp(type, "CARRAY") == 0, is_text = strcmp(type, "STRING") == 0;
  long sent = is_bytes ? size : 0;
  if (is_bytes || is_text) memset(data, 'a', (size_t)size - 1);
  if (is_bytes || is_text) data[size - 1] = '\0';
  CHECK(tpgetcallinfo(data, (UBFH **)&nothing, 0) == -1 && tperrno == TPESYSTEM);
  CHECK(tpgetcallinfo(data, (UBFH **)&nothing, TPCI_NOEOFERR) == 0 && nothing == NULL);
  CHECK(tpcall("OTHER", data, sent, &reply, &len, 0) == 0 && strcmp(reply, "without") == 0);
  say(data, "first");
  say(data, "there");
  said(data, "there");
  CHECK(tpcall("OTHER", data, sent, &reply, &len, 0) == 0 && strcmp(reply, "with") == 0);
  CHECK(tpgetcallinfo(reply, (UBFH **)&nothing, TPCI_NOEOFERR) == 0);
  CHECK(tpcall("ADDS", data, sent, &reply, &len, 0) == 0);
  said(reply, "there and back");
  said(data, "there");
  if (is_bytes) CHECK(len == size && memcmp(reply, data, (size_t)size) == 0);
  if (is_text) CHECK(len == size && strcmp(reply, data) == 0);
  CHECK(tpcall("PASS", data, sent, &data, &len, 0) == 0);
  said(data, "there and back");
  /* What comes without anything leaves what is kept. */
  char *text = tpalloc("STRING", NULL, 100);
  say(text, "mine");
  CHECK(tpcall("OTHER", text, 0, &text, &len, 0) == 0 && strcmp(text, "with") == 0);
  said(text, "mine");
  text = tprealloc(text, 5000);
  said(text, "mine");
  /* Replies in another order than they are asked for. */
  int first = tpacall("ADDS", data, sent, 0);
  CHECK(first > 0 && (cd = tpacall("ADDS", text, 0, 0)) > 0);
  CHECK(tpgetrply(&cd, &reply, &len, 0) == 0);
  said(reply, "mine and back");
  CHECK(tpgetrply(&first, &reply, &len, 0) == 0);
  said(reply, "there and back and back");
  CHECK(tpcall("FAIL", data, sent, &reply, &len, 0) == -1 && tperrno == TPESVCFAIL);
  said(reply, "why");
  tpfree(text);
  tpfree(reply);
  tpfree(data);
}

int main(int argc, char **argv) {
  if (argc < 2 || strcmp(argv[1], "client") != 0) {
    return ndrx_main_integra(argc, argv, init, done, 0);
  }
  CHECK(tpinit(NULL) == 0);
  of_type("STRING", 10);
  of_type("STRING", LARGE);
  of_type("CARRAY", 7);
  of_type("CARRAY", LARGE);
  of_type("UBF", 1024);
  /* Longer than a message, and as long as its room is. */
  char *data = tpalloc("STRING", NULL, 10), *reply = NULL, *text = malloc(LARGE);
  UBFH *info = (UBFH *)tpalloc("UBF", NULL, LARGE + 1024), *small = (UBFH *)tpalloc("UBF", NULL, 512);
  long len = 0;
  memset(text, 'b', LARGE - 1);
  text[LARGE - 1] = '\0';
  strcpy(data, "short");
  CHECK(Badd(info, NAME, "large", 0) == 0 && Badd(info, LONG_TEXT, text, 0) == 0);
  CHECK(tpsetcallinfo(data, info, 0) == 0 && tpcall("ADDS", data, 0, &reply, &len, 0) == 0);
  CHECK(strcmp(reply, "short") == 0 && tpgetcallinfo(reply, &small, 0) == 0);
  CHECK(strcmp(Bfind(small, LONG_TEXT, 0, NULL), text) == 0);
  said(reply, "large and back");
  tpterm();
  return failures != 0;
}
