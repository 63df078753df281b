/* tpalloc, tprealloc, tpfree, tptypes: every error that they have, and none that they have not. */
#include <atmi.h>
#include <limits.h>
#include <string.h>
#include <sys/resource.h>
#include <ubf.h>

#include "check.h"

static void allocation(void) {
  CHECK(tpalloc(NULL, NULL, 10) == NULL && tperrno == TPEINVAL);
  CHECK(tpalloc((char *)8, NULL, 10) == NULL && tperrno == TPEINVAL);
  CHECK(tpalloc("NOTYPE", NULL, 10) == NULL && tperrno == TPENOENT);
  CHECK(tpalloc("", NULL, 10) == NULL && tperrno == TPENOENT);
  CHECK((tpalloc)("VIEW", "none", 10) == NULL && tperrno == TPENOENT);
  CHECK(tpalloc("UBF", NULL, -1) == NULL && tperrno == TPEINVAL);
  CHECK(tpalloc("UBF", NULL, LONG_MIN) == NULL && tperrno == TPEINVAL);
  CHECK(tpalloc("CARRAY", NULL, LONG_MAX) == NULL && tperrno == TPEINVAL);
  CHECK(tpalloc("CARRAY", "a subtype of more than sixteen", 1) == NULL && tperrno == TPEINVAL);
}

static void types(void) {
  static const char *names[][2] = {
      {"UBF", "UBF"},       {"FML", "UBF"},   {"FML32", "UBF"},       {"UBF32", "UBF"},
      {"STRING", "STRING"}, {"JSON", "JSON"}, {"CARRAY", "CARRAY"},   {"X_OCTET", "X_OCTET"},
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char type[8 + 1] = "unset", subtype[16 + 1] = "unset";
    char *buffer = tpalloc(names[i][0], NULL, 0);
    CHECK(buffer != NULL && tperrno == 0);
    CHECK(tptypes(buffer, type, subtype) == (i < 4 ? 1024 : 512));
    CHECK(strcmp(type, names[i][1]) == 0 && strcmp(subtype, "") == 0);
    CHECK(tptypes(buffer, NULL, NULL) > 0 && tperrno == 0);
    tpfree(buffer);
    CHECK(tptypes(buffer, type, subtype) == -1 && tperrno == TPEINVAL);
  }
  CHECK(tptypes(NULL, NULL, NULL) == -1 && tperrno == TPEINVAL);
  CHECK(tptypes(STRAY, NULL, NULL) == -1 && tperrno == TPEINVAL);
}

static void other_sizes(void) {
  char on_stack[8];
  CHECK(tprealloc(NULL, 10) == NULL && tperrno == TPEINVAL);
  CHECK(tprealloc(STRAY, 10) == NULL && tperrno == TPEINVAL);
  CHECK(tprealloc(on_stack, 10) == NULL && tperrno == TPEINVAL);
  char *text = tpalloc("STRING", NULL, 16);
  /* Room for the NUL of a text that fills what was asked for. */
  CHECK(tptypes(text, NULL, NULL) == 512);
  strcpy(text, "fifteen letters");
  CHECK(tprealloc(text, -1) == NULL && tperrno == TPEINVAL);
  CHECK(tprealloc(text, LONG_MAX) == NULL && tperrno == TPEINVAL);
  CHECK(tprealloc(text + 1, 10) == NULL && tperrno == TPEINVAL);
  CHECK(tprealloc(text, 512) == text);
  text = tprealloc(text, 100000);
  CHECK(text != NULL && strcmp(text, "fifteen letters") == 0);
  CHECK(tptypes(text, NULL, NULL) == 100000);
  text[99999] = 'x';
  text = tprealloc(text, 8);
  CHECK(text != NULL && strcmp(text, "fifteen") == 0);
  tpfree(text);
  CHECK(tprealloc(text, 10) == NULL && tperrno == TPEINVAL);
}

static void freeing(void) {
  char on_stack[8];
  tpfree(NULL);
  tpfree(STRAY);
  tpfree(on_stack);
  char *buffer = tpalloc("CARRAY", NULL, 1);
  buffer[0] = 1;
  tpfree(buffer);
  tpfree(buffer);
  /* What failed before is known after the buffers are freed. */
  buffer = tpalloc("CARRAY", NULL, 1);
  CHECK(tpalloc("NOTYPE", NULL, 1) == NULL);
  tpfree(buffer);
  CHECK(tperrno == TPENOENT && strstr(tpstrerror(tperrno), "NOTYPE") != NULL);
}

static void words(void) {
  CHECK(strcmp(tpecodestr(TPESVCFAIL), "TPESVCFAIL") == 0);
  CHECK(strcmp(tpstrerror(TPETIME), "13:TPETIME") == 0);
  tpalloc("NOTYPE", NULL, 0);
  CHECK(strncmp(tpstrerror(tperrno), "6:TPENOENT (last error 6: 'NOTYPE'", 34) == 0);
  CHECK(tpstrerror(-1) != NULL && tpstrerror(INT_MAX) != NULL);
}

/* Where the system has no memory the program continues. */
static void without_memory(void) {
  struct rlimit before, little;
  char *bytes = tpalloc("CARRAY", NULL, 1000), *fields = tpalloc("UBF", NULL, 0);
  UBFH *few = Balloc(1, 8);
  CHECK(getrlimit(RLIMIT_AS, &before) == 0);
  little = before;
  little.rlim_cur = 512L << 20;
  CHECK(setrlimit(RLIMIT_AS, &little) == 0);
  CHECK(tpalloc("CARRAY", NULL, 1L << 30) == NULL && tperrno == TPEOS);
  CHECK(tpalloc("UBF", NULL, 1L << 30) == NULL && tperrno == TPEOS);
  CHECK(tprealloc(bytes, 1L << 30) == NULL && tperrno == TPEOS);
  CHECK(tprealloc(fields, 1L << 30) == NULL && tperrno == TPEOS);
  CHECK(Balloc(10, 900 << 20) == NULL && Berror == BMALLOC);
  CHECK(Brealloc(few, 10, 900 << 20) == NULL && Berror == BMALLOC);
  CHECK(setrlimit(RLIMIT_AS, &before) == 0);
  CHECK(Bfree(few) == 0);
  CHECK(tptypes(bytes, NULL, NULL) == 1000 && tptypes(fields, NULL, NULL) == 1024);
  tpfree(bytes);
  tpfree(fields);
}

int main(void) {
  allocation();
  without_memory();
  types();
  other_sizes();
  freeing();
  words();
  return failures != 0;
}
