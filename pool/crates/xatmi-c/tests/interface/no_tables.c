/* Without field tables: the error number is the argument. errors: BFTOPEN, BFTSYNTAX. */
#include <atmi.h>
#include <stdlib.h>
#include <ubf.h>

#include "check.h"

int main(int argc, char **argv) {
  int error = argc > 1 ? atoi(argv[1]) : 0;
  UBFH *ubf = (UBFH *)tpalloc("UBF", NULL, 0);
  CHECK(Bfldid("T_ACCNUM") == BBADFLDID && Berror == error);
  CHECK(Bfname(167773161) == NULL && Berror == error);
  CHECK(Badd(ubf, 167773161, "x", 0) == 0 && Bprint(ubf) == 0 && Berror == 0);
  CHECK(Bboolco("T_ACCNUM == 1") == NULL && Berror == error);
  FILE *file = tmpfile();
  CHECK(fputs("T_ACCNUM\tx\n", file) >= 0 && fseek(file, 0, SEEK_SET) == 0);
  CHECK(Bextread(ubf, file) == -1 && Berror == error && Bnum(ubf) == 1);
  fclose(file);
  tpfree((char *)ubf);
  return failures != 0;
}
