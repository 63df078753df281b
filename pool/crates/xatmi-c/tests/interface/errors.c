/* Errors of ubf.h, function by function: those that docs/reference/xatmi.md names and no other program has. */
#include <atmi.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <ubf.h>
#include <userlog.h>
#include <ndebug.h>

#include "check.h"

/* What the macros below put in the place of a good buffer and a good id. */
static UBFH *ubf;
static BFLDID id;
static long long zeros[16];
static BFLDID text_field, bytes_field, long_field, inner_field;
static char text[128];
static BFLDLEN room;
static BFLDOCC occurrence;

/* A call with `ubf` that is not that of a buffer of fields. */
#define NOT_A_BUFFER(call, failed)                           \
  do {                                                       \
    UBFH *good_buffer = ubf;                                 \
    ubf = NULL;                                              \
    CHECK((call) == (failed) && Berror == BNOTFLD);          \
    ubf = (UBFH *)((char *)zeros + 4);                       \
    CHECK((call) == (failed) && Berror == BALIGNERR);        \
    ubf = good_buffer;                                       \
  } while (0)

/* A call with `id` that is not one. */
#define NOT_A_FIELD(call, failed)                            \
  do {                                                       \
    id = 0;                                                  \
    CHECK((call) == (failed) && Berror == BBADFLD);          \
    id = -7;                                                 \
    CHECK((call) == (failed) && Berror == BBADFLD);          \
  } while (0)

/* A call with an occurrence that cannot be. */
#define NOT_AN_OCCURRENCE(call, failed) CHECK((call) == (failed) && Berror == BEINVAL)
#define NOT_PRESENT(call, failed) CHECK((call) == (failed) && Berror == BNOTPRES)
#define NO_ROOM(call, failed) CHECK((call) == (failed) && Berror == BNOSPACE)
#define NOT_A_TYPE(call, failed) CHECK((call) == (failed) && Berror == BTYPERR)
#define NOT_CONVERTED(call, failed) CHECK((call) == (failed) && Berror == BEBADOP)
#define NOT_SOUND(call, failed) CHECK((call) == (failed) && Berror == BEINVAL)

static void buffers_that_are_none(void) {
  UBFH *other = (UBFH *)tpalloc("UBF", NULL, 0);
  BFLDID path[] = {long_field, 0, BBADFLDOCC}, list[] = {long_field, BBADFLDID};
  BFLDID next = BFIRSTFLDID;
  Bfld_loc_info_t place = {0};
  NOT_A_BUFFER(Badd(ubf, text_field, "x", 0), -1);
  NOT_A_BUFFER(Bchg(ubf, text_field, 0, "x", 0), -1);
  NOT_A_BUFFER(Baddfast(ubf, text_field, "x", 0, &place), -1);
  NOT_A_BUFFER(CBadd(ubf, text_field, "x", 0, BFLD_STRING), -1);
  NOT_A_BUFFER(CBchg(ubf, text_field, 0, "x", 0, BFLD_STRING), -1);
  NOT_A_BUFFER(Badds(ubf, text_field, "x"), -1);
  NOT_A_BUFFER(Bchgs(ubf, text_field, 0, "x"), -1);
  NOT_A_BUFFER(Bget(ubf, text_field, 0, text, NULL), -1);
  NOT_A_BUFFER(Bgetlast(ubf, text_field, NULL, text, NULL), -1);
  NOT_A_BUFFER(CBget(ubf, text_field, 0, text, NULL, BFLD_STRING), -1);
  NOT_A_BUFFER(Bgets(ubf, text_field, 0, text), -1);
  NOT_A_BUFFER(Bdel(ubf, text_field, 0), -1);
  NOT_A_BUFFER(Bdelall(ubf, text_field), -1);
  NOT_A_BUFFER(Bfindlast(ubf, text_field, NULL, NULL), NULL);
  NOT_A_BUFFER(Bpres(ubf, text_field, 0), 0);
  NOT_A_BUFFER(Boccur(ubf, text_field), -1);
  NOT_A_BUFFER(Blen(ubf, text_field, 0), -1);
  NOT_A_BUFFER(Bfind(ubf, text_field, 0, NULL), NULL);
  NOT_A_BUFFER(Bgetalloc(ubf, text_field, 0, NULL), NULL);
  NOT_A_BUFFER(CBgetalloc(ubf, text_field, 0, BFLD_LONG, NULL), NULL);
  NOT_A_BUFFER(Bgetsa(ubf, text_field, 0, NULL), NULL);
  NOT_A_BUFFER(CBfind(ubf, text_field, 0, NULL, BFLD_LONG), NULL);
  NOT_A_BUFFER(Bfinds(ubf, text_field, 0), NULL);
  NOT_A_BUFFER(Bfindocc(ubf, text_field, "x", 0), -1);
  NOT_A_BUFFER(CBfindocc(ubf, text_field, "x", 0, BFLD_STRING), -1);
  NOT_A_BUFFER(Bgetr(ubf, path, text, NULL), -1);
  NOT_A_BUFFER(Bgetrv(ubf, text, NULL, long_field, 0, BBADFLDOCC), -1);
  NOT_A_BUFFER(CBgetr(ubf, path, text, NULL, BFLD_STRING), -1);
  NOT_A_BUFFER(CBgetrv(ubf, text, NULL, BFLD_STRING, long_field, 0, BBADFLDOCC), -1);
  NOT_A_BUFFER(Bfindr(ubf, path, NULL), NULL);
  NOT_A_BUFFER(Bfindrv(ubf, NULL, long_field, 0, BBADFLDOCC), NULL);
  NOT_A_BUFFER(CBfindr(ubf, path, NULL, BFLD_STRING), NULL);
  NOT_A_BUFFER(CBfindrv(ubf, NULL, BFLD_STRING, long_field, 0, BBADFLDOCC), NULL);
  NOT_A_BUFFER(Bpresr(ubf, path), 0);
  NOT_A_BUFFER(Bpresrv(ubf, long_field, 0, BBADFLDOCC), 0);
  NOT_A_BUFFER(Bnext(ubf, &next, &occurrence, text, NULL), -1);
  NOT_A_BUFFER(Bnum(ubf), -1);
  NOT_A_BUFFER(Bsizeof(ubf), -1);
  NOT_A_BUFFER(Bused(ubf), -1);
  NOT_A_BUFFER(Bunused(ubf), -1);
  NOT_A_BUFFER(Bprint(ubf), -1);
  NOT_A_BUFFER(Bfprint(ubf, stderr), -1);
  NOT_A_BUFFER(Bcpy(ubf, other), -1);
  NOT_A_BUFFER(Bcpy(other, ubf), -1);
  NOT_A_BUFFER(Bupdate(ubf, other), -1);
  NOT_A_BUFFER(Bupdate(other, ubf), -1);
  NOT_A_BUFFER(Bconcat(ubf, other), -1);
  NOT_A_BUFFER(Bconcat(other, ubf), -1);
  NOT_A_BUFFER(Bjoin(ubf, other), -1);
  NOT_A_BUFFER(Bjoin(other, ubf), -1);
  NOT_A_BUFFER(Bojoin(ubf, other), -1);
  NOT_A_BUFFER(Bojoin(other, ubf), -1);
  NOT_A_BUFFER(Bproj(ubf, list), -1);
  NOT_A_BUFFER(Bprojcpy(ubf, other, list), -1);
  NOT_A_BUFFER(Bprojcpy(other, ubf, list), -1);
  NOT_A_BUFFER(Bdelete(ubf, list), -1);
  NOT_A_BUFFER(Bmove(other, ubf), -1);
  NOT_A_BUFFER(Brealloc(ubf, 10, 10), NULL);
  NOT_A_BUFFER(Bfree(ubf), -1);
  /* Two that compare tell a NULL from memory without fields. */
  UBFH *empty = (UBFH *)zeros, *odd = (UBFH *)((char *)zeros + 4);
  CHECK(Bcmp(empty, ubf) == -2 && Berror == BNOTFLD);
  CHECK(Bcmp(ubf, odd) == -2 && Berror == BALIGNERR);
  CHECK(Bcmp(NULL, ubf) == -2 && Berror == BEINVAL);
  CHECK(Bsubset(empty, ubf) == -1 && Berror == BNOTFLD);
  CHECK(Bsubset(ubf, odd) == -1 && Berror == BALIGNERR);
  CHECK(Bsubset(ubf, NULL) == -1 && Berror == BEINVAL);
  tpfree((char *)other);
}

static void fields_that_are_none(void) {
  Bfld_loc_info_t place = {0};
  NOT_A_FIELD(Badd(ubf, id, "x", 0), -1);
  NOT_A_FIELD(Bchg(ubf, id, 0, "x", 0), -1);
  NOT_A_FIELD(Baddfast(ubf, id, "x", 0, &place), -1);
  NOT_A_FIELD(CBadd(ubf, id, "x", 0, BFLD_STRING), -1);
  NOT_A_FIELD(CBchg(ubf, id, 0, "x", 0, BFLD_STRING), -1);
  NOT_A_FIELD(Badds(ubf, id, "x"), -1);
  NOT_A_FIELD(Bchgs(ubf, id, 0, "x"), -1);
  NOT_A_FIELD(Bget(ubf, id, 0, text, NULL), -1);
  NOT_A_FIELD(Bgetlast(ubf, id, NULL, text, NULL), -1);
  NOT_A_FIELD(CBget(ubf, id, 0, text, NULL, BFLD_STRING), -1);
  NOT_A_FIELD(Bgets(ubf, id, 0, text), -1);
  NOT_A_FIELD(Bdel(ubf, id, 0), -1);
  NOT_A_FIELD(Bdelall(ubf, id), -1);
  NOT_A_FIELD(Bfindlast(ubf, id, NULL, NULL), NULL);
  NOT_A_FIELD(Bpres(ubf, id, 0), 0);
  NOT_A_FIELD(Boccur(ubf, id), -1);
  NOT_A_FIELD(Blen(ubf, id, 0), -1);
  NOT_A_FIELD(Bfind(ubf, id, 0, NULL), NULL);
  NOT_A_FIELD(Bgetalloc(ubf, id, 0, NULL), NULL);
  NOT_A_FIELD(CBgetalloc(ubf, id, 0, BFLD_LONG, NULL), NULL);
  NOT_A_FIELD(Bgetsa(ubf, id, 0, NULL), NULL);
  NOT_A_FIELD(CBfind(ubf, id, 0, NULL, BFLD_LONG), NULL);
  NOT_A_FIELD(Bfinds(ubf, id, 0), NULL);
  NOT_A_FIELD(Bfindocc(ubf, id, "x", 0), -1);
  NOT_A_FIELD(CBfindocc(ubf, id, "x", 0, BFLD_STRING), -1);
  NOT_A_FIELD(Bgetrv(ubf, text, NULL, id, 0, BBADFLDOCC), -1);
  NOT_A_FIELD(CBgetrv(ubf, text, NULL, BFLD_STRING, id, 0, BBADFLDOCC), -1);
  NOT_A_FIELD(Bfindrv(ubf, NULL, id, 0, BBADFLDOCC), NULL);
  NOT_A_FIELD(CBfindrv(ubf, NULL, BFLD_STRING, id, 0, BBADFLDOCC), NULL);
  NOT_A_FIELD(Bpresrv(ubf, id, 0, BBADFLDOCC), 0);
  BFLDID path[] = {-7, 0, BBADFLDOCC}, list[] = {text_field, -7, BBADFLDID}, next = -7;
  CHECK(CBgetr(ubf, path, text, NULL, BFLD_LONG) == -1 && Berror == BBADFLD);
  CHECK(CBfindr(ubf, path, NULL, BFLD_LONG) == NULL && Berror == BBADFLD);
  CHECK(Bproj(ubf, list) == -1 && Berror == BBADFLD);
  CHECK(Bprojcpy(ubf, ubf, list) == -1 && Berror == BBADFLD);
  CHECK(Bnext(ubf, &next, &occurrence, text, NULL) == -1 && Berror == BBADFLD);
  CHECK(Bflddbload() == 0 && Bflddbunlink() == 0);
  Bflddbunload();
  CHECK(Bflddbid("T_NAME") == BBADFLDID && Berror == BBADNAME);
  CHECK(Bflddbid("") == BBADFLDID && Berror == BEINVAL);
  CHECK(Bflddbname(id) == NULL && Berror == BBADNAME);
  CHECK(Btype(0) == NULL && Berror == BBADFLD);
  CHECK(Bmkfldid(BFLD_LONG, 0) == BBADFLDID && Berror == BBADFLD);
  CHECK(Bmkfldid(BFLD_LONG, BMAXFLDNO + 1) == BBADFLDID && Berror == BBADFLD);
  CHECK(Bmkfldid(99, 5) == BBADFLDID && Berror == BTYPERR);
}

static void values_that_are_not_there(void) {
  BFLDID path[] = {long_field, 3, BBADFLDOCC};
  NOT_AN_OCCURRENCE(CBchg(ubf, long_field, -2, "1", 0, BFLD_STRING), -1);
  NOT_AN_OCCURRENCE(Bdel(ubf, long_field, -2), -1);
  NOT_AN_OCCURRENCE(Blen(ubf, long_field, -2), -1);
  NOT_AN_OCCURRENCE(Bfind(ubf, long_field, -2, NULL), NULL);
  NOT_AN_OCCURRENCE(CBfind(ubf, long_field, -2, NULL, BFLD_STRING), NULL);
  NOT_AN_OCCURRENCE(Bfinds(ubf, long_field, -2), NULL);
  NOT_AN_OCCURRENCE(Bgetsa(ubf, long_field, -2, NULL), NULL);
  NOT_AN_OCCURRENCE(CBgetalloc(ubf, long_field, -2, BFLD_STRING, NULL), NULL);
  NOT_PRESENT(Blen(ubf, long_field, 3), -1);
  NOT_PRESENT(CBget(ubf, long_field, 3, text, NULL, BFLD_STRING), -1);
  NOT_PRESENT(Bfinds(ubf, long_field, 3), NULL);
  NOT_PRESENT(Bgetsa(ubf, long_field, 3, NULL), NULL);
  NOT_PRESENT(CBgetalloc(ubf, long_field, 3, BFLD_STRING, NULL), NULL);
  NOT_PRESENT(Bgetrv(ubf, text, NULL, long_field, 3, BBADFLDOCC), -1);
  NOT_PRESENT(CBgetrv(ubf, text, NULL, BFLD_STRING, long_field, 3, BBADFLDOCC), -1);
  NOT_PRESENT(Bfindrv(ubf, NULL, long_field, 3, BBADFLDOCC), NULL);
  NOT_PRESENT(CBfindrv(ubf, NULL, BFLD_STRING, long_field, 3, BBADFLDOCC), NULL);
  NOT_PRESENT(CBfindr(ubf, path, NULL, BFLD_STRING), NULL);
  room = -1;
  NOT_SOUND(Bgetalloc(ubf, long_field, 0, &room), NULL);
  NOT_SOUND(CBgetalloc(ubf, long_field, 0, BFLD_STRING, &room), NULL);
  NOT_SOUND(Bgetrv(ubf, NULL, NULL, long_field, 0, BBADFLDOCC), -1);
  NOT_SOUND(CBgetrv(ubf, NULL, NULL, BFLD_STRING, long_field, 0, BBADFLDOCC), -1);
  path[1] = 0;
  NOT_SOUND(CBgetr(ubf, path, NULL, NULL, BFLD_STRING), -1);
  NOT_SOUND(Bprojcpy(ubf, ubf, (BFLDID *)8), -1);
  CHECK(Bpresr(ubf, path) == 1 && Berror == 0);
}

static void types_that_do_not_fit(void) {
  BFLDID path[] = {long_field, 0, BBADFLDOCC};
  NOT_A_TYPE(CBchg(ubf, long_field, 0, "1", 0, 99), -1);
  NOT_A_TYPE(CBget(ubf, long_field, 0, text, NULL, 99), -1);
  NOT_A_TYPE(CBfind(ubf, long_field, 0, NULL, 99), NULL);
  NOT_A_TYPE(CBfindrv(ubf, NULL, 99, long_field, 0, BBADFLDOCC), NULL);
  NOT_A_TYPE(CBgetrv(ubf, text, NULL, 99, long_field, 0, BBADFLDOCC), -1);
  NOT_CONVERTED(CBgetr(ubf, path, text, NULL, BFLD_UBF), -1);
  NOT_CONVERTED(CBgetrv(ubf, text, NULL, BFLD_UBF, long_field, 0, BBADFLDOCC), -1);
  NOT_CONVERTED(CBfindr(ubf, path, NULL, BFLD_VIEW), NULL);
  NOT_CONVERTED(CBfindrv(ubf, NULL, BFLD_VIEW, long_field, 0, BBADFLDOCC), NULL);
  NOT_CONVERTED(Badds(ubf, inner_field, "x"), -1);
  NOT_CONVERTED(Bchgs(ubf, inner_field, 0, "x"), -1);
  NOT_CONVERTED(Bgets(ubf, inner_field, 0, text), -1);
  NOT_CONVERTED(Bgetsa(ubf, inner_field, 0, NULL), NULL);
  NOT_CONVERTED(Bfinds(ubf, inner_field, 0), NULL);
}

static void buffers_that_are_full(void) {
  UBFH *small = Balloc(1, 8), *full = (UBFH *)tpalloc("UBF", NULL, 4096);
  BFLDID list[] = {bytes_field, BBADFLDID}, next = BFIRSTFLDID;
  static const char long_text[] = "a text that is longer than the small buffer can hold";
  CHECK(Badds(small, text_field, "x") == 0);
  NO_ROOM(Bchg(small, text_field, 0, long_text, 0), -1);
  NO_ROOM(CBadd(small, text_field, long_text, 0, BFLD_STRING), -1);
  NO_ROOM(CBchg(small, text_field, 0, long_text, 0, BFLD_STRING), -1);
  CHECK(Badd(full, bytes_field, long_text, sizeof long_text) == 0 && Badds(full, text_field, long_text) == 0);
  NO_ROOM(Bcpy(small, full), -1);
  NO_ROOM(Bupdate(small, full), -1);
  NO_ROOM(Bconcat(small, full), -1);
  NO_ROOM(Bjoin(small, full), -1);
  NO_ROOM(Bojoin(small, full), -1);
  NO_ROOM(Bprojcpy(small, full, list), -1);
  CHECK(Bnum(small) == 1 && strcmp(Bfind(small, text_field, 0, NULL), "x") == 0);
  room = 2;
  NO_ROOM(Bnext(full, &next, &occurrence, text, &room), -1);
  NO_ROOM(Bgetrv(full, text, &room, text_field, 0, BBADFLDOCC), -1);
  NO_ROOM(CBgetrv(full, text, &room, BFLD_STRING, text_field, 0, BBADFLDOCC), -1);
  BFLDID path[] = {text_field, 0, BBADFLDOCC};
  NO_ROOM(CBgetr(full, path, text, &room, BFLD_STRING), -1);
  tpfree((char *)small);
  tpfree((char *)full);
}

static void to_the_log(const char *format, ...) {
  va_list values;
  va_start(values, format);
  CHECK(vuserlog(format, values) > 0);
  va_end(values);
}

static void words(void) {
  const char *no_format = NULL, *folder = getenv("FLDTBLDIR");
  CHECK(TP_LOG(log_error, no_format) == -1);
  CHECK(pollux_log(log_error, "file.c", 1, no_format) == -1);
  setenv("NDRX_ULOG", folder == NULL ? "." : folder, 1);
  to_the_log("%d errors of %s", 3, "ubf.h");
  CHECK(Bnum(NULL) == -1);
  B_error("as expected");
}

int main(void) {
  text_field = Bmkfldid(BFLD_STRING, 6);
  bytes_field = Bmkfldid(BFLD_CARRAY, 7);
  long_field = Bmkfldid(BFLD_LONG, 8);
  inner_field = Bmkfldid(BFLD_UBF, 9);
  ubf = (UBFH *)tpalloc("UBF", NULL, 2048);
  UBFH *inner = (UBFH *)tpalloc("UBF", NULL, 256);
  CHECK(Badds(ubf, long_field, "5") == 0 && Badd(ubf, inner_field, (char *)inner, 0) == 0);
  buffers_that_are_none();
  fields_that_are_none();
  values_that_are_not_there();
  types_that_do_not_fit();
  buffers_that_are_full();
  words();
  tpfree((char *)inner);
  tpfree((char *)ubf);
  return failures != 0;
}
