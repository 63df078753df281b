/* Structs whose view is known. Expects people.h of viewc, its views in VIEWFILES, and the fields of FIELDTBLS. */
#include <atmi.h>
#include <fml32.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <ubf.h>

#include "check.h"
#include "people.fd.h"
#include "people.h"

#define FAILS(call, number)     \
  do {                          \
    CHECK((call) == -1);        \
    CHECK(Berror == (number));  \
  } while (0)

static void struct_is_what_the_compiler_made(void) {
  CHECK(Bvsizeof("PERSON") == (long)sizeof(struct PERSON));
  CHECK(Bvsizeof("SMALL") == (long)sizeof(struct SMALL));
  FAILS(Bvsizeof("NONE"), BBADVIEW);
  FAILS(Bvsizeof(NULL), BEINVAL);
  FAILS(Bvsizeof(""), BEINVAL);
  struct PERSON one;
  memset(&one, 0xee, sizeof one);
  CHECK(Bvsinit((char *)&one, "PERSON") == 0);
  CHECK(one.age == -1 && one.C_ids == 0 && one.small[1] == 7 && one.sex == '-');
  CHECK(one.height == 1.5F && strcmp(one.name, "no 'one'") == 0);
  CHECK(one.L_photo == 2 && memcmp(one.photo, "\0\n", 2) == 0);
  CHECK(strcmp(one.padded, "ab   ") == 0);
  FAILS(Bvsinit(NULL, "PERSON"), BEINVAL);
  one.age = 5;
  CHECK(Bvselinit((char *)&one, "age", "PERSON") == 0 && one.age == -1);
  FAILS(Bvselinit((char *)&one, "none", "PERSON"), BNOCNAME);
}

static void values_are_converted_both_ways(void) {
  struct PERSON one;
  char *data = (char *)&one;
  char text[32];
  long number = 0;
  int whole = 0;
  BFLDLEN len = sizeof text;
  Bvsinit(data, "PERSON");
  CHECK(CBvchg(data, "PERSON", "ids", 1, "42", 0, BFLD_STRING) == 0);
  CHECK(one.ids[1] == 42 && one.C_ids == 2);
  CHECK(CBvget(data, "PERSON", "ids", 1, text, &len, BFLD_STRING, 0) == 0);
  CHECK(strcmp(text, "42") == 0 && len == 3);
  whole = -9;
  CHECK(CBvchg(data, "PERSON", "small", 1, (char *)&whole, 0, BFLD_INT) == 0 && one.small[1] == -9);
  CHECK(CBvget(data, "PERSON", "small", 1, (char *)&number, NULL, BFLD_LONG, 0) == 0);
  CHECK(number == -9);
  CHECK(CBvget(data, "PERSON", "age", 0, (char *)&whole, NULL, BFLD_INT, 0) == 0 && whole == -1);
  FAILS(CBvget(data, "PERSON", "age", 0, (char *)&whole, NULL, BFLD_INT, BVACCESS_NOTNULL), BNOTPRES);
  FAILS(CBvget(data, "PERSON", "ids", 2, (char *)&number, NULL, BFLD_LONG, BVACCESS_NOTNULL), BNOTPRES);
  FAILS(CBvget(data, "PERSON", "ids", 3, (char *)&number, NULL, BFLD_LONG, 0), BEINVAL);
  FAILS(CBvget(data, "PERSON", "ids", -1, (char *)&number, NULL, BFLD_LONG, 0), BEINVAL);
  FAILS(CBvchg(data, "PERSON", "name", 0, "twelve bytes", 0, BFLD_STRING), BNOSPACE);
  len = 3;
  FAILS(CBvget(data, "PERSON", "name", 0, text, &len, BFLD_STRING, 0), BNOSPACE);
  FAILS(CBvchg(data, "PERSON", "name", 0, NULL, 0, BFLD_STRING), BEINVAL);
  FAILS(CBvget(data, "PERSON", "name", 0, text, NULL, 99, 0), BTYPERR);
  CHECK(CBvchg(data, "PERSON", "photo", 0, "\1\2\3", 3, BFLD_CARRAY) == 0 && one.L_photo == 3);
  len = 10;
  char *made = CBvgetalloc(data, "PERSON", "photo", 0, BFLD_CARRAY, 0, &len);
  CHECK(made != NULL && len == 3 && memcmp(made, "\1\2\3", 3) == 0);
  free(made);
  CHECK(CBvgetalloc(data, "NONE", "photo", 0, BFLD_CARRAY, 0, NULL) == NULL && Berror == BBADVIEW);
}

static void counts_and_members_are_shown(void) {
  struct PERSON one, two;
  char *data = (char *)&one;
  Bvsinit(data, "PERSON");
  one.C_ids = 3;
  one.ids[1] = 8;
  BFLDOCC most = 0, real = 0;
  long bytes = 0;
  int type = -1;
  CHECK(Bvoccur(data, "PERSON", "ids", &most, &real, &bytes, &type) == 3);
  CHECK(most == 3 && real == 2 && bytes == 8 && type == BFLD_LONG);
  CHECK(Bvoccur(data, "PERSON", "small", NULL, NULL, NULL, &type) == 2 && type == BFLD_INT);
  CHECK(Bvsetoccur(data, "PERSON", "ids", 1) == 0 && one.C_ids == 1);
  CHECK(Bvsetoccur(data, "PERSON", "small", 1) == 0);
  FAILS(Bvsetoccur(data, "PERSON", "ids", 4), BEINVAL);
  CHECK(Bvnull(data, "age", 0, "PERSON") == 1 && Bvnull(data, "weight", 0, "PERSON") == 0);
  one.C_ids = 9; /* a program's mistake */
  FAILS(Bvoccur(data, "PERSON", "ids", NULL, NULL, NULL, NULL), BEINVAL);
  one.C_ids = 1;
  CHECK(Bvcpy((char *)&two, data, "PERSON") == (long)sizeof two);
  CHECK(Bvcmp(data, "PERSON", (char *)&two, "PERSON") == 0);
  two.age = 3;
  CHECK(Bvcmp(data, "PERSON", (char *)&two, "PERSON") == -1);
  CHECK(Bvcmp(data, "PERSON", NULL, "PERSON") == -2 && Berror == BEINVAL);
  Bvnext_state_t state;
  char name[NDRX_VIEW_CNAME_LEN + 1];
  int members = 0;
  int more = Bvnext(&state, "PERSON", name, &type, &most, &bytes);
  CHECK(more == 1 && strcmp(name, "age") == 0 && type == BFLD_SHORT && most == 1 && bytes == 2);
  for (; more == 1; members++) more = Bvnext(&state, NULL, name, NULL, NULL, NULL);
  CHECK(more == 0 && members == 10 && strcmp(name, "padded") == 0);
  CHECK(state.v != NULL && state.vel == NULL);
  state.vel = &state; /* a program's mistake */
  FAILS(Bvnext(&state, NULL, name, NULL, NULL, NULL), BEINVAL);
  state.v = state.vel = NULL;
  FAILS(Bvnext(&state, NULL, name, NULL, NULL, NULL), BEINVAL);
  FAILS(Bvnext(NULL, "PERSON", name, NULL, NULL, NULL), BEINVAL);
}

static void fields_come_and_go(void) {
  struct PERSON one;
  char *data = (char *)&one;
  UBFH *fields = (UBFH *)tpalloc("UBF", NULL, 4096);
  long id = 0;
  Bvsinit(data, "PERSON");
  for (id = 1; id <= 4; id++) CHECK(Badd(fields, T_ID, (char *)&id, 0) == 0);
  CHECK(Badds(fields, T_NAME, "Ada") == 0 && Badds(fields, T_PHONE, "12345") == 0);
  CHECK(Badds(fields, T_HEIGHT, "1.75") == 0 && Badds(fields, T_WEIGHT, "60") == 0);
  CHECK(Fvftos32(fields, data, "PERSON") == 0);
  CHECK(one.C_ids == 3 && one.ids[2] == 3 && strcmp(one.name, "Ada") == 0);
  CHECK(one.C_phones == 1 && one.L_phones[0] == 6 && one.phones[1][0] == '\0');
  CHECK(one.height == 1.75F && one.weight == 0.0 && one.age == -1);
  UBFH *back = (UBFH *)tpalloc("UBF", NULL, 4096);
  CHECK(Fvstof32(back, data, FUPDATE, "PERSON") == 0);
  CHECK(Boccur(back, T_ID) == 3 && Bpres(back, T_NAME, 0) && !Bpres(back, T_AGE, 0));
  CHECK(!Bpres(back, T_HEIGHT, 0) && Bpres(back, T_WEIGHT, 0));
  CHECK(Bvstof(back, data, BCONCAT, "PERSON") == 0);
  CHECK(Boccur(back, T_ID) == 6 && Bpres(back, T_AGE, 0));
  FAILS(Bvstof(back, data, 9, "PERSON"), BEINVAL);
  FAILS(Bvstof(NULL, data, BUPDATE, "PERSON"), BNOTFLD);
  FAILS(Bvftos(fields, data, "NONE"), BBADVIEW);
  CHECK(Badds(fields, T_NAME, "x") == 0 && Bchgs(fields, T_NAME, 0, "longer than a name") == 0);
  FAILS(Bvftos(fields, data, "PERSON"), BNOSPACE);
  CHECK(Bvopt("name", B_STOF, "PERSON") == 0 && Bvftos(fields, data, "PERSON") == 0);
  FAILS(Bvopt("name", 5, "PERSON"), BEINVAL);
  FAILS(Bvopt("none", B_OFF, "PERSON"), BNOCNAME);
  tpfree((char *)fields);
  tpfree((char *)back);
}

static void lines_are_read_back(void) {
  struct PERSON one, two;
  Bvsinit((char *)&one, "PERSON");
  strcpy(one.name, "a\tb");
  one.C_ids = 2;
  one.ids[1] = 77;
  FILE *file = tmpfile();
  CHECK(file != NULL && Bvfprint((char *)&one, "PERSON", file) == 0);
  rewind(file);
  CHECK(Bvextread((char *)&two, "PERSON", file) == 0);
  CHECK(Bvcmp((char *)&one, "PERSON", (char *)&two, "PERSON") == 0);
  rewind(file);
  FAILS(Bvextread((char *)&two, "SMALL", file), BNOCNAME);
  FAILS(Bvfprint((char *)&one, "PERSON", NULL), BEINVAL);
  CHECK(Bvprint((char *)&one, "PERSON") == 0);
  fclose(file);
  Bvrefresh();
}

static void buffers_have_their_view_as_subtype(void) {
  static const char *const types[][2] = {
      {"VIEW", "VIEW"}, {"VIEW32", "VIEW"}, {"X_C_TYPE", "X_C_TYPE"}, {X_COMMON, "X_COMMON"}};
  for (size_t at = 0; at < sizeof types / sizeof *types; at++) {
    char type[9] = "", subtype[17] = "";
    struct PERSON *one = (struct PERSON *)tpalloc(types[at][0], "PERSON", 0);
    CHECK(one != NULL && one->age == -1 && strcmp(one->name, "no 'one'") == 0);
    CHECK(tptypes((char *)one, type, subtype) == 1024);
    CHECK(strcmp(type, types[at][1]) == 0 && strcmp(subtype, "PERSON") == 0);
    one->age = 30;
    one = (struct PERSON *)tprealloc((char *)one, 5000);
    CHECK(one != NULL && one->age == 30 && tptypes((char *)one, NULL, NULL) == 5000);
    /* All of it is the program's. */
    memset((char *)one + sizeof *one, 0x55, 5000 - sizeof *one);
    CHECK(Bvnull((char *)one, "age", 0, "PERSON") == 0);
    tpfree((char *)one);
  }
  CHECK(tpalloc("VIEW", "NONE", 0) == NULL && tperrno == TPENOENT);
  CHECK(tpalloc("VIEW", NULL, 0) == NULL && tperrno == TPENOENT);
  CHECK(tpalloc("X_COMMON", "a name with 17 by", 0) == NULL && tperrno == TPEINVAL);
}

/* What Bfprint prints of a view, and the buffer that lines become. */
static void lines_hold_views(UBFH *fields, BFLDID id) {
  UBFH *read = (UBFH *)tpalloc("UBF", NULL, 8192);
  char text[2048] = "", line[64];
  BVIEWFLD *found;
  FILE *file = tmpfile();
  CHECK(file != NULL && Bfprint(fields, file) == 0);
  rewind(file);
  CHECK(fread(text, 1, sizeof text - 1, file) > 0);
  snprintf(line, sizeof line, "((BFLDID32)%d)\tPERSON\n\tage\t41\n", id);
  CHECK(strncmp(text, line, strlen(line)) == 0 && strstr(text, "\n\tweight\t") != NULL);
  rewind(file);
  CHECK(Bextread(read, file) == 0 && Bcmp(read, fields) == 0);
  fclose(file);
  static const struct {
    const char *lines;
    int error;
  } wrong[] = {{"\tname\t\\x\n", BSYNTAX}, {"\tnone\t1\n", BNOCNAME}, {"\tage\n", BSYNTAX}, {"\tname\tlonger than twelve\n", BNOSPACE}};
  for (int at = 0; at < 4; at++) {
    CHECK((file = tmpfile()) != NULL && fprintf(file, "((BFLDID32)%d)\tPERSON\n%s", id, wrong[at].lines) > 0);
    rewind(file);
    CHECK(Bextread(read, file) == -1 && Berror == wrong[at].error && Bcmp(read, fields) == 0);
    fclose(file);
  }
  CHECK((file = tmpfile()) != NULL && fprintf(file, "((BFLDID32)%d)\tNONE\n", id) > 0);
  rewind(file);
  CHECK(Bextread(read, file) == -1 && Berror == BBADVIEW);
  fclose(file);
  CHECK((file = tmpfile()) != NULL && fprintf(file, "+((BFLDID32)%d)\tPERSON\n\tage\t5\n", id) > 0);
  rewind(file);
  CHECK(Bextread(read, file) == 0 && Boccur(read, id) == 3);
  found = (BVIEWFLD *)Bfind(read, id, 0, NULL);
  CHECK(found != NULL && ((struct PERSON *)found->data)->age == 5);
  fclose(file);
  tpfree((char *)read);
}

/* Members of a view in an expression. */
static void expressions_look_into_views(void) {
  static const struct {
    const char *text;
    int holds;
  } all[] = {{"T_VIEW.age == 41", 1}, {"T_VIEW.name == 'a'", 1}, {"T_VIEW[0].ids[0] == 7 && T_VIEW.age", 1},
             {"T_VIEW.ids[1]", 0},    {"T_VIEW.sex", 0},         {"T_VIEW[1].age == 41", 0},
             {"T_VIEW.height == 2.5 && T_VIEW.name %% '[a-c]'", 1}};
  UBFH *fields = (UBFH *)tpalloc("UBF", NULL, 4096);
  struct PERSON one;
  BVIEWFLD field = {0, "PERSON", (char *)&one};
  Bvsinit((char *)&one, "PERSON");
  one.age = 41;
  one.C_ids = 1;
  one.ids[0] = 7;
  one.height = 2.5;
  strcpy(one.name, "a");
  CHECK(Badd(fields, T_VIEW, (char *)&field, 0) == 0);
  for (size_t at = 0; at < sizeof all / sizeof *all; at++) {
    char *tree = Bboolco(all[at].text);
    CHECK(tree != NULL && Bboolev(fields, tree) == all[at].holds);
    if (Bboolev(fields, tree) != all[at].holds) fprintf(stderr, "%s\n", all[at].text);
    Btreefree(tree);
  }
  char *tree = Bboolco("T_VIEW.none == 1");
  FAILS(Bboolev(fields, tree), BNOCNAME);
  Btreefree(tree);
  tree = Bboolco("T_VIEW.age[1] == 1");
  FAILS(Bboolev(fields, tree), BEINVAL);
  Btreefree(tree);
  CHECK(Bboolco("T_VIEW == 1") == NULL && Berror == BEBADOP);
  CHECK(Bboolco("T_VIEW.") == NULL && Berror == BEBADOP);
  tpfree((char *)fields);
}

static void fields_hold_views(void) {
  UBFH *fields = (UBFH *)tpalloc("UBF", NULL, 4096), *copy = (UBFH *)tpalloc("UBF", NULL, 4096);
  BFLDID id = Bmkfldid(BFLD_VIEW, 50), next = BFIRSTFLDID;
  struct PERSON one, two;
  BVIEWFLD field = {0, "PERSON", (char *)&one};
  BFLDOCC at = 0;
  BFLDLEN len = 0;
  Bvsinit((char *)&one, "PERSON");
  one.age = 41;
  CHECK(Badd(fields, id, (char *)&field, 0) == 0);
  one.age = 42;
  CHECK(Bchg(fields, id, 2, (char *)&field, 0) == 0 && Boccur(fields, id) == 3);
  CHECK(Blen(fields, id, 0) == (int)sizeof one && Blen(fields, id, 1) == 0);
  field.data = (char *)&two;
  len = (int)sizeof two - 1;
  FAILS(Bget(fields, id, 0, (char *)&field, &len), BNOSPACE);
  len = sizeof two;
  CHECK(Bget(fields, id, 0, (char *)&field, &len) == 0 && two.age == 41 && len == (int)sizeof two);
  FVIEWFLD *found = (FVIEWFLD *)Bfind(fields, id, 2, &len);
  CHECK(found != NULL && strcmp(found->vname, "PERSON") == 0 && len == (int)sizeof two);
  CHECK(((struct PERSON *)found->data)->age == 42);
  found = (BVIEWFLD *)Bfind(fields, id, 1, &len);
  CHECK(found != NULL && found->vname[0] == '\0' && len == 0);
  found = (BVIEWFLD *)Bgetalloc(fields, id, 0, NULL);
  CHECK(found != NULL && ((struct PERSON *)found->data)->age == 41);
  free(found);
  /* A loop has no place for a struct: it stands behind its BVIEWFLD, and both go into another buffer as they are. */
  struct {
    BVIEWFLD field;
    struct PERSON data;
  } whole;
  len = (int)sizeof whole - 1;
  FAILS(Bnext(fields, &next, &at, (char *)&whole, &len), BNOSPACE);
  for (len = sizeof whole; Bnext(fields, &next, &at, (char *)&whole, &len) == 1; len = sizeof whole) {
    CHECK(next == id && len == (at == 1 ? 0 : (int)sizeof two) && whole.field.data == (char *)&whole.data);
    CHECK(at == 1 || whole.data.age == 41 + at / 2);
    CHECK(Bchg(copy, next, at, (char *)&whole, len) == 0);
  }
  CHECK(Bcmp(copy, fields) == 0);
  /* What stands between the members, and beyond their counts, is nothing to compare. */
  Bvsinit((char *)&whole.data, "PERSON");
  Bvsinit((char *)&two, "PERSON");
  ((char *)&whole.data.height)[-1] = 0x55;
  whole.data.phones[1][0] = 'x';
  strcpy(whole.field.vname, "PERSON");
  whole.field.data = (char *)&whole.data;
  field.data = (char *)&two;
  CHECK(Bchg(copy, id, 1, (char *)&whole, 0) == 0 && Bchg(fields, id, 1, (char *)&field, 0) == 0);
  CHECK(Bcmp(copy, fields) == 0 && Bsubset(copy, fields) == 1);
  CHECK(Bdel(fields, id, 1) == 0 && Bcmp(copy, fields) != 0);
  field.vname[0] = 0;
  CHECK(Bchg(fields, id, 2, Bfind(fields, id, 1, NULL), 0) == 0 && Bchg(fields, id, 1, (char *)&field, 0) == 0);
  strcpy(field.vname, "PERSON");
  lines_hold_views(fields, id);
  CHECK(CBfind(fields, id, 2, NULL, BFLD_VIEW) == NULL && Berror == BEBADOP);
  CHECK(CBgetalloc(fields, id, 2, BFLD_VIEW, NULL) == NULL && Berror == BEBADOP);
  CHECK(Btypcvt(&len, BFLD_UBF, (char *)fields, BFLD_UBF, 0) == NULL && Berror == BEBADOP);
  found = (BVIEWFLD *)Bfind(fields, id, 2, NULL);
  CHECK(found != NULL && ((struct PERSON *)found->data)->age == 42);
  field.data = (char *)&one;
  CHECK(Bfindocc(fields, id, (char *)&field, 0) == 2);
  CHECK(Bcpy(copy, fields) == 0 && Bcmp(copy, fields) == 0);
  CHECK(Bprint(copy) == 0 && Bdel(copy, id, 0) == 0 && Bcmp(copy, fields) != 0);
  CHECK(Bget(fields, id, 0, NULL, NULL) == -1 && Berror == BEINVAL);
  field.data = NULL;
  FAILS(Badd(fields, id, (char *)&field, 0), BEINVAL);
  FAILS(Bget(fields, id, 0, (char *)&field, NULL), BEINVAL);
  strcpy(field.vname, "NONE");
  FAILS(Badd(fields, id, (char *)&field, 0), BBADVIEW);
  FAILS(Badd(fields, id, NULL, 0), BEINVAL);
  FAILS(CBget(fields, id, 0, (char *)&len, NULL, BFLD_LONG), BEBADOP);
  tpfree((char *)fields);
  tpfree((char *)copy);
}

static void each_function_has_its_errors(void) {
  struct PERSON one;
  struct STRANGE strange;
  char *data = (char *)&one, text[32];
  static long long room[16];
  UBFH *fields = (UBFH *)tpalloc("UBF", NULL, 0), *small = (UBFH *)room;
  Bvnext_state_t state;
  Bvsinit(data, "PERSON");
  Bvsinit((char *)&strange, "STRANGE");
  FAILS(CBvget(data, "NONE", "age", 0, text, NULL, BFLD_LONG, 0), BBADVIEW);
  FAILS(CBvget(data, "PERSON", "none", 0, text, NULL, BFLD_LONG, 0), BNOCNAME);
  FAILS(CBvget(NULL, "PERSON", "age", 0, text, NULL, BFLD_LONG, 0), BEINVAL);
  FAILS(CBvget(data, "PERSON", "", 0, text, NULL, BFLD_LONG, 0), BEINVAL);
  FAILS(CBvget(data, "PERSON", "age", 0, NULL, NULL, BFLD_INT, 0), BEINVAL);
#define NOTHING(call, number) CHECK((call) == NULL && Berror == (number))
  NOTHING(CBvgetalloc(NULL, "PERSON", "age", 0, BFLD_LONG, 0, NULL), BEINVAL);
  NOTHING(CBvgetalloc(data, "PERSON", "none", 0, BFLD_LONG, 0, NULL), BNOCNAME);
  NOTHING(CBvgetalloc(data, "PERSON", "age", 0, BFLD_LONG, BVACCESS_NOTNULL, NULL), BNOTPRES);
  NOTHING(CBvgetalloc(data, "PERSON", "age", 0, 99, 0, NULL), BTYPERR);
  FAILS(CBvchg(data, "NONE", "age", 0, text, 0, BFLD_LONG), BBADVIEW);
  FAILS(CBvchg(data, "PERSON", "none", 0, text, 0, BFLD_LONG), BNOCNAME);
  FAILS(CBvchg(data, "PERSON", "age", 0, text, 0, 99), BTYPERR);
  FAILS(CBvchg(data, "PERSON", "ids", 3, "1", 0, BFLD_STRING), BEINVAL);
  FAILS(Bvnull(data, "age", 1, "PERSON"), BEINVAL);
  FAILS(Bvnull(data, "age", 0, "NONE"), BBADVIEW);
  FAILS(Bvnull(data, "none", 0, "PERSON"), BNOCNAME);
  FAILS(Bvselinit(NULL, "age", "PERSON"), BEINVAL);
  FAILS(Bvselinit(data, "age", "NONE"), BBADVIEW);
  FAILS(Bvopt("age", B_BOTH, "NONE"), BBADVIEW);
  FAILS(Bvoccur(data, "NONE", "ids", NULL, NULL, NULL, NULL), BBADVIEW);
  FAILS(Bvoccur(data, "PERSON", "none", NULL, NULL, NULL, NULL), BNOCNAME);
  FAILS(Bvsetoccur(data, "NONE", "ids", 1), BBADVIEW);
  FAILS(Bvsetoccur(data, "PERSON", "none", 1), BNOCNAME);
  FAILS(Bvsinit(data, "NONE"), BBADVIEW);
  FAILS(Bvcpy(data, NULL, "PERSON"), BEINVAL);
  FAILS(Bvcpy(data, data, "NONE"), BBADVIEW);
  FAILS(Bvnext(&state, "NONE", text, NULL, NULL, NULL), BBADVIEW);
  CHECK(Bvcmp(data, "NONE", data, "PERSON") == -2 && Berror == BBADVIEW);
  FAILS(Bvprint(NULL, "PERSON"), BEINVAL);
  FAILS(Bvprint(data, "NONE"), BBADVIEW);
  FAILS(Bvfprint(data, "NONE", stdout), BBADVIEW);
  FAILS(Bvftos(NULL, data, "PERSON"), BNOTFLD);
  FAILS(Bvftos(fields, NULL, "PERSON"), BEINVAL);
  FAILS(Bvftos(fields, (char *)&strange, "STRANGE"), BBADNAME);
  FAILS(Bvstof(fields, data, BUPDATE, "NONE"), BBADVIEW);
  FAILS(Bvstof(fields, (char *)&strange, BCONCAT, "STRANGE"), BBADNAME);
  CHECK(Binit(small, 32) == 0);
  FAILS(Bvstof(small, data, BCONCAT, "PERSON"), BNOSPACE);
  static const struct {
    const char *line;
    int error;
  } lines[] = {{"none\t1\n", BNOCNAME}, {"age\n", BSYNTAX}, {"name\ttwelve bytes\n", BNOSPACE}};
  for (int at = 0; at < 3; at++) {
    FILE *file = tmpfile();
    CHECK(file != NULL && fputs(lines[at].line, file) >= 0);
    rewind(file);
    /* errors: BNOCNAME, BSYNTAX, BNOSPACE */
    CHECK(Bvextread(data, "PERSON", file) == -1 && Berror == lines[at].error);
    fclose(file);
  }
  FAILS(Bvextread(data, "PERSON", NULL), BEINVAL);
  FAILS(Bvextread(data, "NONE", stdin), BBADVIEW);
  tpfree((char *)fields);
}

int main(int argc, char **argv) {
  if (argc > 1) { /* files that cannot be used */
    CHECK(Bvsizeof("PERSON") == -1 && Berror == atoi(argv[1]));
    CHECK(tpalloc("VIEW", "PERSON", 0) == NULL && tperrno == TPENOENT);
    return failures != 0;
  }
  struct_is_what_the_compiler_made();
  values_are_converted_both_ways();
  counts_and_members_are_shown();
  fields_come_and_go();
  lines_are_read_back();
  buffers_have_their_view_as_subtype();
  fields_hold_views();
  expressions_look_into_views();
  each_function_has_its_errors();
  return failures != 0;
}
