/* The functions of ubf.h: what they answer, and each error that they have. */
#include <atmi.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <ubf.h>

#include "check.h"

enum { NAME = 167773161 /* string 1001 */, BALANCE = 134218731 /* double 1003 */ };

static BFLDID bytes_field, long_field, inner_field;

/* Every function on memory that holds no fields; errors: BNOTFLD, BALIGNERR. */
static void no_fields(UBFH *ubf, int error) {
  char value[100];
  BFLDLEN len = sizeof value;
  BFLDID id = BFIRSTFLDID;
  BFLDOCC occurrence = 0;
  UBFH *good = (UBFH *)tpalloc("UBF", NULL, 0);
  CHECK(Badd(ubf, NAME, "x", 0) == -1 && Berror == error);
  CHECK(Bchg(ubf, NAME, 0, "x", 0) == -1 && Berror == error);
  CHECK(Bget(ubf, NAME, 0, value, &len) == -1 && Berror == error);
  CHECK(CBadd(ubf, NAME, "x", 0, BFLD_STRING) == -1 && Berror == error);
  CHECK(CBchg(ubf, NAME, 0, "x", 0, BFLD_STRING) == -1 && Berror == error);
  CHECK(CBget(ubf, NAME, 0, value, &len, BFLD_STRING) == -1 && Berror == error);
  CHECK(Bdel(ubf, NAME, 0) == -1 && Berror == error);
  CHECK(Bdelall(ubf, NAME) == -1 && Berror == error);
  CHECK(Bpres(ubf, NAME, 0) == 0 && Berror == error);
  CHECK(Blen(ubf, NAME, 0) == -1 && Berror == error);
  CHECK(Bfind(ubf, NAME, 0, &len) == NULL && Berror == error);
  CHECK(Boccur(ubf, NAME) == -1 && Berror == error);
  CHECK(Bnum(ubf) == -1 && Berror == error);
  CHECK(Bnext(ubf, &id, &occurrence, value, &len) == -1 && Berror == error);
  CHECK(Bcpy(good, ubf) == -1 && Berror == error);
  CHECK(Bcpy(ubf, good) == -1 && Berror == error);
  CHECK(Bupdate(ubf, good) == -1 && Berror == error);
  CHECK(Bconcat(ubf, good) == -1 && Berror == error);
  CHECK(Bproj(ubf, &id) == -1 && Berror == error);
  CHECK(Bprojcpy(ubf, good, &id) == -1 && Berror == error);
  CHECK(Bsizeof(ubf) == -1 && Bused(ubf) == -1 && Bunused(ubf) == -1 && Berror == error);
  CHECK(Bprint(ubf) == -1 && Bfprint(ubf, stderr) == -1 && Berror == error);
  CHECK(Bisubf(ubf) == 0);
  tpfree((char *)good);
}

/* Memory checkers call a look at freed memory wrong, which is right. */
static int is_watched(void) { return getenv("MEMORY_IS_WATCHED") != NULL; }

static void memory_without_fields(void) {
  static long long zeros[16];
  no_fields(NULL, BNOTFLD);
  no_fields((UBFH *)8, BNOTFLD);
  no_fields((UBFH *)zeros, BNOTFLD);
  no_fields((UBFH *)STRAY, BNOTFLD);
  no_fields((UBFH *)((char *)zeros + 1), BALIGNERR);
  char *freed = tpalloc("UBF", NULL, 1 << 20);
  CHECK(Badd((UBFH *)freed, NAME, "x", 0) == 0);
  tpfree(freed);
  if (!is_watched()) no_fields((UBFH *)freed, BNOTFLD);
  char *text = tpalloc("STRING", NULL, 100);
  no_fields((UBFH *)text, BNOTFLD);
  tpfree(text);
  text = tpalloc("STRING", NULL, 8);
  no_fields((UBFH *)text, BNOTFLD);
  tpfree(text);
}

/* The address that a buffer had before tprealloc is that of a freed one, large or small. */
static void moved_memory(void) {
  /* Sizes at whose address nothing else is allocated meanwhile. */
  static const long sizes[] = {64, 40 << 20};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    char *before = tpalloc("UBF", NULL, sizes[i]);
    CHECK(Badd((UBFH *)before, NAME, "x", 0) == 0);
    char *after = tprealloc(before, 2 * sizes[i]);
    CHECK(after != NULL && after != before && Bnum((UBFH *)after) == 1);
    if (!is_watched()) no_fields((UBFH *)before, BNOTFLD);
    tpfree(after);
  }
}

/* A buffer that was copied byte by byte into a smaller one says more than there is. */
static void headers_of_others(void) {
  UBFH *large = (UBFH *)tpalloc("UBF", NULL, 4096), *small = (UBFH *)tpalloc("UBF", NULL, 64);
  CHECK(Badd(large, NAME, "x", 0) == 0 && Bnum(small) == 0);
  memcpy(small, large, (size_t)Bused(large));
  no_fields(small, BNOTFLD);
  CHECK(Binit(small, 64) == 0 && Bnum(small) == 0);
  tpfree((char *)large);
  tpfree((char *)small);
}

/* Values that stand in the buffer which they are put into; names have larger ids than numbers. */
static void own_values(void) {
  UBFH *ubf = (UBFH *)tpalloc("UBF", NULL, 4096), *other = (UBFH *)tpalloc("UBF", NULL, 4096);
  BFLDID low = Bmkfldid(BFLD_STRING, 1), high = Bmkfldid(BFLD_STRING, 2);
  BFLDLEN len;
  CHECK(Badd(ubf, high, "a text of some length", 0) == 0);
  for (int i = 0; i < 4; i++) CHECK(Badd(ubf, low, Bfind(ubf, high, 0, NULL), 0) == 0);
  for (int i = 0; i < 4; i++) {
    CHECK(strcmp(Bfind(ubf, low, i, NULL), "a text of some length") == 0);
  }
  CHECK(Bchg(ubf, low, 0, "short", 0) == 0 && Bchg(ubf, low, 1, Bfind(ubf, low, 0, NULL), 0) == 0);
  CHECK(strcmp(Bfind(ubf, low, 1, NULL), "short") == 0);
  char *found = Bfind(ubf, high, 0, &len);
  CHECK(CBadd(ubf, bytes_field, found, len, BFLD_CARRAY) == 0);
  CHECK(CBchg(ubf, low, 6, Bfind(ubf, high, 0, NULL), 0, BFLD_STRING) == 0);
  CHECK(strcmp(Bfind(ubf, low, 6, NULL), "a text of some length") == 0 && Boccur(ubf, low) == 7);
  CHECK(Bcpy(other, ubf) == 0 && Badd(ubf, inner_field, (char *)ubf, 0) == 0);
  CHECK(Bnum((UBFH *)Bfind(ubf, inner_field, 0, NULL)) == Bnum(other));
  CHECK(Bcpy(ubf, (UBFH *)Bfind(ubf, inner_field, 0, NULL)) == 0 && Bnum(ubf) == Bnum(other));
  CHECK(strcmp(Bfind(ubf, high, 0, NULL), "a text of some length") == 0);
  tpfree((char *)ubf);
  tpfree((char *)other);
}

static void own_memory(void) {
  static long long own[64];
  UBFH *ubf = (UBFH *)own;
  CHECK(Binit(NULL, 100) == -1 && Berror == BNOTFLD);
  CHECK(Binit((UBFH *)((char *)own + 4), 100) == -1 && Berror == BALIGNERR);
  CHECK(Binit((UBFH *)STRAY, 100) == -1 && Berror == BNOTFLD);
  CHECK(Binit(ubf, 0) == -1 && Berror == BNOSPACE);
  CHECK(Binit(ubf, -1) == -1 && Berror == BEINVAL);
  CHECK(Binit(ubf, (BFLDLEN)sizeof own) == 0 && Bsizeof(ubf) == sizeof own);
  CHECK(Badd(ubf, NAME, "mine", 0) == 0 && Bnum(ubf) == 1 && Bisubf(ubf) == 1);
  char *small = tpalloc("UBF", NULL, 64);
  CHECK(Binit((UBFH *)small, 65) == -1 && Berror == BEINVAL);
  CHECK(Binit((UBFH *)small, 64) == 0);
  CHECK(Bcpy((UBFH *)small, ubf) == 0 && Bpres((UBFH *)small, NAME, 0) == 1);
  tpfree(small);
}

static void one_value(UBFH *ubf) {
  char value[100];
  BFLDLEN len;
  double balance = 12.5, read = 0;
  CHECK(Badd(ubf, 0, "x", 0) == -1 && Berror == BBADFLD);
  CHECK(Badd(ubf, -1, "x", 0) == -1 && Berror == BBADFLD);
  CHECK(Badd(ubf, NAME, NULL, 0) == -1 && Berror == BEINVAL);
  CHECK(Badd(ubf, NAME, "ACC00000000001", 0) == 0 && Berror == 0);
  for (len = 0; len < 15; len++) {
    BFLDLEN room = len;
    CHECK(Bget(ubf, NAME, 0, value, &room) == -1 && Berror == BNOSPACE);
  }
  CHECK(Bget(ubf, NAME, 0, value, &len) == 0 && len == 15);
  CHECK(strcmp(value, "ACC00000000001") == 0);
  CHECK(Bget(ubf, NAME, -1, value, NULL) == 0);
  CHECK(Bget(ubf, NAME, -2, value, NULL) == -1 && Berror == BEINVAL);
  CHECK(Bget(ubf, NAME, 1, value, NULL) == -1 && Berror == BNOTPRES);
  CHECK(Bget(ubf, NAME, 0, NULL, NULL) == -1 && Berror == BEINVAL);
  len = -1;
  CHECK(Bget(ubf, NAME, 0, value, &len) == -1 && Berror == BEINVAL);
  CHECK(Bget(ubf, BALANCE, 0, value, NULL) == -1 && Berror == BNOTPRES);
  CHECK(Bget(ubf, 0, 0, value, NULL) == -1 && Berror == BBADFLD);
  CHECK(Bchg(ubf, BALANCE, 0, (char *)&balance, 0L) == 0);
  CHECK(Bget(ubf, BALANCE, 0, (char *)&read, 0L) == 0 && read == balance);
  CHECK(Bchg(ubf, NAME, -2, "x", 0) == -1 && Berror == BEINVAL);
  CHECK(Bchg(ubf, NAME, 3, "fourth", 0) == 0 && Boccur(ubf, NAME) == 4);
  CHECK(Bchg(ubf, NAME, -1, "fifth", 0) == 0 && Boccur(ubf, NAME) == 5);
  CHECK(Bchg(ubf, NAME, 4, NULL, 0) == 0 && Boccur(ubf, NAME) == 4);
  CHECK(Blen(ubf, NAME, 3) == 7 && Blen(ubf, NAME, 1) == 1);
  CHECK(Bfind(ubf, NAME, 3, &len) != NULL && len == 7);
  CHECK(Bfind(ubf, NAME, 9, &len) == NULL && Berror == BNOTPRES);
  CHECK(Bdel(ubf, NAME, 1) == 0 && Boccur(ubf, NAME) == 3);
  CHECK(Bdel(ubf, NAME, 3) == -1 && Berror == BNOTPRES);
  CHECK(Bdelall(ubf, NAME) == 0 && Bpres(ubf, NAME, 0) == 0);
  CHECK(Bdelall(ubf, NAME) == -1 && Berror == BNOTPRES);
  CHECK(Badd(ubf, bytes_field, "abc", -1) == -1 && Berror == BEINVAL);
  CHECK(Badd(ubf, bytes_field, "", 0) == 0 && Blen(ubf, bytes_field, 0) == 0);
  CHECK(Bdelall(ubf, bytes_field) == 0 && Bdelall(ubf, BALANCE) == 0);
}

static void growth(UBFH **ubf) {
  char text[2001];
  memset(text, 'x', 2000);
  text[2000] = 0;
  CHECK(Badd(*ubf, NAME, text, 0) == -1 && Berror == BNOSPACE && Bnum(*ubf) == 0);
  *ubf = (UBFH *)tprealloc((char *)*ubf, 4096);
  CHECK(*ubf != NULL && Badd(*ubf, NAME, text, 0) == 0);
  CHECK(tprealloc((char *)*ubf, 1024) == NULL && tperrno == TPEINVAL);
  CHECK(Blen(*ubf, NAME, 0) == 2001);
  CHECK(Bsizeof(*ubf) == 4096 && Bused(*ubf) + Bunused(*ubf) == 4096);
  CHECK(Bdel(*ubf, NAME, 0) == 0);
}

static void conversion(UBFH *ubf) {
  long number = 0;
  char text[32];
  BFLDLEN len = sizeof text;
  CHECK(CBadd(ubf, long_field, "4711", 0, BFLD_STRING) == 0);
  CHECK(Bget(ubf, long_field, 0, (char *)&number, NULL) == 0 && number == 4711);
  CHECK(CBget(ubf, long_field, 0, text, &len, BFLD_STRING) == 0 && strcmp(text, "4711") == 0);
  CHECK(len == 5);
  len = 4;
  CHECK(CBget(ubf, long_field, 0, text, &len, BFLD_STRING) == -1 && Berror == BNOSPACE);
  CHECK(CBadd(ubf, long_field, "1", 0, 99) == -1 && Berror == BTYPERR);
  CHECK(CBadd(ubf, long_field, NULL, 0, BFLD_STRING) == -1 && Berror == BEINVAL);
  CHECK(CBchg(ubf, long_field, 0, "12", 2, BFLD_CARRAY) == 0);
  CHECK(CBget(ubf, long_field, 0, NULL, NULL, BFLD_LONG) == -1 && Berror == BEINVAL);
  /* What is not a plain type is an error of its own, whatever the value and the field are. */
  static const int whole_types[] = {BFLD_UBF, BFLD_VIEW};
  for (int i = 0; i < 2; i++) {
    CHECK(CBget(ubf, long_field, 0, text, NULL, whole_types[i]) == -1 && Berror == BEBADOP);
    CHECK(CBget(ubf, long_field, 9, text, NULL, whole_types[i]) == -1 && Berror == BEBADOP);
    CHECK(CBadd(ubf, long_field, text, 0, whole_types[i]) == -1 && Berror == BEBADOP);
    CHECK(CBchg(ubf, long_field, 0, text, 0, whole_types[i]) == -1 && Berror == BEBADOP);
    CHECK(CBfind(ubf, long_field, 0, NULL, whole_types[i]) == NULL && Berror == BEBADOP);
    CHECK(CBfindocc(ubf, long_field, text, 0, whole_types[i]) == -1 && Berror == BEBADOP);
    CHECK(CBgetalloc(ubf, long_field, 0, whole_types[i], NULL) == NULL && Berror == BEBADOP);
    CHECK(Btypcvt(NULL, whole_types[i], "1", BFLD_STRING, 0) == NULL && Berror == BEBADOP);
    CHECK(Btypcvt(NULL, BFLD_STRING, "1", whole_types[i], 0) == NULL && Berror == BEBADOP);
  }
  BFLDID address = Bmkfldid(BFLD_PTR, 5), share = Bmkfldid(BFLD_FLOAT, 5);
  void *own = text;
  char expected[32];
  CHECK(CBadd(ubf, address, "0x12b", 0, BFLD_STRING) == 0);
  CHECK(CBget(ubf, address, 0, (char *)&number, NULL, BFLD_LONG) == 0 && number == 0x12b);
  CHECK(CBchg(ubf, address, 0, (char *)&own, 0, BFLD_PTR) == 0);
  CHECK(CBget(ubf, address, 0, text, NULL, BFLD_STRING) == 0);
  snprintf(expected, sizeof expected, "%#lx", (unsigned long)own);
  CHECK(strcmp(text, expected) == 0 && Bdelall(ubf, address) == 0);
  CHECK(CBadd(ubf, share, "2.5", 0, BFLD_STRING) == 0);
  CHECK(CBget(ubf, share, 0, text, NULL, BFLD_STRING) == 0 && strcmp(text, "2.50000") == 0);
  CHECK(CBchg(ubf, BALANCE, 0, "-1000000.1", 0, BFLD_STRING) == 0);
  CHECK(CBget(ubf, BALANCE, 0, text, NULL, BFLD_STRING) == 0);
  CHECK(strcmp(text, "-1000000.100000") == 0);
  CHECK(Bdelall(ubf, share) == 0 && Bdelall(ubf, BALANCE) == 0);
  CHECK(Bdelall(ubf, long_field) == 0);
}

static void whole(UBFH *ubf) {
  UBFH *other = (UBFH *)tpalloc("UBF", NULL, 2048);
  BFLDID list[] = {long_field, NAME, BBADFLDID}, only[] = {NAME, BBADFLDID};
  BFLDID id = BFIRSTFLDID;
  BFLDOCC occurrence = 0;
  long number = 7, sum = 0;
  int steps = 0, result;
  CHECK(Badd(ubf, NAME, "one", 0) == 0 && Badd(ubf, NAME, "two", 0) == 0);
  CHECK(Badd(ubf, long_field, (char *)&number, 0) == 0);
  CHECK(Badd(ubf, bytes_field, "\0\1\2", 3) == 0);
  CHECK(Bcpy(other, ubf) == 0 && Bnum(other) == 4);
  CHECK(Bconcat(other, ubf) == 0 && Boccur(other, NAME) == 4);
  CHECK(Bconcat(other, other) == 0 && Boccur(other, NAME) == 8);
  CHECK(Bcpy(other, other) == 0 && Bnum(other) == 16);
  CHECK(Bupdate(other, ubf) == 0 && Boccur(other, NAME) == 8);
  CHECK(Bproj(other, list) == 0 && Boccur(other, bytes_field) == 0 && Bnum(other) == 12);
  CHECK(Bprojcpy(other, ubf, only) == 0 && Bnum(other) == 2);
  CHECK(Bprojcpy(other, ubf, NULL) == 0 && Bnum(other) == 0);
  CHECK(Bcpy(other, ubf) == 0 && Bproj(other, NULL) == 0 && Bnum(other) == 0);
  CHECK(Bproj(other, (BFLDID *)8) == -1 && Berror == BEINVAL);
  CHECK(Bprojcpy(other, ubf, only) == 0 && Bnum(other) == 2);
  CHECK(Bcpy(other, NULL) == -1 && Berror == BNOTFLD);
  CHECK(Badd(ubf, inner_field, (char *)other, 0) == 0);
  CHECK(Badd(ubf, inner_field, NULL, 0) == -1 && Berror == BEINVAL);
  BFLDLEN len = -1;
  while ((result = Bnext(ubf, &id, &occurrence, NULL, &len)) == 1) {
    steps++;
    CHECK(len == Blen(ubf, id, occurrence));
    if (id == long_field) {
      CHECK(Bget(ubf, id, occurrence, (char *)&number, NULL) == 0);
      sum += number;
    }
  }
  CHECK(result == 0 && steps == 5 && sum == 7);
  CHECK(Bnext(ubf, NULL, &occurrence, NULL, NULL) == -1 && Berror == BEINVAL);
  CHECK(Bnext(ubf, &id, NULL, NULL, NULL) == -1 && Berror == BEINVAL);
  char *found = Bfind(ubf, inner_field, 0, NULL);
  CHECK(found != NULL && Bnum((UBFH *)found) == 2);
  CHECK(Bfprint(ubf, NULL) == -1 && Berror == BEINVAL);
  FILE *read_only = fopen("/dev/null", "r");
  CHECK(Bfprint(ubf, read_only) == -1 && Berror == BEUNIX);
  fclose(read_only);
  CHECK(Bprint(ubf) == 0);
  tpfree((char *)other);
}

static void names(void) {
  CHECK(Bfldid("T_ACCNUM") == NAME);
  CHECK(Bfname(NAME) != NULL && strcmp(Bfname(NAME), "T_ACCNUM") == 0);
  CHECK(Bfldid("NO_SUCH_FIELD") == BBADFLDID && Berror == BBADNAME);
  CHECK(Bfldid(NULL) == BBADFLDID && Berror == BEINVAL);
  CHECK(Bfldid("\xff") == BBADFLDID && Berror == BBADNAME);
  CHECK(Bfname(Bmkfldid(BFLD_LONG, 99)) == NULL && Berror == BBADNAME);
  CHECK(Bfname(0) == NULL && Berror == BBADFLD);
  CHECK(Bfldtype(0) == -1 && Berror == BBADFLD);
  CHECK(Bfldno(-5) == -1 && Berror == BBADFLD);
  CHECK(strncmp(Bstrerror(BNOTPRES), "5:BNOTPRES", 10) == 0);
  CHECK(Bstrerror(INT_MIN) != NULL);
}

int main(void) {
  bytes_field = Bmkfldid(BFLD_CARRAY, 7);
  long_field = Bmkfldid(BFLD_LONG, 8);
  inner_field = Bmkfldid(BFLD_UBF, 9);
  UBFH *ubf = (UBFH *)tpalloc("UBF", NULL, 1024);
  CHECK(Bsizeof(ubf) == 1024 && Bnum(ubf) == 0);
  memory_without_fields();
  moved_memory();
  headers_of_others();
  own_memory();
  own_values();
  one_value(ubf);
  growth(&ubf);
  conversion(ubf);
  whole(ubf);
  names();
  tpfree((char *)ubf);
  return failures != 0;
}
