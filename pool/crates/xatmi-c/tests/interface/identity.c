/* Identity of a program, contexts without a pool, TPINIT, details of errors. */
#include <atmi.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

int main(void) {
  char type[8], subtype[16];
  CHECK(tpgetsrvid() == -1 && tperrno == TPEPROTO);
  CHECK(tpgetnodeid() == 1 && tperrno == TPEPROTO);
  setenv("NDRX_NODEID", "17", 1);
  CHECK(tpgetnodeid() == 17);
  setenv("NDRX_NODEID", "0", 1);
  CHECK(tpgetnodeid() == -1 && tperrno == TPEINVAL);
  CHECK(strstr(tpstrerror(tperrno), "NDRX_NODEID") != NULL);
  setenv("NDRX_NODEID", "x", 1);
  CHECK(tpgetnodeid() == -1 && tperrno == TPEINVAL);

  TPINIT *info = (TPINIT *)tpalloc("TPINIT", NULL, TPINITNEED(100));
  long len = 0;
  CHECK(TPINITNEED(0) == sizeof(TPINIT) && TPINITNEED(8) == sizeof(TPINIT));
  CHECK(TPINITNEED(100) == (long)sizeof(TPINIT) - 8 + 100);
  CHECK(tptypes((char *)info, type, subtype) == TPINITNEED(100) && strcmp(type, "TPINIT") == 0);
  CHECK(info->flags == 0 && info->usrname[0] == '\0');
  CHECK(tpcall("X", (char *)info, 0, (char **)&info, &len, 0) == -1);
  CHECK(tperrno == TPESYSTEM || tperrno == TPEINVAL);
  CHECK(tpacall("X", (char *)info, 0, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpinit(info) == -1 && tperrno == TPESYSTEM);
  info->flags = TPMULTICONTEXTS;
  CHECK(tpinit(info) == -1 && tperrno == TPESYSTEM);
  tpfree((char *)info);

  TPCONTEXT_T context = TPINVALIDCONTEXT;
  CHECK(tpgetctxt(&context, 0) == 0 && context == TPNULLCONTEXT);
  CHECK(tpgetctxt(NULL, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpgetctxt(&context, 1) == -1 && tperrno == TPEINVAL);
  CHECK(tpsetctxt(TPNULLCONTEXT, 0) == 0);
  CHECK(tpsetctxt(TPNULLCONTEXT, 1) == -1 && tperrno == TPEINVAL);
  CHECK(tpsetctxt((TPCONTEXT_T)4711, 0) == -1 && tperrno == TPENOENT);
  CHECK(tpsetctxt(TPINVALIDCONTEXT, 0) == -1 && tperrno == TPENOENT);

  CHECK(tpsetctxt((TPCONTEXT_T)4711, 0) == -1 && tperrordetail(0) == TPED_MINVAL && tperrno == TPENOENT);
  CHECK(strcmp(tpstrerrordetail(TPED_MINVAL, 0), "0: no further cause") == 0);
  CHECK(tpchkunsol() == -1 && tperrno == TPEPROTO && tperrordetail(0) == TPED_NOUNSOLHANDLER);
  CHECK(strstr(tpstrerrordetail(tperrordetail(0), 0), "tpsetunsol") != NULL && tperrno == TPEPROTO);
  CHECK(tpsubscribe("E", NULL, NULL, 0) == -1 && tperrordetail(0) == TPED_NOUNSOLHANDLER);
  CLIENTID unknown;
  memset(&unknown, 0, sizeof unknown);
  CHECK(tpnotify(&unknown, NULL, 0, 0) == -1 && tperrno == TPEINVAL && tperrordetail(0) == 0);
  strcpy(unknown.clientdata, "1,2,00000000000000ff");
  CHECK(tpnotify(&unknown, NULL, 0, 0) == -1 && tperrno == TPENOENT);
  CHECK(tperrordetail(0) == TPED_NOCLIENT && strstr(tpstrerrordetail(TPED_NOCLIENT, 0), "ended") != NULL);
  CHECK(tpgetctxt(NULL, 0) == -1 && tperrordetail(0) == TPED_MINVAL);
  CHECK(strstr(tpstrerrordetail(TPED_PERM, 0), "7: ") != NULL);
  CHECK(tpstrerrordetail(99, 0) == NULL && tperrno == TPEINVAL);
  CHECK(tpstrerrordetail(0, 1) == NULL && tperrno == TPEINVAL);
  CHECK(tperrordetail(1) == -1 && tperrno == TPEINVAL);

  CHECK(TPEV_DISCONIMM == 1 && TPEV_SVCERR == 2 && TPEV_SVCFAIL == 4 && TPEV_SVCSUCC == 8);
  CHECK(TPEV_SENDONLY == 0x20 && TPEVSERVICE == 1 && TPEVPERSIST == 8 && TPU_IGN == 4);
  return failures != 0;
}
