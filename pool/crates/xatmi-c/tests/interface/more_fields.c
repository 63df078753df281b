/* Values by other ways than Bget, inner fields by their paths, memory of buffers, two buffers. */
#include <atmi.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <ubf.h>

#include "check.h"

static BFLDID text_field, bytes_field, long_field, short_field, double_field, inner_field;

static UBFH *buffer(void) { return (UBFH *)tpalloc("UBF", NULL, 4096); }

static void add_long(UBFH *ubf, BFLDID id, long number) {
  CHECK(Badd(ubf, id, (char *)&number, 0) == 0);
}

/* Each new function on memory that holds no fields. */
static void no_fields(UBFH *ubf, int error) {
  BFLDLEN len = 0;
  BFLDOCC occurrence = 0;
  char value[64];
  BFLDID path[] = {text_field, 0, BBADFLDOCC}, list[] = {text_field, BBADFLDID};
  Bfld_loc_info_t place = {NULL, 0, 0};
  UBFH *good = buffer();
  CHECK(Badds(ubf, text_field, "x") == -1 && Berror == error);
  CHECK(Bchgs(ubf, text_field, 0, "x") == -1 && Berror == error);
  CHECK(Bgets(ubf, text_field, 0, value) == -1 && Berror == error);
  CHECK(Bfinds(ubf, text_field, 0) == NULL && Berror == error);
  CHECK(Bgetsa(ubf, text_field, 0, &len) == NULL && Berror == error);
  CHECK(Bgetalloc(ubf, text_field, 0, &len) == NULL && Berror == error);
  CHECK(CBgetalloc(ubf, text_field, 0, BFLD_LONG, &len) == NULL && Berror == error);
  CHECK(CBfind(ubf, text_field, 0, &len, BFLD_LONG) == NULL && Berror == error);
  CHECK(Bfindlast(ubf, text_field, &occurrence, &len) == NULL && Berror == error);
  CHECK(Bgetlast(ubf, text_field, &occurrence, value, &len) == -1 && Berror == error);
  CHECK(Bfindocc(ubf, text_field, "x", 0) == -1 && Berror == error);
  CHECK(CBfindocc(ubf, text_field, "x", 0, BFLD_STRING) == -1 && Berror == error);
  CHECK(Baddfast(ubf, text_field, "x", 0, &place) == -1 && Berror == error);
  CHECK(Bgetr(ubf, path, value, &len) == -1 && Berror == error);
  CHECK(CBgetr(ubf, path, value, &len, BFLD_LONG) == -1 && Berror == error);
  CHECK(Bfindr(ubf, path, &len) == NULL && Berror == error);
  CHECK(CBfindr(ubf, path, &len, BFLD_LONG) == NULL && Berror == error);
  CHECK(Bpresr(ubf, path) == 0 && Berror == error);
  CHECK(Bjoin(ubf, good) == -1 && Berror == error);
  CHECK(Bjoin(good, ubf) == -1 && Berror == error);
  CHECK(Bojoin(ubf, good) == -1 && Berror == error);
  CHECK(Bojoin(good, ubf) == -1 && Berror == error);
  CHECK(Bdelete(ubf, list) == -1 && Berror == error);
  CHECK(Bmove(good, ubf) == -1 && Berror == error);
  CHECK(Brealloc(ubf, 1, 100) == NULL && Berror == error);
  CHECK(Bfree(ubf) == -1 && Berror == error);
  /* For these two NULL is an argument that is not valid. */
  int compared = ubf == NULL ? BEINVAL : error;
  CHECK(Bcmp(good, ubf) == -2 && Berror == compared);
  CHECK(Bcmp(ubf, good) == -2 && Berror == compared);
  CHECK(Bsubset(good, ubf) == -1 && Berror == compared);
  CHECK(Bsubset(ubf, good) == -1 && Berror == compared);
  CHECK(Bindex(ubf, 0) == 0 && Brstrindex(ubf, 0) == 0 && Berror == 0);
  CHECK(Bunindex(ubf) == 0 && Bidxused(ubf) == 0 && Berror == 0);
  tpfree((char *)good);
}

static void memory_without_fields(void) {
  static long long zeros[16];
  no_fields(NULL, BNOTFLD);
  no_fields((UBFH *)zeros, BNOTFLD);
  no_fields((UBFH *)STRAY, BNOTFLD);
  no_fields((UBFH *)((char *)zeros + 4), BALIGNERR);
}

static void as_text(void) {
  UBFH *ubf = buffer(), *small = Balloc(1, 8);
  char text[64];
  CHECK(Badds(ubf, long_field, "4711") == 0 && Badds(ubf, text_field, "one") == 0);
  CHECK(Badds(ubf, text_field, NULL) == -1 && Berror == BEINVAL);
  CHECK(Badds(ubf, 0, "x") == -1 && Berror == BBADFLD);
  CHECK(Badds(ubf, inner_field, "x") == -1 && Berror == BEBADOP);
  CHECK(Badds(small, text_field, "a text that is too long for this one") == -1);
  CHECK(Berror == BNOSPACE);
  CHECK(Bchgs(ubf, long_field, 1, "12") == 0 && Bchgs(ubf, long_field, -2, "1") == -1);
  CHECK(Berror == BEINVAL && Bchgs(ubf, 0, 0, "1") == -1 && Berror == BBADFLD);
  CHECK(Bchgs(small, text_field, 0, "a text that is too long for this one") == -1);
  CHECK(Berror == BNOSPACE);
  CHECK(Bgets(ubf, long_field, 1, text) == 0 && strcmp(text, "12") == 0);
  CHECK(Bgets(ubf, long_field, 2, text) == -1 && Berror == BNOTPRES);
  CHECK(Bgets(ubf, 0, 0, text) == -1 && Berror == BBADFLD);
  CHECK(Bgets(ubf, long_field, 0, NULL) == -1 && Berror == BEINVAL);
  CHECK(strcmp(Bfinds(ubf, long_field, 0), "4711") == 0);
  CHECK(strcmp(Bfinds(ubf, text_field, 0), "one") == 0);
  CHECK(Bfinds(ubf, text_field, 1) == NULL && Berror == BNOTPRES);
  BFLDLEN extra = 100;
  char *copy = Bgetsa(ubf, long_field, 0, &extra);
  CHECK(copy != NULL && strcmp(copy, "4711") == 0 && extra == 5);
  memset(copy + extra, 'x', 100);
  free(copy);
  CHECK(Bgetsa(ubf, long_field, 9, &extra) == NULL && Berror == BNOTPRES);
  tpfree((char *)ubf);
  CHECK(Bfree(small) == 0);
}

static void copies(void) {
  UBFH *ubf = buffer();
  BFLDLEN len = 3;
  BFLDOCC occurrence = 7;
  char value[64];
  add_long(ubf, long_field, 65);
  CHECK(Badd(ubf, bytes_field, "\0\1\2", 3) == 0 && Badd(ubf, bytes_field, "", 0) == 0);
  char *copy = Bgetalloc(ubf, bytes_field, 0, &len);
  CHECK(copy != NULL && len == 3 && memcmp(copy, "\0\1\2", 3) == 0);
  free(copy);
  copy = Bgetalloc(ubf, bytes_field, 1, NULL);
  CHECK(copy != NULL);
  free(copy);
  len = -1;
  CHECK(Bgetalloc(ubf, bytes_field, 0, &len) == NULL && Berror == BEINVAL);
  CHECK(Bgetalloc(ubf, bytes_field, 2, NULL) == NULL && Berror == BNOTPRES);
  CHECK(Bgetalloc(ubf, 0, 0, NULL) == NULL && Berror == BBADFLD);
  CHECK(CBgetalloc(ubf, 0, 0, BFLD_LONG, NULL) == NULL && Berror == BBADFLD);
  CHECK(CBgetalloc(ubf, long_field, 0, 99, NULL) == NULL && Berror == BTYPERR);
  CHECK(CBgetalloc(ubf, long_field, 1, BFLD_SHORT, NULL) == NULL && Berror == BNOTPRES);
  copy = CBgetalloc(ubf, long_field, 0, BFLD_DOUBLE, NULL);
  double number = 0;
  if (copy != NULL) memcpy(&number, copy, sizeof number);
  CHECK(number == 65);
  free(copy);

  len = 0;
  char *found = CBfind(ubf, long_field, 0, &len, BFLD_DOUBLE);
  CHECK(found != NULL && (size_t)found % 8 == 0 && len == 8 && *(double *)found == 65);
  /* Each type has a place of its own. */
  char *as_short = CBfind(ubf, long_field, 0, NULL, BFLD_SHORT), *as_text = CBfind(ubf, long_field, 0, NULL, BFLD_STRING);
  CHECK(as_short != NULL && as_text != NULL && strcmp(as_text, "65") == 0);
  CHECK(*(short *)as_short == 65 && *(double *)found == 65);
  CHECK(CBfind(ubf, long_field, 0, NULL, 99) == NULL && Berror == BTYPERR);
  CHECK(CBfind(ubf, long_field, 1, NULL, BFLD_SHORT) == NULL && Berror == BNOTPRES);
  CHECK(CBfind(ubf, 0, 0, NULL, BFLD_SHORT) == NULL && Berror == BBADFLD);
  CHECK(CBfind(ubf, long_field, 0, NULL, BFLD_UBF) == NULL && Berror == BEBADOP);

  /* What was printed is in the file at once. */
  FILE *printed = tmpfile();
  struct stat state;
  CHECK(printed != NULL && Bfprint(ubf, printed) == 0);
  CHECK(fstat(fileno(printed), &state) == 0 && state.st_size > 0);
  fclose(printed);

  add_long(ubf, long_field, 66);
  found = Bfindlast(ubf, long_field, &occurrence, &len);
  CHECK(found != NULL && *(long *)found == 66 && occurrence == 1 && len == 8);
  CHECK(Bfindlast(ubf, long_field, NULL, NULL) == found);
  CHECK(Bfindlast(ubf, short_field, NULL, NULL) == NULL && Berror == BNOTPRES);
  CHECK(Bfindlast(ubf, 0, NULL, NULL) == NULL && Berror == BBADFLD);
  long last = 0;
  occurrence = 7;
  CHECK(Bgetlast(ubf, long_field, &occurrence, (char *)&last, NULL) == 0);
  CHECK(last == 66 && occurrence == 1);
  len = 7;
  CHECK(Bgetlast(ubf, long_field, NULL, value, &len) == -1 && Berror == BNOSPACE);
  CHECK(Bgetlast(ubf, long_field, NULL, NULL, NULL) == -1 && Berror == BEINVAL);
  CHECK(Bgetlast(ubf, short_field, NULL, value, NULL) == -1 && Berror == BNOTPRES);
  CHECK(Bgetlast(ubf, 0, NULL, value, NULL) == -1 && Berror == BBADFLD);
  tpfree((char *)ubf);
}

static void found_by_value(void) {
  UBFH *ubf = buffer();
  long wanted = 2;
  for (long i = 0; i < 4; i++) add_long(ubf, long_field, i % 3);
  CHECK(Badds(ubf, text_field, "one") == 0 && Badds(ubf, text_field, "two") == 0);
  CHECK(Badd(ubf, bytes_field, "ab", 2) == 0 && Badd(ubf, bytes_field, "abc", 3) == 0);
  CHECK(Bfindocc(ubf, long_field, (char *)&wanted, 0) == 2);
  CHECK(Bfindocc(ubf, text_field, "two", 0) == 1 && Bfindocc(ubf, bytes_field, "abc", 3) == 1);
  CHECK(Bfindocc(ubf, bytes_field, "abc", 1) == -1 && Berror == BNOTPRES);
  CHECK(Bfindocc(ubf, text_field, "three", 0) == -1 && Berror == BNOTPRES);
  CHECK(Bfindocc(ubf, text_field, NULL, 0) == -1 && Berror == BEINVAL);
  CHECK(Bfindocc(ubf, bytes_field, "x", -1) == -1 && Berror == BEINVAL);
  CHECK(Bfindocc(ubf, 0, "x", 0) == -1 && Berror == BBADFLD);
  CHECK(CBfindocc(ubf, long_field, "2", 0, BFLD_STRING) == 2);
  CHECK(CBfindocc(ubf, long_field, "7", 0, BFLD_STRING) == -1 && Berror == BNOTPRES);
  CHECK(CBfindocc(ubf, long_field, NULL, 0, BFLD_STRING) == -1 && Berror == BEINVAL);
  CHECK(CBfindocc(ubf, long_field, "2", 0, 99) == -1 && Berror == BTYPERR);
  CHECK(CBfindocc(ubf, 0, "2", 0, BFLD_STRING) == -1 && Berror == BBADFLD);
  CHECK(CBfindocc(ubf, inner_field, "2", 0, BFLD_STRING) == -1 && Berror == BEBADOP);
  tpfree((char *)ubf);
}

static void converted(void) {
  BFLDLEN len = 0;
  char *text = Btypcvt(&len, BFLD_STRING, (char *)&(long){-12}, BFLD_LONG, 0);
  CHECK(text != NULL && strcmp(text, "-12") == 0 && len == 4);
  free(text);
  char *number = Btypcvt(NULL, BFLD_LONG, "123", BFLD_CARRAY, 2);
  CHECK(number != NULL && *(long *)number == 12);
  free(number);
  CHECK(Btypcvt(&len, 99, "1", BFLD_STRING, 0) == NULL && Berror == BTYPERR);
  CHECK(Btypcvt(&len, BFLD_LONG, "1", 99, 0) == NULL && Berror == BTYPERR);
  CHECK(Btypcvt(&len, BFLD_LONG, NULL, BFLD_STRING, 0) == NULL && Berror == BEINVAL);
  CHECK(Btypcvt(&len, BFLD_LONG, "1", BFLD_CARRAY, -1) == NULL && Berror == BEINVAL);
  CHECK(strcmp(Btype(text_field), "string") == 0 && strcmp(Btype(bytes_field), "carray") == 0);
  CHECK(strcmp(Btype(short_field), "short") == 0 && strcmp(Btype(inner_field), "ubf") == 0);
  CHECK(strcmp(Btype(double_field), "double") == 0 && strcmp(Btype(long_field), "long") == 0);
  CHECK(Btype((12 << 25) | 1) == NULL && Berror == BTYPERR);
  CHECK(Btype(-1) == NULL && Berror == BTYPERR);
  CHECK(Btype(0) == NULL && Berror == BBADFLD);
}

static void added_fast(void) {
  UBFH *fast = Balloc(3000, 40000), *slow = Balloc(3000, 40000), *small = Balloc(1, 8);
  Bfld_loc_info_t place;
  memset(&place, 0, sizeof place);
  add_long(fast, double_field - 1, 0);
  add_long(slow, double_field - 1, 0);
  CHECK(Badds(fast, bytes_field, "behind") == 0 && Badds(slow, bytes_field, "behind") == 0);
  for (int i = 0; i < 1000; i++) {
    char text[16];
    snprintf(text, sizeof text, "%d", i);
    CHECK(Baddfast(fast, text_field + i / 500, text, 0, &place) == 0);
    CHECK(Badd(slow, text_field + i / 500, text, 0) == 0);
  }
  CHECK(Bcmp(fast, slow) == 0 && Bnum(fast) == 1002);
  CHECK(Baddfast(fast, text_field, "x", 0, &place) == -1 && Berror == BEINVAL);
  CHECK(Baddfast(fast, text_field, "x", 0, NULL) == -1 && Berror == BEINVAL);
  CHECK(Baddfast(fast, 0, "x", 0, &place) == -1 && Berror == BBADFLD);
  /* A place that does not hold any more is found out. */
  CHECK(Bdelall(fast, text_field + 1) == 0 && Bdelall(slow, text_field + 1) == 0);
  CHECK(Baddfast(fast, text_field + 1, "x", 0, &place) == 0);
  CHECK(Badds(slow, text_field + 1, "x") == 0 && Bcmp(fast, slow) == 0);
  /* So is that of another buffer, and one that the program made up. */
  place.at = 8 * (place.at / 16);
  CHECK(Baddfast(fast, text_field + 2, "y", 0, &place) == 0);
  CHECK(Baddfast(slow, text_field + 2, "y", 0, &place) == 0);
  CHECK(Bcmp(fast, slow) == 0);
  memset(&place, 0, sizeof place);
  CHECK(Baddfast(small, text_field, "longer than there is room for it", 0, &place) == -1);
  CHECK(Berror == BNOSPACE && place.at == 0 && Bnum(small) == 0);
  CHECK(Bfree(fast) == 0 && Bfree(slow) == 0 && Bfree(small) == 0);
}

static void paths(void) {
  UBFH *outer = buffer(), *middle = buffer(), *inmost = buffer();
  char value[64];
  BFLDLEN len = sizeof value;
  CHECK(Badds(inmost, text_field, "ONE") == 0 && Badds(inmost, text_field, "12") == 0);
  CHECK(Badd(middle, inner_field, (char *)inmost, 0) == 0);
  CHECK(Badd(outer, inner_field, (char *)inmost, 0) == 0);
  CHECK(Badd(outer, inner_field, (char *)middle, 0) == 0);
  CHECK(Badds(outer, text_field, "outer") == 0);
  BFLDID deep[] = {inner_field, 1, inner_field, 0, text_field, 1, BBADFLDOCC}, last[] = {text_field, -1, BBADFLDOCC};
  BFLDID flat[] = {text_field, 0, BBADFLDOCC}, none[] = {BBADFLDOCC};
  BFLDID absent[] = {inner_field, 7, text_field, 0, BBADFLDOCC};
  BFLDID no_buffer[] = {text_field, 0, text_field, 0, BBADFLDOCC};
  BFLDID wrong[] = {inner_field, 0, 0, 0, BBADFLDOCC};
  CHECK(Bgetr(outer, deep, value, &len) == 0 && strcmp(value, "12") == 0 && len == 3);
  CHECK(Bgetr(outer, flat, value, NULL) == 0 && strcmp(value, "outer") == 0);
  long number = 0;
  CHECK(CBgetr(outer, deep, (char *)&number, NULL, BFLD_LONG) == 0 && number == 12);
  CHECK(strcmp(Bfindr(outer, deep, &len), "12") == 0 && len == 3);
  CHECK(*(long *)CBfindr(outer, deep, &len, BFLD_LONG) == 12 && len == 8);
  CHECK(Bpresr(outer, deep) == 1 && Bpresr(outer, absent) == 0 && Berror == 0);
  CHECK(Bgetrv(outer, value, NULL, inner_field, 0, text_field, 0, BBADFLDOCC) == 0);
  CHECK(strcmp(value, "ONE") == 0);
  CHECK(CBgetrv(outer, (char *)&number, NULL, BFLD_LONG, text_field, 0, BBADFLDOCC) == 0);
  CHECK(number == 0);
  CHECK(strcmp(Bfindrv(outer, NULL, inner_field, 0, text_field, 0, BBADFLDOCC), "ONE") == 0);
  char *found = CBfindrv(outer, NULL, BFLD_SHORT, inner_field, 0, text_field, 1, BBADFLDOCC);
  CHECK(found != NULL && *(short *)found == 12);
  CHECK(Bpresrv(outer, inner_field, 1, inner_field, 0, BBADFLDOCC) == 1);
  CHECK(Bpresrv(outer, inner_field, 1, inner_field, 1, BBADFLDOCC) == 0);
  CHECK(Bgetr(outer, absent, value, NULL) == -1 && Berror == BNOTPRES);
  CHECK(Bgetr(outer, none, value, NULL) == -1 && Berror == BBADFLD);
  CHECK(Bgetr(outer, NULL, value, NULL) == -1 && Berror == BEINVAL);
  /* -1 is the end, also in the place of an occurrence. */
  CHECK(Bgetr(outer, last, value, NULL) == -1 && Berror == BBADFLD);
  CHECK(Bgetr(outer, no_buffer, value, NULL) == -1 && Berror == BEBADOP);
  CHECK(Bgetr(outer, wrong, value, NULL) == -1 && Berror == BBADFLD);
  CHECK(Bgetr(outer, deep, NULL, NULL) == -1 && Berror == BEINVAL);
  len = 2;
  CHECK(Bgetr(outer, deep, value, &len) == -1 && Berror == BNOSPACE);
  CHECK(CBgetr(outer, deep, value, NULL, 99) == -1 && Berror == BTYPERR);
  CHECK(CBgetr(outer, absent, value, NULL, BFLD_LONG) == -1 && Berror == BNOTPRES);
  CHECK(Bfindr(outer, absent, NULL) == NULL && Berror == BNOTPRES);
  CHECK(CBfindr(outer, absent, NULL, BFLD_LONG) == NULL && Berror == BNOTPRES);
  CHECK(CBfindr(outer, deep, NULL, 99) == NULL && Berror == BTYPERR);
  CHECK(Bpresr(outer, none) == 0 && Berror == BBADFLD);

  /* 16 buffers within one another are the most that there can be; so are 17 pairs of a path. */
  BFLDID longest[36];
  UBFH *nested = buffer(), *next = buffer();
  CHECK(Badds(nested, text_field, "deep") == 0);
  for (int i = 0; i < 16; i++) {
    CHECK(Binit(next, 4096) == 0 && Badd(next, inner_field, (char *)nested, 0) == 0);
    CHECK(Bcpy(nested, next) == 0);
    longest[2 * i] = inner_field;
    longest[2 * i + 1] = 0;
  }
  longest[32] = text_field;
  longest[33] = 0;
  longest[34] = BBADFLDOCC;
  CHECK(strcmp(Bfindr(nested, longest, NULL), "deep") == 0);
  longest[34] = longest[35] = 0;
  CHECK(Bfindr(nested, longest, NULL) == NULL && Berror == BBADFLD);
#define FOUR inner_field, 0, inner_field, 0, inner_field, 0, inner_field, 0
  found = Bfindrv(nested, NULL, FOUR, FOUR, FOUR, FOUR, text_field, 0, BBADFLDOCC);
  CHECK(found != NULL && strcmp(found, "deep") == 0);
  CHECK(Bfindrv(nested, NULL, FOUR, FOUR, FOUR, FOUR, FOUR, text_field, 0, BBADFLDOCC) == NULL);
  CHECK(Berror == BBADFLD);
  UBFH *all[] = {outer, middle, inmost, nested, next};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) tpfree((char *)all[i]);
}

static void memory(void) {
  CHECK(Bneeded(0, 1) == -1 && Berror == BEINVAL);
  CHECK(Bneeded(1, 0) == -1 && Berror == BEINVAL);
  CHECK(Bneeded(INT_MAX, INT_MAX) == -1 && Berror == BEINVAL);
  CHECK(Balloc(INT_MAX, INT_MAX) == NULL && Berror == BEINVAL);
  CHECK(Balloc(-1, 10) == NULL && Berror == BEINVAL);
  for (int fields = 2; fields < 40; fields++) {
    /* Values of 1 byte waste most. */
    UBFH *ubf = Balloc(fields, fields);
    CHECK(ubf != NULL && Bsizeof(ubf) == Bneeded(fields, fields));
    for (int i = 0; i < fields; i++) CHECK(Badd(ubf, bytes_field, "x", 1) == 0);
    CHECK(Brealloc(ubf, 1, 1) == NULL && Berror == BEINVAL && Bnum(ubf) == fields);
    ubf = Brealloc(ubf, 100, 1000);
    CHECK(ubf != NULL && Bnum(ubf) == fields && Bsizeof(ubf) == Bneeded(100, 1000));
    CHECK(Bfree(ubf) == 0 && Bfree(ubf) == -1 && Berror == BNOTFLD);
  }
  UBFH *sent = Balloc(1, 1);
  CHECK(Brealloc(sent, 0, 1) == NULL && Berror == BEINVAL);
  CHECK(tptypes((char *)sent, NULL, NULL) == Bsizeof(sent));
  tpfree((char *)sent);
  static long long own[16];
  CHECK(Binit((UBFH *)own, sizeof own) == 0 && Bfree((UBFH *)own) == -1 && Berror == BNOTFLD);
}

static void two_buffers(void) {
  UBFH *one = buffer(), *two = buffer(), *small = Balloc(1, 1);
  BFLDID list[] = {text_field, short_field, BBADFLDID};
  for (long i = 0; i < 3; i++) add_long(one, long_field, i);
  CHECK(Badds(one, text_field, "x") == 0);
  CHECK(Bcpy(two, one) == 0 && Bcmp(one, two) == 0 && Bsubset(one, two) == 1);
  CHECK(Bchgs(two, long_field, 1, "7") == 0);
  CHECK(Bcmp(one, two) == -1 && Bcmp(two, one) == 1 && Bsubset(one, two) == 0);
  CHECK(Bcpy(two, one) == 0 && Bdel(two, long_field, 2) == 0 && Bsubset(one, two) == 1);
  CHECK(Bsubset(two, one) == 0 && Berror == 0 && Bcmp(one, two) == -1);
  /* Of an inner buffer a part is enough. */
  CHECK(Badd(one, inner_field, (char *)one, 0) == 0 && Badd(two, inner_field, (char *)two, 0) == 0);
  CHECK(Bsubset(one, two) == 1 && Bsubset(two, one) == 0);

  CHECK(Bdelall(one, inner_field) == 0 && Bdelall(two, inner_field) == 0);
  CHECK(Bchgs(two, long_field, 0, "70") == 0 && Badds(two, short_field, "5") == 0);
  UBFH *joined = buffer();
  CHECK(Bcpy(joined, one) == 0 && Bjoin(joined, two) == 0 && Bnum(joined) == 3);
  CHECK(strcmp(Bfinds(joined, long_field, 0), "70") == 0 && Boccur(joined, long_field) == 2);
  CHECK(Bcpy(joined, one) == 0 && Bojoin(joined, two) == 0 && Bnum(joined) == 4);
  CHECK(strcmp(Bfinds(joined, long_field, 0), "70") == 0 && Boccur(joined, long_field) == 3);
  CHECK(Bpres(joined, short_field, 0) == 0);
  CHECK(Bdelete(two, list) == 0 && Bnum(two) == 2 && Bpres(two, text_field, 0) == 0);
  CHECK(Bdelete(two, NULL) == -1 && Berror == BEINVAL);
  list[0] = -5;
  CHECK(Bdelete(two, list) == -1 && Berror == BBADFLD);

  long long plain[64];
  memset(plain, 'x', sizeof plain);
  CHECK(Bmove(plain, one) == 0 && Bcmp((UBFH *)plain, one) == 0);
  CHECK(Bsizeof((UBFH *)plain) == Bused(one) && ((char *)plain)[Bused(one)] == 'x');
  CHECK(Bmove(two, one) == 0 && Bcmp(two, one) == 0 && Bsizeof(two) == 4096);
  CHECK(Bmove(two, two) == 0 && Bcmp(two, one) == 0);
  CHECK(Bmove(small, one) == -1 && Berror == BNOSPACE && Bnum(small) == 0);
  CHECK(Bmove(NULL, one) == -1 && Berror == BEINVAL);
  CHECK(Bmove((char *)plain + 4, one) == -1 && Berror == BALIGNERR);
  UBFH *all[] = {one, two, small, joined};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) tpfree((char *)all[i]);
}

int main(void) {
  short_field = Bmkfldid(BFLD_SHORT, 5);
  long_field = Bmkfldid(BFLD_LONG, 8);
  double_field = Bmkfldid(BFLD_DOUBLE, 3);
  text_field = Bmkfldid(BFLD_STRING, 6);
  bytes_field = Bmkfldid(BFLD_CARRAY, 7);
  inner_field = Bmkfldid(BFLD_UBF, 9);
  memory_without_fields();
  as_text();
  copies();
  found_by_value();
  converted();
  added_fast();
  paths();
  memory();
  two_buffers();
  return failures != 0;
}
