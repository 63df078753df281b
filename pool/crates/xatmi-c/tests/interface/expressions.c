/* Boolean expressions over the fields of the table that the test wrote, and buffers in files. */
#include <atmi.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <ubf.h>

#include "check.h"

static BFLDID name_field, age_field, inner_field, bytes_field;

static UBFH *buffer(long size) { return (UBFH *)tpalloc("UBF", NULL, size); }

static UBFH *person(void) {
  UBFH *ubf = buffer(2048), *inner = buffer(512);
  CHECK(Badds(ubf, name_field, "John") == 0 && Badds(ubf, name_field, "Jim") == 0);
  CHECK(Badds(ubf, age_field, "17") == 0 && Badds(ubf, age_field, "64") == 0);
  CHECK(Badds(inner, name_field, "deep") == 0 && Badd(ubf, inner_field, (char *)inner, 0) == 0);
  tpfree((char *)inner);
  return ubf;
}

static int holds(UBFH *ubf, const char *text) {
  char *tree = Bboolco(text);
  int result = Bboolev(ubf, tree);
  CHECK(tree != NULL && Berror == 0);
  Btreefree(tree);
  return result;
}

static void results(void) {
  UBFH *ubf = person();
  CHECK(holds(ubf, "T_NAME %% 'J.*n' && T_AGE < 18") == 1);
  CHECK(holds(ubf, "T_NAME %% 'J' || T_AGE[1] != 64") == 0);
  CHECK(holds(ubf, "T_AGE[?] == 64 && T_INNER.T_NAME == 'deep' && !T_BYTES") == 1);
  CHECK(holds(ubf, "T_NAME !% 'J.*n' ^ T_AGE") == 1);
  char *tree = Bboolco("T_AGE * 2 + 0.5");
  CHECK(Bfloatev(ubf, tree) == 34.5 && Berror == 0);
  /* A tree is one piece of memory that says how long it is. */
  size_t len = (unsigned char)tree[0] + 256 * (size_t)(unsigned char)tree[1];
  char *copy = malloc(len);
  memcpy(copy, tree, len);
  free(tree);
  CHECK(Bfloatev(ubf, copy) == 34.5);
  free(copy);
  /* A field by itself is its value where a number is asked for, and there or not where a truth is. */
  char *alone = Bboolco("T_AGE");
  CHECK(Bfloatev(ubf, alone) == 17 && Bboolev(ubf, alone) == 1);
  free(alone);
  tpfree((char *)ubf);
}

static void many(void) {
  UBFH *ubf = person();
  char *trees[100];
  for (int i = 0; i < 100; i++) {
    char text[64];
    snprintf(text, sizeof text, "T_AGE + %d", i);
    trees[i] = Bboolco(text);
  }
  for (int round = 0; round < 3; round++)
    for (int i = 0; i < 100; i++) CHECK(Bfloatev(ubf, trees[i]) == 17 + i);
  for (int i = 0; i < 100; i++) Btreefree(trees[i]);
  tpfree((char *)ubf);
}

static void printed(void) {
  char line[128] = "";
  FILE *file = tmpfile();
  char *tree = Bboolco("T_AGE>1||!T_NAME");
  CHECK(Bboolpr(tree, file) == 0 && fseek(file, 0, SEEK_SET) == 0);
  CHECK(fgets(line, sizeof line, file) != NULL);
  CHECK(strcmp(line, "((T_AGE[0] > 1) || (!T_NAME[0]))\n") == 0);
  CHECK(Bboolpr(tree, NULL) == -1 && Berror == BEINVAL);
  CHECK(Bboolpr(NULL, file) == -1 && Berror == BEINVAL);
  fclose(file);
  file = fopen("/dev/full", "w");
  setvbuf(file, NULL, _IONBF, 0);
  CHECK(Bboolpr(tree, file) == -1 && Berror == BEUNIX);
  fclose(file);
  Btreefree(tree);
  Btreefree(NULL);
}

static void wrong(void) {
  UBFH *ubf = person();
  static long long stray_fields[16];
  char *long_text = malloc(9001), *tree = Bboolco("T_AGE / T_AGE[7]");
  char no_tree[16] = "not a tree";
  memset(long_text, ' ', 9000);
  long_text[9000] = 0;
  CHECK(Bboolco(NULL) == NULL && Berror == BEINVAL);
  CHECK(Bboolco(long_text) == NULL && Berror == BEINVAL);
  CHECK(Bboolco("") == NULL && Berror == BSYNTAX);
  CHECK(Bboolco("T_AGE = 1") == NULL && Berror == BSYNTAX);
  CHECK(strstr(Bstrerror(Berror), "column 7") != NULL);
  CHECK(Bboolco("T_NAME %% '('") == NULL && Berror == BSYNTAX);
  CHECK(Bboolco("T_NOBODY == 1") == NULL && Berror == BBADNAME);
  CHECK(Bboolco("T_INNER == 1") == NULL && Berror == BEBADOP);
  CHECK(Bboolev(ubf, tree) == 0 && Berror == 0);
  CHECK(Bboolev(NULL, tree) == -1 && Berror == BNOTFLD);
  CHECK(Bboolev((UBFH *)STRAY, tree) == -1 && Berror == BNOTFLD);
  CHECK(Bboolev((UBFH *)stray_fields, tree) == -1 && Berror == BNOTFLD);
  CHECK(Bboolev((UBFH *)((char *)stray_fields + 4), tree) == -1 && Berror == BALIGNERR);
  CHECK(Bboolev(ubf, NULL) == -1 && Berror == BEINVAL);
  CHECK(Bboolev(ubf, no_tree) == -1 && Berror == BEINVAL);
  CHECK(Bfloatev(NULL, tree) == -1 && Berror == BNOTFLD);
  CHECK(Bfloatev((UBFH *)((char *)stray_fields + 4), tree) == -1 && Berror == BALIGNERR);
  CHECK(Bfloatev(ubf, no_tree) == -1 && Berror == BEINVAL);
  Btreefree(tree);
  tree = Bboolco("1 / (T_AGE - 17)");
  CHECK(Bboolev(ubf, tree) == 0 && Berror == 0);
  CHECK(Bfloatev(ubf, tree) == 0 && Berror == 0);
  tree[2] = 'x';
  CHECK(Bboolev(ubf, tree) == -1 && Berror == BEINVAL);
  Btreefree(tree);
  free(long_text);
  tpfree((char *)ubf);
}

static FILE *holding(const char *text) {
  FILE *file = tmpfile();
  CHECK(fputs(text, file) >= 0 && fseek(file, 0, SEEK_SET) == 0);
  return file;
}

static void written_and_read(void) {
  UBFH *ubf = person(), *other = buffer(4096), *small = buffer(64);
  static long long stray[16];
  FILE *file = tmpfile(), *full = fopen("/dev/full", "w"), *folder = fopen("/", "r");
  CHECK(Bwrite(ubf, file) == 0 && Bwrite(other, file) == 0 && fseek(file, 0, SEEK_SET) == 0);
  CHECK(Bread(other, file) == 0 && Bcmp(other, ubf) == 0 && Bsizeof(other) == 4096);
  CHECK(Bread(other, file) == 0 && Bnum(other) == 0);
  CHECK(Bread(other, file) == -1 && Berror == BEUNIX);
  CHECK(fseek(file, 0, SEEK_SET) == 0);
  CHECK(Bread(small, file) == -1 && Berror == BNOSPACE && Bnum(small) == 0);
  CHECK(Bread(other, folder) == -1 && Berror == BEUNIX);
  CHECK(Bread(NULL, file) == -1 && Berror == BNOTFLD);
  CHECK(Bread((UBFH *)stray, file) == -1 && Berror == BNOTFLD);
  CHECK(Bread((UBFH *)((char *)stray + 4), file) == -1 && Berror == BALIGNERR);
  CHECK(Bread(other, NULL) == -1 && Berror == BEINVAL);
  setvbuf(full, NULL, _IONBF, 0);
  CHECK(Bwrite(ubf, full) == -1 && Berror == BEUNIX);
  CHECK(Bwrite(ubf, NULL) == -1 && Berror == BEINVAL);
  CHECK(Bwrite(NULL, file) == -1 && Berror == BNOTFLD);
  CHECK(Bwrite((UBFH *)((char *)stray + 4), file) == -1 && Berror == BALIGNERR);
  fclose(file);
  file = holding("this is not a buffer of fields, whatever it is");
  CHECK(Bread(other, file) == -1 && Berror == BNOTFLD);
  fclose(file);
  fclose(full);
  fclose(folder);
  UBFH *all[] = {ubf, other, small};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) tpfree((char *)all[i]);
}

static void read_from_text(void) {
  UBFH *ubf = person(), *other = buffer(4096), *small = Balloc(1, 8);
  static long long stray[16];
  FILE *file = tmpfile();
  CHECK(Bfprint(ubf, file) == 0 && fputs("\nT_NAME\tnext\n", file) >= 0);
  CHECK(fseek(file, 0, SEEK_SET) == 0);
  CHECK(Bextread(other, file) == 0 && Bcmp(other, ubf) == 0);
  CHECK(Bextread(other, file) == 0 && Boccur(other, name_field) == 3);
  CHECK(Bextread(other, file) == 0 && Boccur(other, name_field) == 3);
  fclose(file);
  file = holding("# a remark\n+T_AGE\t18\n-T_NAME\n=T_BYTES\tT_NAME\nT_NAME\t\\41\\\\\n");
  CHECK(Bextread(other, file) == 0);
  char text[64] = "";
  CHECK(holds(other, "T_AGE == 18 && T_AGE[1] == 64 && T_BYTES == 'Jim'") == 1);
  CHECK(Bgets(other, name_field, 2, text) == 0 && strcmp(text, "A\\") == 0);
  fclose(file);
  /* errors: BSYNTAX, BBADNAME, BBADFLD, BNOTPRES */
  struct {
    const char *text;
    int error;
  } wrong[] = {
      {"T_NAME", BSYNTAX},         {"T_AGE\tx\n", BSYNTAX},   {"\tT_AGE\t1\n", BSYNTAX},
      {"T_NOBODY\t1\n", BBADNAME}, {"((BFLDID32)0)\tx\n", BBADFLD}, {"T_NAME\t\\zz\n", BSYNTAX},
      {"T_NAME\t\xff\n", BSYNTAX}, {"=T_AGE\tT_BYTES\n-T_BYTES\n=T_AGE\tT_BYTES\n", BNOTPRES},
  };
  UBFH *before = buffer(4096);
  CHECK(Bcpy(before, other) == 0);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    file = holding(wrong[i].text);
    CHECK(Bextread(other, file) == -1 && Berror == wrong[i].error);
    CHECK(Bcmp(other, before) == 0);
    fclose(file);
  }
  file = holding("T_NAME\ta text that is longer than the buffer can hold\n");
  CHECK(Bextread(small, file) == -1 && Berror == BNOSPACE && Bnum(small) == 0);
  fclose(file);
  file = tmpfile();
  for (int i = 0; i < 70000; i++) fputs("#\n", file);
  CHECK(fseek(file, 0, SEEK_SET) == 0);
  CHECK(Bextread(small, file) == -1 && Berror == BNOSPACE);
  fclose(file);
  file = fopen("/", "r");
  CHECK(Bextread(other, file) == -1 && Berror == BEUNIX);
  CHECK(Bextread(NULL, file) == -1 && Berror == BNOTFLD);
  CHECK(Bextread((UBFH *)stray, file) == -1 && Berror == BNOTFLD);
  CHECK(Bextread((UBFH *)((char *)stray + 4), file) == -1 && Berror == BALIGNERR);
  CHECK(Bextread(other, NULL) == -1 && Berror == BEINVAL);
  fclose(file);
  UBFH *all[] = {ubf, other, small, before};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) tpfree((char *)all[i]);
}

static long seven(UBFH *ubf, char *name) {
  CHECK(strcmp(name, "seven") == 0 && Bisubf(ubf) == 1);
  CHECK(Blen(ubf, name_field, 99) == -1 && Berror == BNOTPRES);
  return 7;
}

static long length(UBFH *ubf, char *name, char *text) {
  CHECK(strcmp(name, "length") == 0 && Bisubf(ubf) == 1);
  return (long)strlen(text);
}

/* Functions of the program in expressions. */
static void functions(void) {
  UBFH *ubf = buffer(1024);
  long age = 7;
  CHECK(Badd(ubf, age_field, (char *)&age, 0) == 0);
  CHECK(Bboolco("seven()") == NULL && Berror == BSYNTAX);
  CHECK(Bboolsetcbf("seven", seven) == 0 && Bboolsetcbf2("length", length) == 0);
  CHECK(holds(ubf, "seven() == T_AGE && length('it is 7') == seven()") == 1 && Berror == 0);
  CHECK(holds(ubf, "T_AGE || seven() < 3") == 1 && holds(ubf, "seven() - length('1234567')") == 0);
  char *tree = Bboolco("seven() * 2"), *copy = Bboolco("length('ab')");
  CHECK(tree != NULL && Bfloatev(ubf, tree) == 14.0 && Bboolpr(copy, stdout) == 0);
  const char *wrong[] = {"seven('x')", "length()", "length('x'", "length('x", "length(T_AGE)", "seven() %% '7'"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    CHECK(Bboolco(wrong[i]) == NULL && Berror == BSYNTAX);
  }
  /* Taken back: what calls it is an error, for trees that there are too. */
  CHECK(Bboolsetcbf("seven", NULL) == 0 && Bboolco("seven()") == NULL && Berror == BSYNTAX);
  CHECK(Bfloatev(ubf, tree) == -1 && Berror == BSYNTAX);
  char long_name[66];
  memset(long_name, 'x', 65);
  long_name[65] = 0;
  const char *names[] = {"", "7up", "a b", long_name, NULL};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    CHECK(Bboolsetcbf(names[i], seven) == -1 && Berror == BBADNAME);
    CHECK(Bboolsetcbf2(names[i], length) == -1 && Berror == BBADNAME);
  }
  Btreefree(tree);
  Btreefree(copy);
  tpfree((char *)ubf);
}

int main(void) {
  name_field = Bfldid("T_NAME");
  age_field = Bfldid("T_AGE");
  inner_field = Bfldid("T_INNER");
  bytes_field = Bfldid("T_BYTES");
  CHECK(name_field != 0 && age_field != 0 && inner_field != 0 && bytes_field != 0);
  results();
  many();
  printed();
  wrong();
  written_and_read();
  read_from_text();
  functions();
  return failures != 0;
}
