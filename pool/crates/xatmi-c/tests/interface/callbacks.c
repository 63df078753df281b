/* Buffers, structs and expressions to and from functions, structs as JSON, the environment. Expects people.h of viewc, its
 * views in VIEWFILES, and the fields of FIELDTBLS. */
#include <atmi.h>
#include <stdlib.h>
#include <string.h>
#include <ubf.h>

#include "check.h"
#include "people.fd.h"
#include "people.h"

struct tape {
  char bytes[4096];
  long len, at, calls;
  BFLDID last;
};

static int take_line(char **line, long len, void *data, int *is_printed, FILE *file, BFLDID field) {
  struct tape *tape = data;
  if (tape == NULL) return 1;
  CHECK((*line)[len - 1] == '\0' && (*line)[len - 2] == '\n' && *is_printed == 0 && file == NULL);
  memcpy(tape->bytes + tape->len, *line, (size_t)len);
  tape->len += len - 1;
  tape->last = field;
  tape->calls++;
  return 0;
}

static long give_line(char *room, long size, void *data) {
  struct tape *tape = data;
  if (tape == NULL) return -1;
  if (tape->at == tape->len) return 0;
  const char *end = memchr(tape->bytes + tape->at, '\n', (size_t)(tape->len - tape->at));
  long len = end == NULL ? tape->len - tape->at : end + 1 - (tape->bytes + tape->at);
  CHECK(len + 1 < size);
  memcpy(room, tape->bytes + tape->at, (size_t)len);
  room[len] = '\0';
  tape->at += len;
  return len;
}

static int take_text(char *text, long len, void *data) {
  if (data == NULL) return 1;
  memcpy(((struct tape *)data)->bytes, text, (size_t)len);
  ((struct tape *)data)->len = len;
  return 0;
}

static long take_bytes(char *bytes, long len, void *data) {
  struct tape *tape = data;
  if (tape == NULL || len > (long)sizeof tape->bytes) return -1;
  memcpy(tape->bytes, bytes, (size_t)len);
  tape->len = len;
  return len;
}

/* In pieces of seven bytes. */
static long give_bytes(char *room, long size, void *data) {
  struct tape *tape = data;
  if (tape == NULL) return -1;
  long len = size < 7 ? size : 7;
  if (len > tape->len - tape->at) len = tape->len - tape->at;
  memcpy(room, tape->bytes + tape->at, (size_t)len);
  tape->at += len;
  return len;
}

static void buffers_go_through_functions(void) {
  UBFH *one = (UBFH *)tpalloc("UBF", NULL, 1024), *two = (UBFH *)tpalloc("UBF", NULL, 1024);
  long age = 7;
  struct tape tape = {.len = 0};
  CHECK(Badd(one, T_AGE, (char *)&(short){5}, 0) == 0 && Badd(one, T_ID, (char *)&age, 0) == 0);
  CHECK(Badd(one, T_NAME, "Ada\n", 0) == 0);
  CHECK(Bfprintcb(one, take_line, &tape) == 0 && tape.calls == 3 && tape.last == T_NAME);
  tape.bytes[tape.len] = '\0';
  CHECK(strcmp(tape.bytes, "T_AGE\t5\nT_ID\t7\nT_NAME\tAda\\0a\n") == 0);
  CHECK(Bextreadcb(two, give_line, &tape) == 0 && Bcmp(one, two) == 0);
  tape.len = tape.at = 0;
  CHECK(Bwritecb(one, take_bytes, &tape) == 0 && Binit(two, 1024) == 0);
  CHECK(Breadcb(two, give_bytes, &tape) == 0 && Bcmp(one, two) == 0);
  CHECK(Bfprintcb(one, NULL, &tape) == -1 && Berror == BEINVAL);
  CHECK(Bfprintcb(one, take_line, NULL) == -1 && Berror == BEUNIX);
  CHECK(Bfprintcb(NULL, take_line, &tape) == -1 && Berror == BNOTFLD);
  CHECK(Bextreadcb(two, NULL, NULL) == -1 && Berror == BEINVAL);
  CHECK(Bextreadcb(two, give_line, NULL) == -1 && Berror == BEUNIX);
  CHECK(Bextreadcb(NULL, give_line, &tape) == -1 && Berror == BNOTFLD);
  strcpy(tape.bytes, "T_NONE\t1\n");
  tape.len = (long)strlen(tape.bytes);
  tape.at = 0;
  CHECK(Bextreadcb(two, give_line, &tape) == -1 && Berror == BBADNAME);
  strcpy(tape.bytes, "T_AGE\n");
  tape.len = (long)strlen(tape.bytes);
  tape.at = 0;
  CHECK(Bextreadcb(two, give_line, &tape) == -1 && Berror == BSYNTAX);
  CHECK(Bcmp(one, two) == 0);
  CHECK(Bwritecb(one, NULL, &tape) == -1 && Berror == BEINVAL);
  CHECK(Bwritecb(one, take_bytes, NULL) == -1 && Berror == BEUNIX);
  CHECK(Bwritecb(NULL, take_bytes, &tape) == -1 && Berror == BNOTFLD);
  CHECK(Breadcb(two, NULL, &tape) == -1 && Berror == BEINVAL);
  CHECK(Breadcb(two, give_bytes, NULL) == -1 && Berror == BEUNIX);
  CHECK(Breadcb(NULL, give_bytes, &tape) == -1 && Berror == BNOTFLD);
  long memory[8];
  UBFH *odd = (UBFH *)((char *)memory + 1);
  CHECK(Bfprintcb(odd, take_line, &tape) == -1 && Berror == BALIGNERR);
  CHECK(Bextreadcb(odd, give_line, &tape) == -1 && Berror == BALIGNERR);
  CHECK(Bwritecb(odd, take_bytes, &tape) == -1 && Berror == BALIGNERR);
  CHECK(Breadcb(odd, give_bytes, &tape) == -1 && Berror == BALIGNERR);
  memset(tape.bytes, 'x', sizeof tape.bytes);
  tape.len = sizeof tape.bytes;
  tape.at = 0;
  CHECK(Breadcb(two, give_bytes, &tape) == -1 && Berror == BNOTFLD);
  tape.len = tape.at = 0;
  CHECK(Bwritecb(one, take_bytes, &tape) == 0);
  UBFH *small = (UBFH *)tpalloc("UBF", NULL, 32);
  tape.at = 0;
  CHECK(Breadcb(small, give_bytes, &tape) == -1 && Berror == BNOSPACE);
  char *text = malloc(3000);
  memset(text, 'a', 2999);
  text[2999] = '\0';
  snprintf(tape.bytes, sizeof tape.bytes, "T_NAME\t%s\n", text);
  tape.len = (long)strlen(tape.bytes);
  tape.at = 0;
  CHECK(Bextreadcb(two, give_line, &tape) == -1 && Berror == BNOSPACE);
  free(text);
  tpfree((char *)small);
  tpfree((char *)one);
  tpfree((char *)two);
}

static void expressions_go_to_functions(void) {
  struct tape tape = {.len = 0};
  char *tree = Bboolco("T_AGE == 2 && T_NAME == 'x'");
  CHECK(Bboolprcb(tree, take_text, &tape) == 0 && tape.len == (long)strlen(tape.bytes) + 1);
  CHECK(strstr(tape.bytes, "T_AGE") != NULL && tape.bytes[tape.len - 2] == '\n');
  CHECK(Bboolprcb(tree, NULL, &tape) == -1 && Berror == BEINVAL);
  CHECK(Bboolprcb(tree, take_text, NULL) == -1 && Berror == BEUNIX);
  Btreefree(tree);
}

static void structs_go_through_functions(void) {
  struct PERSON one, two;
  struct tape tape = {.len = 0};
  Bvsinit((char *)&one, "PERSON");
  Bvsinit((char *)&two, "PERSON");
  one.age = 44;
  one.C_ids = 2;
  one.ids[1] = 9;
  CHECK(Bvfprintcb((char *)&one, "PERSON", take_line, &tape) == 0 && tape.calls > 5 && tape.last == 0);
  CHECK(Bvextreadcb((char *)&two, "PERSON", give_line, &tape) == 0);
  CHECK(two.age == 44 && two.C_ids == 2 && two.ids[1] == 9);
  CHECK(Bvfprintcb((char *)&one, "PERSON", NULL, &tape) == -1 && Berror == BEINVAL);
  CHECK(Bvfprintcb((char *)&one, "NONE", take_line, &tape) == -1 && Berror == BBADVIEW);
  CHECK(Bvfprintcb((char *)&one, "PERSON", take_line, NULL) == -1 && Berror == BEUNIX);
  CHECK(Bvextreadcb((char *)&two, "PERSON", NULL, &tape) == -1 && Berror == BEINVAL);
  CHECK(Bvextreadcb((char *)&two, "NONE", give_line, &tape) == -1 && Berror == BBADVIEW);
  CHECK(Bvextreadcb((char *)&two, "PERSON", give_line, NULL) == -1 && Berror == BEUNIX);
  strcpy(tape.bytes, "none\t1\n");
  tape.len = (long)strlen(tape.bytes);
  tape.at = 0;
  CHECK(Bvextreadcb((char *)&two, "PERSON", give_line, &tape) == -1 && Berror == BNOCNAME);
  strcpy(tape.bytes, "age\n");
  tape.len = (long)strlen(tape.bytes);
  tape.at = 0;
  CHECK(Bvextreadcb((char *)&two, "PERSON", give_line, &tape) == -1 && Berror == BSYNTAX);
  strcpy(tape.bytes, "name\ta text that is too long for it\n");
  tape.len = (long)strlen(tape.bytes);
  tape.at = 0;
  CHECK(Bvextreadcb((char *)&two, "PERSON", give_line, &tape) == -1 && Berror == BNOSPACE);
  CHECK(two.age == 44);
}

static void structs_become_json_and_come_back(void) {
  struct PERSON one;
  char text[1024], name[34];
  Bvsinit((char *)&one, "PERSON");
  one.age = 44;
  strcpy(one.name, "Ada");
  CHECK(tpviewtojson((char *)&one, "PERSON", text, sizeof text, BVACCESS_NOTNULL) == 0);
  CHECK(strcmp(text, "{\"PERSON\":{\"age\":44,\"weight\":0.0,\"name\":\"Ada\"}}") == 0);
  CHECK(tpviewtojson((char *)&one, "PERSON", text, sizeof text, 0) == 0);
  CHECK(strstr(text, "\"height\":1.5") != NULL && strstr(text, "\"small\":[7,7]") != NULL);
  struct PERSON *two = (struct PERSON *)tpjsontoview(name, text);
  CHECK(two != NULL && strcmp(name, "PERSON") == 0);
  if (two == NULL) return;
  char type[9] = "", subtype[17] = "";
  CHECK(tptypes((char *)two, type, subtype) >= 1 && strcmp(subtype, "PERSON") == 0);
  CHECK(Bvcmp((char *)&one, "PERSON", (char *)two, "PERSON") == 0);
  tpfree((char *)two);
  CHECK(tpviewtojson((char *)&one, "PERSON", text, 10, 0) == -1 && tperrno == TPELIMIT);
  CHECK(tpviewtojson((char *)&one, "NONE", text, sizeof text, 0) == -1 && tperrno == TPEOTYPE);
  CHECK(tpviewtojson((char *)&one, "PERSON", NULL, 0, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpjsontoview(name, "{\"NONE\":{}}") == NULL && tperrno == TPEOTYPE);
  CHECK(tpjsontoview(name, "{\"PERSON\":{\"none\":1}}") == NULL && tperrno == TPEINVAL);
  CHECK(tpjsontoview(NULL, text) == NULL && tperrno == TPEINVAL);
  CHECK(tpjsontoview(name, "{\"PERSON\":{\"name\":\"a text that is too long for it\"}}") == NULL && tperrno == TPELIMIT);
}

static void export_and_import(char *from, long len, const char *text, long flags) {
  char room[512];
  long room_len = sizeof room, got = 0;
  CHECK(tpexport(from, len, room, &room_len, flags) == 0 && room_len == (long)strlen(room) + 1);
  if (text != NULL) CHECK(strcmp(room, text) == 0);
  char *to = tpalloc("STRING", NULL, 16);
  CHECK(tpimport(room, flags == 0 ? 0 : room_len, &to, &got, flags) == 0 && got > 0);
  char again[512];
  room_len = sizeof again;
  CHECK(tpexport(to, len, again, &room_len, flags) == 0 && strcmp(again, room) == 0);
  tpfree(to);
}

static void buffers_become_texts_and_come_back(void) {
  char *text = tpalloc("STRING", NULL, 64), room[256];
  long room_len = sizeof room;
  strcpy(text, "hello");
  export_and_import(text, 0, "{\"buftype\":\"STRING\",\"version\":1,\"data\":\"hello\"}", 0);
  export_and_import(text, 0, NULL, TPEX_STRING);
  char *bytes = tpalloc("CARRAY", NULL, 64);
  memcpy(bytes, "\0\1\2", 3);
  export_and_import(bytes, 3, "{\"buftype\":\"CARRAY\",\"version\":1,\"data\":\"AAEC\"}", 0);
  UBFH *fields = (UBFH *)tpalloc("UBF", NULL, 1024);
  CHECK(Badd(fields, T_NAME, "Ada", 0) == 0);
  export_and_import((char *)fields, 0, "{\"buftype\":\"UBF\",\"version\":1,\"data\":{\"T_NAME\":\"Ada\"}}", 0);
  struct PERSON *person = (struct PERSON *)tpalloc("VIEW", "PERSON", 0);
  person->age = 44;
  export_and_import((char *)person, 0, NULL, 0);
  /* Of the same type it stays as large as it was. */
  CHECK(tpimport("{\"buftype\":\"UBF\",\"version\":1,\"data\":{}}", 0, (char **)&fields, NULL, TPEX_NOCHANGE) == 0);
  CHECK(Bsizeof(fields) == 1024 && Bpres(fields, T_NAME, 0) == 0);
  CHECK(tpimport("{\"buftype\":\"UBF\",\"version\":1,\"data\":{}}", 0, &text, NULL, TPEX_NOCHANGE) == -1 && tperrno == TPEINVAL);
  CHECK(strcmp(text, "hello") == 0);
  CHECK(tpimport("{\"buftype\":\"NONE\",\"version\":1,\"data\":1}", 0, &text, NULL, 0) == -1 && tperrno == TPENOENT);
  CHECK(tpimport("{\"buftype\":\"VIEW\",\"version\":1,\"subtype\":\"NONE\",\"data\":{}}", 0, &text, NULL, 0) == -1 && tperrno == TPEOTYPE);
  CHECK(tpimport(NULL, 0, &text, NULL, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpimport("*", 0, &text, NULL, TPEX_STRING) == -1 && tperrno == TPEINVAL);
  CHECK(tpexport(text, 0, room, NULL, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpexport(NULL, 0, room, &room_len, 0) == -1 && tperrno == TPEINVAL);
  room_len = 10;
  CHECK(tpexport(text, 0, room, &room_len, 0) == -1 && tperrno == TPELIMIT);
  tpfree((char *)person);
  tpfree((char *)fields);
  tpfree(bytes);
  tpfree(text);
}

#define UBF_FAILS(call, number)              \
  do {                                       \
    long result = (long)(call);              \
    CHECK(result == -1 || result == 0);      \
    CHECK(Berror == (number));               \
  } while (0)

static void fields_of_views_are_reached_by_paths(void) {
  enum { V = (BFLD_VIEW << 25) | 20, U = (BFLD_UBF << 25) | 21 };
  UBFH *inner = (UBFH *)tpalloc("UBF", NULL, 2048), *outer = (UBFH *)tpalloc("UBF", NULL, 4096);
  struct PERSON one;
  long memory[8] = {0};
  UBFH *odd = (UBFH *)((char *)memory + 1);
  Bvsinit((char *)&one, "PERSON");
  one.age = 44;
  BVIEWFLD view = {.vflags = 0, .data = (char *)&one};
  strcpy(view.vname, "PERSON");
  CHECK(Badd(inner, V, (char *)&view, 0) == 0 && Badd(inner, T_NAME, "Ada", 0) == 0);
  CHECK(Badd(outer, U, (char *)inner, 0) == 0);
  BFLDID to_view[] = {U, 0, V, 0, BBADFLDOCC}, to_name[] = {U, 0, T_NAME, 0, BBADFLDOCC};
  BFLDID nowhere[] = {U, 0, V, 5, BBADFLDOCC}, none[] = {BBADFLDOCC};
  BFLDID no_name[] = {U, 0, T_NAME, 5, BBADFLDOCC};
  BFLDLEN tiny = 0;
  long number = 0;
  char text[16];
  BFLDLEN len = sizeof text;
  CHECK(CBvgetr(outer, to_view, "age", 0, (char *)&number, NULL, BFLD_LONG, 0) == 0 && number == 44);
  CHECK(CBvgetrv(outer, "age", 0, text, &len, BFLD_STRING, 0L, U, 0, V, 0, BBADFLDOCC) == 0 && strcmp(text, "44") == 0);
  char *made = CBvgetallocr(outer, to_view, "age", 0, BFLD_STRING, 0, NULL);
  CHECK(made != NULL && strcmp(made, "44") == 0);
  free(made);
  made = CBvgetallocrv(outer, "age", 0, BFLD_STRING, 0L, (BFLDLEN *)NULL, U, 0, V, 0, BBADFLDOCC);
  CHECK(made != NULL && strcmp(made, "44") == 0);
  free(made);
  CHECK(Bvnullr(outer, to_view, "sex", 0) == 1 && Bvnullr(outer, to_view, "age", 0) == 0);
  CHECK(Bvnullrv(outer, "sex", 0, U, 0, V, 0, BBADFLDOCC) == 1);
  made = CBgetallocr(outer, to_name, BFLD_STRING, NULL);
  CHECK(made != NULL && strcmp(made, "Ada") == 0);
  free(made);
  made = CBgetallocrv(outer, BFLD_STRING, (BFLDLEN *)NULL, U, 0, T_NAME, 0, BBADFLDOCC);
  CHECK(made != NULL && strcmp(made, "Ada") == 0);
  free(made);
  /* Each without a buffer, at an odd address, by no path, not there, and with names, types and room that cannot be. */
  UBF_FAILS(CBvgetr(NULL, to_view, "age", 0, text, NULL, BFLD_STRING, 0), BNOTFLD);
  UBF_FAILS(CBvgetrv(NULL, "age", 0, text, NULL, BFLD_STRING, 0L, U, 0, V, 0, BBADFLDOCC), BNOTFLD);
  UBF_FAILS(CBvgetallocr(NULL, to_view, "age", 0, BFLD_STRING, 0, NULL), BNOTFLD);
  UBF_FAILS(CBvgetallocrv(NULL, "age", 0, BFLD_STRING, 0L, NULL, U, 0, V, 0, BBADFLDOCC), BNOTFLD);
  UBF_FAILS(Bvnullr(NULL, to_view, "age", 0), BNOTFLD);
  UBF_FAILS(Bvnullrv(NULL, "age", 0, U, 0, V, 0, BBADFLDOCC), BNOTFLD);
  UBF_FAILS(CBgetallocr(NULL, to_name, BFLD_STRING, NULL), BNOTFLD);
  UBF_FAILS(CBgetallocrv(NULL, BFLD_STRING, NULL, U, 0, T_NAME, 0, BBADFLDOCC), BNOTFLD);
  UBF_FAILS(CBvgetr(odd, to_view, "age", 0, text, NULL, BFLD_STRING, 0), BALIGNERR);
  UBF_FAILS(CBvgetrv(odd, "age", 0, text, NULL, BFLD_STRING, 0L, U, 0, V, 0, BBADFLDOCC), BALIGNERR);
  UBF_FAILS(CBvgetallocr(odd, to_view, "age", 0, BFLD_STRING, 0, NULL), BALIGNERR);
  UBF_FAILS(CBvgetallocrv(odd, "age", 0, BFLD_STRING, 0L, NULL, U, 0, V, 0, BBADFLDOCC), BALIGNERR);
  UBF_FAILS(Bvnullr(odd, to_view, "age", 0), BALIGNERR);
  UBF_FAILS(Bvnullrv(odd, "age", 0, U, 0, V, 0, BBADFLDOCC), BALIGNERR);
  UBF_FAILS(CBgetallocr(odd, to_name, BFLD_STRING, NULL), BALIGNERR);
  UBF_FAILS(CBgetallocrv(odd, BFLD_STRING, NULL, U, 0, T_NAME, 0, BBADFLDOCC), BALIGNERR);
  UBF_FAILS(CBvgetr(outer, to_name, "age", 0, text, NULL, BFLD_STRING, 0), BEBADOP);
  UBF_FAILS(CBvgetr(outer, none, "age", 0, text, NULL, BFLD_STRING, 0), BBADFLD);
  UBF_FAILS(Bvnullr(outer, to_name, "age", 0), BEBADOP);
  UBF_FAILS(Bgetrv(outer, text, NULL, U, 0, T_NAME, 0, T_NAME, 0, BBADFLDOCC), BEBADOP);
  UBF_FAILS(Bgetrv(outer, text, NULL, U, BBADFLDOCC), BBADFLD);
  UBF_FAILS(CBvgetrv(outer, "age", 0, text, NULL, BFLD_STRING, 0L, BBADFLDOCC), BBADFLD);
  UBF_FAILS(CBvgetallocr(outer, none, "age", 0, BFLD_STRING, 0, NULL), BBADFLD);
  UBF_FAILS(CBvgetallocrv(outer, "age", 0, BFLD_STRING, 0L, NULL, BBADFLDOCC), BBADFLD);
  UBF_FAILS(Bvnullr(outer, none, "age", 0), BBADFLD);
  UBF_FAILS(Bvnullrv(outer, "age", 0, BBADFLDOCC), BBADFLD);
  UBF_FAILS(CBgetallocr(outer, none, BFLD_STRING, NULL), BBADFLD);
  UBF_FAILS(CBgetallocrv(outer, BFLD_STRING, NULL, BBADFLDOCC), BBADFLD);
  UBF_FAILS(CBvgetr(outer, nowhere, "age", 0, text, NULL, BFLD_STRING, 0), BNOTPRES);
  UBF_FAILS(CBvgetrv(outer, "age", 0, text, NULL, BFLD_STRING, 0L, U, 0, V, 5, BBADFLDOCC), BNOTPRES);
  UBF_FAILS(CBvgetallocr(outer, nowhere, "age", 0, BFLD_STRING, 0, NULL), BNOTPRES);
  UBF_FAILS(CBvgetallocrv(outer, "age", 0, BFLD_STRING, 0L, NULL, U, 0, V, 5, BBADFLDOCC), BNOTPRES);
  UBF_FAILS(Bvnullr(outer, nowhere, "age", 0), BNOTPRES);
  UBF_FAILS(Bvnullrv(outer, "age", 0, U, 0, V, 5, BBADFLDOCC), BNOTPRES);
  UBF_FAILS(CBgetallocr(outer, nowhere, BFLD_STRING, NULL), BEBADOP);
  UBF_FAILS(CBgetallocrv(outer, BFLD_STRING, NULL, U, 0, V, 0, BBADFLDOCC), BEBADOP);
  UBF_FAILS(CBgetallocr(outer, no_name, BFLD_STRING, NULL), BNOTPRES);
  UBF_FAILS(CBgetallocrv(outer, BFLD_STRING, NULL, U, 0, T_NAME, 5, BBADFLDOCC), BNOTPRES);
  UBF_FAILS(CBvgetr(outer, to_view, "none", 0, text, NULL, BFLD_STRING, 0), BNOCNAME);
  UBF_FAILS(CBvgetrv(outer, "none", 0, text, NULL, BFLD_STRING, 0L, U, 0, V, 0, BBADFLDOCC), BNOCNAME);
  UBF_FAILS(CBvgetallocr(outer, to_view, "none", 0, BFLD_STRING, 0, NULL), BNOCNAME);
  UBF_FAILS(CBvgetallocrv(outer, "none", 0, BFLD_STRING, 0L, NULL, U, 0, V, 0, BBADFLDOCC), BNOCNAME);
  UBF_FAILS(Bvnullr(outer, to_view, "none", 0), BNOCNAME);
  UBF_FAILS(Bvnullrv(outer, "none", 0, U, 0, V, 0, BBADFLDOCC), BNOCNAME);
  UBF_FAILS(CBvgetr(outer, to_view, "age", -1, text, NULL, BFLD_STRING, 0), BEINVAL);
  UBF_FAILS(CBvgetrv(outer, "age", -1, text, NULL, BFLD_STRING, 0L, U, 0, V, 0, BBADFLDOCC), BEINVAL);
  UBF_FAILS(CBvgetallocr(outer, to_view, "age", -1, BFLD_STRING, 0, NULL), BEINVAL);
  UBF_FAILS(CBvgetallocrv(outer, "age", -1, BFLD_STRING, 0L, NULL, U, 0, V, 0, BBADFLDOCC), BEINVAL);
  UBF_FAILS(Bvnullr(outer, to_view, "age", -1), BEINVAL);
  UBF_FAILS(Bvnullrv(outer, "age", -1, U, 0, V, 0, BBADFLDOCC), BEINVAL);
  tiny = -1;
  UBF_FAILS(CBgetallocr(outer, to_name, BFLD_STRING, &tiny), BEINVAL);
  tiny = -1;
  UBF_FAILS(CBgetallocrv(outer, BFLD_STRING, &tiny, U, 0, T_NAME, 0, BBADFLDOCC), BEINVAL);
  UBF_FAILS(CBvgetr(outer, to_view, "age", 0, text, NULL, 99, 0), BTYPERR);
  UBF_FAILS(CBvgetrv(outer, "age", 0, text, NULL, 99, 0L, U, 0, V, 0, BBADFLDOCC), BTYPERR);
  UBF_FAILS(CBvgetallocr(outer, to_view, "age", 0, 99, 0, NULL), BTYPERR);
  UBF_FAILS(CBvgetallocrv(outer, "age", 0, 99, 0L, NULL, U, 0, V, 0, BBADFLDOCC), BTYPERR);
  UBF_FAILS(CBgetallocr(outer, to_name, 99, NULL), BTYPERR);
  UBF_FAILS(CBgetallocrv(outer, 99, NULL, U, 0, T_NAME, 0, BBADFLDOCC), BTYPERR);
  tiny = 1;
  UBF_FAILS(CBvgetr(outer, to_view, "age", 0, text, &tiny, BFLD_STRING, 0), BNOSPACE);
  tiny = 1;
  UBF_FAILS(CBvgetrv(outer, "age", 0, text, &tiny, BFLD_STRING, 0L, U, 0, V, 0, BBADFLDOCC), BNOSPACE);
  tpfree((char *)inner);
  tpfree((char *)outer);
}

static void fields_are_added_and_visited_in_order(void) {
  UBFH *fields = (UBFH *)tpalloc("UBF", NULL, 1024);
  long memory[8] = {0};
  UBFH *odd = (UBFH *)((char *)memory + 1);
  Bfld_loc_info_t place;
  memset(&place, 0, sizeof place);
  CHECK(CBaddfast(fields, T_AGE, "5", 0, BFLD_STRING, &place) == 0);
  CHECK(CBaddfast(fields, T_AGE, (char *)&(long){6}, 0, BFLD_LONG, &place) == 0);
  CHECK(CBaddfast(fields, T_NAME, (char *)&(long){7}, 0, BFLD_LONG, &place) == 0);
  Bnext_state_t state;
  BFLDID id = BFIRSTFLDID;
  BFLDOCC occurrence = 0;
  char *data = NULL;
  short seen[2] = {0, 0};
  for (int at = 0; at < 2; at++) {
    CHECK(Bnext2(&state, fields, &id, &occurrence, NULL, NULL, &data) == 1 && id == T_AGE && occurrence == at);
    memcpy(&seen[at], data, sizeof seen[at]);
  }
  CHECK(seen[0] == 5 && seen[1] == 6);
  CHECK(Bnext2(&state, fields, &id, &occurrence, NULL, NULL, &data) == 1 && strcmp(data, "7") == 0);
  CHECK(Bnext2(&state, fields, &id, &occurrence, NULL, NULL, &data) == 0);
  char room[1];
  BFLDLEN tiny = 0;
  id = BFIRSTFLDID;
  tiny = 1;
  UBF_FAILS(Bnext2(&state, fields, &id, &occurrence, room, &tiny, NULL), BNOSPACE);
  UBF_FAILS(Bnext2(NULL, fields, &id, &occurrence, NULL, NULL, NULL), BEINVAL);
  UBF_FAILS(Bnext2(&state, NULL, &id, &occurrence, NULL, NULL, NULL), BNOTFLD);
  UBF_FAILS(Bnext2(&state, odd, &id, &occurrence, NULL, NULL, NULL), BALIGNERR);
  id = -1;
  UBF_FAILS(Bnext2(&state, fields, &id, &occurrence, NULL, NULL, NULL), BBADFLD);
  UBF_FAILS(CBaddfast(NULL, T_AGE, "5", 0, BFLD_STRING, &place), BNOTFLD);
  UBF_FAILS(CBaddfast(odd, T_AGE, "5", 0, BFLD_STRING, &place), BALIGNERR);
  UBF_FAILS(CBaddfast(fields, 0, "5", 0, BFLD_STRING, &place), BBADFLD);
  UBF_FAILS(CBaddfast(fields, T_AGE, "5", 0, BFLD_STRING, NULL), BEINVAL);
  UBF_FAILS(CBaddfast(fields, T_AGE, "5", 0, 99, &place), BTYPERR);
  UBF_FAILS(CBaddfast(fields, T_AGE, (char *)fields, 0, BFLD_UBF, &place), BEBADOP);
  char *text = malloc(3000);
  memset(text, 'a', 2999);
  text[2999] = '\0';
  UBF_FAILS(CBaddfast(fields, T_NAME, text, 0, BFLD_STRING, &place), BNOSPACE);
  free(text);
  tpfree((char *)fields);
}

static void the_environment_is_that_of_the_process(void) {
  static char pair[] = "POLLUX_OF_A_TEST=1";
  CHECK(tuxgetenv("POLLUX_OF_A_TEST") == NULL && tuxgetenv(NULL) == NULL);
  CHECK(tuxputenv(pair) == 0 && strcmp(tuxgetenv("POLLUX_OF_A_TEST"), "1") == 0);
  CHECK(tuxputenv(NULL) != 0);
  CHECK(tpgprio() == -1 && tperrno == TPENOENT);
  CHECK(tpsprio(0, TPABSOLUTE) == -1 && tperrno == TPEINVAL);
  CHECK(tpsprio(0, TPNOBLOCK) == -1 && tperrno == TPEINVAL);
}

int main(void) {
  buffers_go_through_functions();
  expressions_go_to_functions();
  structs_go_through_functions();
  structs_become_json_and_come_back();
  buffers_become_texts_and_come_back();
  fields_of_views_are_reached_by_paths();
  fields_are_added_and_visited_in_order();
  the_environment_is_that_of_the_process();
  return failures != 0;
}
