/* A program as FML has them, with the names of 16 and of 32 bits; and functions as values. */
#include <atmi.h>
#include <fml.h>
#include <fml1632.h>
#include <stdlib.h>
#include <string.h>
#include <userlog.h>

#include "check.h"

struct functions {
  int (*adds)(UBFH *, BFLDID, const char *);
  int (*gets)(UBFH *, BFLDID, BFLDOCC, char *);
  int (*chgs)(UBFH *, BFLDID, BFLDOCC, const char *);
  char *(*finds)(UBFH *, BFLDID, BFLDOCC);
  int (*getrv)(UBFH *, char *, BFLDLEN *, ...);
  int (*log)(const char *, ...);
};

static const struct functions functions = {Badds, Bgets, Bchgs, Bfinds, Bgetrv, userlog};

int main(void) {
  FLDID name = Fmkfldid(FLD_STRING, 7);
  FLDID32 age = Fmkfldid32(FLD_LONG, 8);
  FLDLEN len = 0;
  FLDOCC occurrence = -1;
  char text[32] = "";
  long number = 42;
  FBFR *old = (FBFR *)tpalloc("FML", NULL, 1024);
  FBFR32 *wide = Falloc32(10, 100);
  CHECK(Fadd(old, name, "one", 0) == 0 && Fadd32(old, age, (char *)&number, 0) == 0);
  CHECK(CFget(old, age, 0, text, NULL, FLD_STRING) == 0 && strcmp(text, "42") == 0);
  CHECK(Fget(old, name, 1, text, &len) == -1 && Ferror == FNOTPRES);
  CHECK(strstr(Fstrerror(Ferror), "BNOTPRES") != NULL);
  CHECK(F16to32(wide, old) == 0 && Foccur32(wide, name) == 1 && Fnum(wide) == 2);
  CHECK(F32to16(old, wide) == 0 && Fielded(old) == 1 && Fldtype(age) == FLD_LONG);
  CHECK(Ffindlast(old, name, &occurrence, &len) != NULL && occurrence == 0 && len == 4);
  char *tree = Fboolco32("1 < 2");
  CHECK(tree != NULL && Fboolev(old, tree) == 1 && Ffloatev32(old, tree) == 1.0);
  free(tree);
  F_error("expected");
  F_error32(NULL);

  CHECK(functions.adds(old, name, "two") == 0 && functions.chgs(old, name, 1, "three") == 0);
  CHECK(functions.gets(old, name, 1, text) == 0 && strcmp(text, "three") == 0);
  CHECK(strcmp(functions.finds(old, name, 1), "three") == 0);
  CHECK(functions.getrv(old, text, NULL, name, 0, BBADFLDOCC) == 0 && strcmp(text, "one") == 0);
  CHECK(functions.log != NULL);

  /* A ptr field takes the pointer itself. */
  FLDID32 address = Fmkfldid32(FLD_PTR, 9);
  char *got = NULL;
  CHECK(Fadd32(wide, address, text, 0) == 0 && Fget32(wide, address, 0, (char *)&got, NULL) == 0);
  CHECK(got == text && Fchg32(wide, address, 0, (char *)&number, 0) == 0);
  CHECK(Fget32(wide, address, 0, (char *)&got, NULL) == 0 && got == (char *)&number);
  CHECK(Fchg32(wide, address, 0, NULL, 0) == 0 && Fpres32(wide, address, 0) == 0);
  CHECK(Fadd(wide, address, text, 0) == 0 && Fchg(wide, address, 1, text, 0) == 0 && Foccur32(wide, address) == 2);

  /* Values that are there in any case. */
  short few = -3;
  FLDID32 small = Fmkfldid32(FLD_SHORT, 10);
  CHECK(Fadd32(wide, small, (char *)&few, 0) == 0 && Fvall32(wide, small, 0) == -3);
  CHECK(Fvall32(wide, age, 0) == 42 && Fvall(wide, age, 9) == 0 && Ferror32 == FNOTPRES);
  CHECK(Fvall32(wide, name, 0) == 0 && strcmp(Fvals32(wide, name, 0), "one") == 0);
  CHECK(Fvals(wide, name, 9)[0] == 0 && Fvals32(wide, age, 0)[0] == 0);
  CHECK(strcmp(FMLTYPE, "FML") == 0 && strcmp(FMLTYPE32, "FML32") == 0);

  /* With a length the text is a pattern of the whole value. */
  CHECK(Fadd32(wide, name, "ABC", 0) == 0 && Fadd32(wide, name, "A.C", 0) == 0);
  CHECK(Ffindocc32(wide, name, "A.C", 0) == 2 && Ffindocc32(wide, name, "A.C", 1) == 1);
  CHECK(Ffindocc32(wide, name, "x|.*C", 1) == 1 && CFfindocc32(wide, name, "[A-B].C", 1, FLD_STRING) == 1);
  CHECK(Ffindocc32(wide, name, "A", 1) == -1 && Ferror32 == FNOTPRES);
  CHECK(Ffindocc32(wide, name, "(", 1) == -1 && Ferror32 == FEINVAL);
  CHECK(CFfindocc32(wide, name, "(", 1, FLD_STRING) == -1 && Ferror32 == FEINVAL);
  CHECK(CFfindocc32(wide, name, (char *)&number, 8, FLD_LONG) == -1 && Ferror32 == FNOTPRES);
  CHECK(Ffree(old) == 0 && Ffree32(wide) == 0);
  return failures != 0;
}
