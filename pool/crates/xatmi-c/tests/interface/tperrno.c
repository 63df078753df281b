/* Which functions leave tperrno as the call before them set it. argv: a folder for a log. */
#include <atmi.h>
#include <ndebug.h>
#include <stdlib.h>
#include <string.h>
#include <userlog.h>

#include "check.h"

/* tperrno and its text stay while `work` is done. */
#define LEAVES(work)                                                             \
  do {                                                                           \
    char before[512];                                                            \
    CHECK(tpcall(NULL, NULL, 0, NULL, NULL, 0) == -1 && tperrno == TPEINVAL);    \
    strncpy(before, tpstrerror(tperrno), sizeof before - 1);                     \
    before[sizeof before - 1] = 0;                                               \
    work;                                                                        \
    CHECK(tperrno == TPEINVAL && strcmp(before, tpstrerror(tperrno)) == 0);      \
  } while (0)

/* Not a literal, of which compilers would warn. */
static const char *none = NULL;

static void lines(UBFH *ubf) {
  LEAVES(TP_LOG(log_error, "%s", tpstrerror(tperrno)));
  LEAVES(NDRX_LOG(log_debug, "not written"));
  LEAVES(UBF_LOG(log_error, "x"));
  LEAVES(TP_LOG(log_error, none));
  LEAVES(tplog(log_error, "x"));
  LEAVES(tplog(log_debug, "not written"));
  LEAVES(tplog(log_error, NULL));
  LEAVES(tplogex(log_error, "file.c", 1, "x"));
  LEAVES(tplogex(log_error, NULL, 1, NULL));
  LEAVES(tplogdump(log_error, "x", "bytes", 5));
  LEAVES(tplogdump(log_error, "x", NULL, 5));
  LEAVES(tplogdumpdiff(log_error, "x", "bytes", "bytEs", 5));
  LEAVES(tplogdumpdiff(log_error, "x", "bytes", NULL, 5));
  LEAVES(tplogprintubf(log_error, "x", ubf));
  LEAVES(tplogprintubf(log_error, "x", NULL));
  LEAVES(userlog("x"));
  LEAVES(userlog(none));
}

int main(int argc, char **argv) {
  const char *folder = argc > 1 ? argv[1] : ".";
  char path[4096], name[64];
  snprintf(path, sizeof path, "%s/request.log", folder);
  UBFH *ubf = (UBFH *)tpalloc("UBF", NULL, 512);
  BFLDID id = Bmkfldid(BFLD_LONG, 5);
  long value = 7;
  CHECK(ubf != NULL);

  lines(ubf);
  /* Where the log goes: success leaves it, an error sets it. */
  LEAVES(CHECK(tplogconfig(LOG_FACILITY_TP_THREAD, log_warn, NULL, NULL, NULL) == 0));
  LEAVES(CHECK(tplogsetreqfile_direct(path) == 0));
  LEAVES(CHECK(tploggetreqfile(NULL, 0) == 1));
  lines(ubf);
  LEAVES(tplogclosereqfile());
  LEAVES(tplogclosethread());
  LEAVES(CHECK(tploggetreqfile(name, sizeof name) == 0));
  /* Lines that cannot be written are lost, and no error of the program's. */
  CHECK(setenv("ULOGPFX", "/no/such/folder/log", 1) == 0);
  CHECK(tplogconfig(LOG_FACILITY_TP, -1, NULL, NULL, "/no/such/folder/log") == -1);
  CHECK(tperrno == TPEOS);
  lines(ubf);

  /* What asks about errors, and what knows without a pool. */
  LEAVES(tpstrerror(TPENOENT));
  LEAVES(tpecodestr(TPENOENT));
  LEAVES(tperrordetail(0));
  LEAVES(tpstrerrordetail(0, 0));
  LEAVES(tpgetnodeid());
  LEAVES(tpfree(NULL));
  /* Functions of ubf.h have an error of their own. */
  LEAVES(Badd(ubf, id, (char *)&value, 0));
  LEAVES(Badd(NULL, id, (char *)&value, 0));
  LEAVES(Bget(ubf, id, 9, NULL, NULL));
  LEAVES(Bstrerror(Berror));
  LEAVES(B_error("as expected"));
  LEAVES(Bfldid("NO_SUCH_NAME"));
  LEAVES(Bboolpr(NULL, stderr));
  LEAVES(Bfprint(ubf, stderr));
  tpfree((char *)ubf);
  return failures != 0;
}
