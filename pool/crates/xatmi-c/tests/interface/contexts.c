/* Contexts that a program makes by themselves, and functions that name one in front: errors, transactions, times and logs
 * are those of the context, on whichever thread. Without a pool. Argument: a folder. */
#include <oatmi.h>
#include <oatmisrv.h>
#include <odebug.h>
#include <onerror.h>
#include <oubf.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static char file[4096];

/* What a thread does in the context that it is given. */
static void *elsewhere(void *given) {
  TPCONTEXT_T *context = given;
  CHECK(Otperrno(context) == TPEPROTO && strstr(Otpstrerror(context, TPEPROTO), "do not nest") != NULL);
  CHECK(tperrno == 0 && tpgetlev() == 0);
  CHECK(OBerror(context) == BNOTFLD && Berror == 0);
  CHECK(Otpgetlev(context) == 1 && tpgetlev() == 0);
  CHECK(Otpgblktime(context, TPBLK_ALL) == 7 && tpgblktime(TPBLK_ALL) == 0);
  char name[sizeof file] = "";
  CHECK(Otploggetreqfile(context, name, sizeof name) == 1 && strcmp(name, file) == 0);
  CHECK(tploggetreqfile(name, sizeof name) == 0);
  OTP_LOG(context, log_error, "%s", "from elsewhere");
  CHECK(Otpabort(context, 0) == 0 && Otpgetlev(context) == 0);
  return NULL;
}

static void of_a_context(void) {
  pthread_t thread;
  char name[sizeof file] = "";
  TPCONTEXT_T one = tpnewctxt(0, 0), other = tpnewctxt(0, 0), none = TPNULLCONTEXT, seen = one;
  CHECK(one != NULL && other != NULL && one != other);
  CHECK(tpgetctxt(&seen, 0) == 0 && seen == TPNULLCONTEXT);
  CHECK(Otpbegin(&one, 30, 0) == 0 && Otpgetlev(&one) == 1 && Otpgetlev(&other) == 0 && tpgetlev() == 0);
  CHECK(Otpbegin(&one, 30, 0) == -1 && Otperrno(&one) == TPEPROTO && tperrno == 0 && Otperrno(&other) == 0);
  CHECK(Otpsblktime(&one, 7, TPBLK_ALL) == 0);
  CHECK(Otplogsetreqfile_direct(&one, file) == 0);
  CHECK(OBnum(&one, NULL) == -1 && OBerror(&one) == BNOTFLD && OBerror(&other) == 0);
  CHECK(strcmp(OBecodestr(&one, BNOTFLD), "BNOTFLD") == 0 && strcmp(Becodestr(BNOTPRES), "BNOTPRES") == 0);
  CHECK(Otpabort(&other, 0) == -1 && Otperrno(&other) == TPEPROTO);
  CHECK(Otpbegin(&one, 30, 0) == -1 && Otperrno(&one) == TPEPROTO);
  CHECK(pthread_create(&thread, NULL, elsewhere, &one) == 0 && pthread_join(thread, NULL) == 0);
  /* Without a context one is made. */
  CHECK(Otpbegin(&none, 30, 1) == -1 && none != TPNULLCONTEXT && Otperrno(&none) == TPEINVAL);
  CHECK(ONerror(&none) == NEINVAL && strncmp(ONstrerror(&none, ONerror(&none)), "4:NEINVAL", 9) == 0);
  CHECK(strcmp(Nstrerror(0), "0:NMINVAL") == 0);
  /* In another one meanwhile. */
  pollux_enter_context(&one);
  CHECK(Otpbegin(&other, 30, 0) == 0 && tpgetlev() == 0 && Otpgetlev(&one) == 0 && Otpgetlev(&other) == 1);
  CHECK(tploggetreqfile(name, sizeof name) == 1 && tpgblktime(TPBLK_ALL) == 7);
  pollux_leave_context();
  CHECK(tpgblktime(TPBLK_ALL) == 0 && Otpabort(&other, 0) == 0);
  CHECK(ndrx_tpsetctxt(one, 0, CTXT_PRIV_ATMI) == 0 && tpgblktime(TPBLK_ALL) == 7);
  CHECK(ndrx_tpsetctxt(TPNULLCONTEXT, 0, CTXT_PRIV_ATMI) == 0 && tpgblktime(TPBLK_ALL) == 0 && tpurcode == 0);
  CHECK(Otpurcode(&one) == 0 && O_exget_tpurcode_addr(&one) != &tpurcode);
  CHECK(O_exget_tperrno_addr(&one) == O_exget_tperrno_addr(&one) && O_exget_tperrno_addr(&one) != &tperrno);
  CHECK(O_Bget_Ferror_addr(&one) != &Berror && O_Nget_Nerror_addr(&one) != &Nerror);
  CHECK(Otpenqueue(&one, "SPACE", "QUEUE", NULL, NULL, 0, 0) == -1 && Otperrno(&one) == TPENOENT);
  CHECK(pollux_no_queue("SPACE", NULL) == -1 && tperrno == TPENOENT);
  /* One that is gone: TPEPROTO for what needs it, nothing for the rest. */
  TPCONTEXT_T gone = other;
  tpfreectxt(other);
  tpfreectxt(other);
  char *reply = NULL;
  long len = 0;
  CHECK(Otpcall(&gone, "X", NULL, 0, &reply, &len, 0) == -1 && gone == other);
  CHECK(tpsetctxt(gone, 0) == -1 && tperrno == TPENOENT);
  CHECK(Otpcall(&one, "X", NULL, 0, &reply, &len, 0) == -1 && Otperrno(&one) == TPESYSTEM);
  CHECK(Otpterm(&one) == 0 && Otperrno(&one) == 0 && tpsetctxt(one, 0) == 0);
  CHECK(tpgetctxt(&seen, 0) == TPMULTICONTEXTS && seen == one && tpterm() == 0 && tpgetctxt(&seen, 0) == TPMULTICONTEXTS && seen == one);
  Otpfreectxt(&one, one);
  CHECK(tpgetctxt(&seen, 0) == 0 && seen == TPNULLCONTEXT);
  tpfreectxt(none);
}

static void *ends(void *given) {
  TPCONTEXT_T *kept = given, seen = TPNULLCONTEXT;
  kept[0] = tpnewctxt(1, 1);
  CHECK(tpgetctxt(&seen, 0) == TPMULTICONTEXTS && seen == kept[0]);
  kept[1] = tpnewctxt(0, 1);
  CHECK(tpgetctxt(&seen, 0) == TPMULTICONTEXTS && seen == kept[1]);
  CHECK(tpappthrterm() == 0);
  return NULL;
}

static void lives(void) {
  pthread_t thread;
  TPCONTEXT_T kept[2], *all = malloc(9000 * sizeof *all);
  CHECK(pthread_create(&thread, NULL, ends, kept) == 0 && pthread_join(thread, NULL) == 0);
  CHECK(tpsetctxt(kept[0], 0) == -1 && tperrno == TPENOENT);
  CHECK(tpsetctxt(kept[1], 0) == 0 && tpsetctxt(TPNULLCONTEXT, 0) == 0);
  tpfreectxt(kept[1]);
  int made = 0;
  while (made < 9000 && (all[made] = tpnewctxt(0, 0)) != NULL) made++;
  CHECK(tpnewctxt(0, 0) == NULL && tperrno == TPELIMIT && made == 8192);
  while (made > 0) tpfreectxt(all[--made]);
  free(all);
}

/* Transactions that are put aside. */
static void suspended(void) {
  TPTRANID id, again;
  char text[TPCONVMAXSTR] = "";
  CHECK(tpsuspend(&id, 0) == -1 && tperrno == TPEPROTO);
  CHECK(tpbegin(30, 0) == 0 && tpsuspend(NULL, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpsuspend(&id, 1) == -1 && tperrno == TPEINVAL && tpgetlev() == 1);
  CHECK(tpsuspend(&id, 0) == 0 && tpgetlev() == 0);
  CHECK(tpconvert(text, (char *)&id, TPTOSTRING | TPCONVTRANID) == 0 && strlen(text) > 0);
  memset(&again, 0, sizeof again);
  CHECK(tpconvert(text, (char *)&again, TPCONVTRANID) == 0 && strcmp(again.text, id.text) == 0);
  CHECK(tpconvert(text, (char *)&again, TPCONVXID) == -1 && tperrno == TPEINVAL);
  CHECK(tpconvert("", (char *)&again, TPCONVTRANID) == -1 && tperrno == TPEINVAL);
  CHECK(tpresume(NULL, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpbegin(30, 0) == 0 && tpresume(&id, 0) == -1 && tperrno == TPEPROTO && tpabort(0) == 0);
  CHECK(tpresume(&again, 0) == 0 && tpgetlev() == 1);
  CHECK(tpabort(0) == 0 && tpresume(&id, 0) == -1 && tperrno == TPEMATCH);
  memset(&again, 'x', sizeof again);
  CHECK(tpresume(&again, 0) == -1 && tperrno == TPEMATCH);
  CHECK(tpscmt(TP_CMT_LOGGED) == TP_CMT_COMPLETE && tpscmt(TP_CMT_COMPLETE) == TP_CMT_LOGGED);
  CHECK(tpscmt(1) == -1 && tperrno == TPEINVAL);
  CLIENTID client = {"1,2,0000000000000003"}, same;
  CHECK(tpconvert(text, (char *)&client, TPTOSTRING | TPCONVCLTID) == 0);
  CHECK(tpconvert(text, (char *)&same, TPCONVCLTID) == 0 && strcmp(client.clientdata, same.clientdata) == 0);
}

/* What is for servers. */
static void elsewhere_than_in_a_server(void) {
  char data[64] = "";
  long len = sizeof data;
  char *buffer = tpalloc("STRING", NULL, 10);
  CHECK(tpsrvgetctxdata() == NULL && tperrno == TPEPROTO);
  CHECK(tpsrvgetctxdata2(data, &len) == NULL && tperrno == TPEPROTO);
  CHECK(tpsrvsetctxdata(data, 0) == -1 && tperrno == TPEINVAL);
  CHECK(tpsrvsetctxdata(NULL, 0) == -1 && tperrno == TPEINVAL);
  tpsrvfreectxdata(NULL);
  tpcontinue();
  CHECK(tperrno == TPEPROTO);
  CHECK(tpisautobuf(buffer) == 0 && tpisautobuf(data) == -1 && tperrno == TPEINVAL);
  CHECK(tpchkauth() == TPNOAUTH && pollux_log_level() == 4 && debug_get_tp_level() == 4);
  CHECK(tpappthrinit(NULL) == -1 && tperrno == TPESYSTEM);
  tpfree(buffer);
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  snprintf(file, sizeof file, "%s/request.log", argv[1]);
  of_a_context();
  lives();
  suspended();
  elsewhere_than_in_a_server();
  FILE *log = fopen(file, "r");
  char line[256] = "";
  CHECK(log != NULL && fgets(line, sizeof line, log) != NULL && strstr(line, "from elsewhere") != NULL);
  if (log != NULL) fclose(log);
  return failures != 0;
}
