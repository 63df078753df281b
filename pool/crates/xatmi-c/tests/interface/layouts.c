/* Sizes, places and numbers that programs were compiled with elsewhere. */
#include <atmi.h>
#include <stddef.h>
#include <ubf.h>

#include "check.h"

int main(void) {
  CHECK(sizeof(TPSVCINFO) == 200);
  CHECK(offsetof(TPSVCINFO, name) == 0);
  CHECK(offsetof(TPSVCINFO, data) == 32);
  CHECK(offsetof(TPSVCINFO, len) == 40);
  CHECK(offsetof(TPSVCINFO, flags) == 48);
  CHECK(offsetof(TPSVCINFO, cd) == 56);
  CHECK(offsetof(TPSVCINFO, appkey) == 64);
  CHECK(offsetof(TPSVCINFO, cltid) == 72);
  CHECK(sizeof(CLIENTID) == 96);
  CHECK(offsetof(TPSVCINFO, fname) == 168);
  CHECK(sizeof(TPINIT) == 152);
  CHECK(sizeof(BVIEWFLD) == 48 && offsetof(BVIEWFLD, vname) == 4 && offsetof(BVIEWFLD, data) == 40);
  CHECK(sizeof(BFLDID) == 4 && sizeof(BFLDLEN) == 4 && sizeof(BFLDOCC) == 4);
  CHECK(TPSUCCESS == 2 && TPFAIL == 1 && TPEXIT == 0x08000000);
  CHECK(TPNOBLOCK == 1 && TPSIGRSTRT == 2 && TPNOREPLY == 4 && TPNOTIME == 0x20);
  CHECK(TPGETANY == 0x80 && TPNOCHANGE == 0x100 && TPINITFAIL == 30);
  CHECK(Bmkfldid(BFLD_STRING, 1001) == 167773161);
  CHECK(Bmkfldid(BFLD_DOUBLE, 1003) == 134218731);
  CHECK(Bfldtype(167773161) == BFLD_STRING && Bfldno(167773161) == 1001);
  CHECK(Bmkfldid(BFLD_INT, 1) == BBADFLDID && Berror == BTYPERR);
  CHECK(Bmkfldid(BFLD_LONG, 0) == BBADFLDID && Berror == BBADFLD);
  CHECK(Bmkfldid(BFLD_LONG, BMAXFLDNO) != BBADFLDID);
  CHECK(Bmkfldid(BFLD_LONG, BMAXFLDNO + 1) == BBADFLDID && Berror == BBADFLD);
  return failures != 0;
}
