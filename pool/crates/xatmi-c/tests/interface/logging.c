/* Lines with a level. argv: the folder in which process.log is written at level 4. */
#include <Exfields.h>
#include <atmi.h>
#include <ndebug.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

static char folder[4096];

static const char *path_of(const char *name) {
  static char path[8192];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

/* What stands in a file of the folder; it is emptied. */
static const char *taken(const char *name) {
  static char text[20000];
  FILE *file = fopen(path_of(name), "r");
  size_t len = file == NULL ? 0 : fread(text, 1, sizeof text - 1, file);
  if (file != NULL) fclose(file);
  text[len] = 0;
  unlink(path_of(name));
  return text;
}

static void *thread(void *unused) {
  CHECK(tplogconfig(LOG_FACILITY_TP_THREAD, log_debug, NULL, "ABCD", path_of("thread.log")) == 0);
  CHECK(tplog(log_debug, "from the thread") == 0);
  tplogclosethread();
  CHECK(tplog(log_info, "from the process") == 0);
  return unused;
}

int main(int argc, char **argv) {
  char name[64], one[40], other[40];
  const char *line;
  int pid, id, date, time, at = 0;
  snprintf(folder, sizeof folder, "%s", argc > 1 ? argv[1] : ".");
  CHECK(tplog(log_info, "a line\n") == 0 && tplog(log_debug, "not written") == 0);
  line = taken("process.log");
  CHECK(sscanf(line, "t:program:4:%d:%d:%8d:%9d:%n", &pid, &id, &date, &time, &at) == 4);
  CHECK(pid == (int)getpid() && strcmp(line + at, "a line\n") == 0);
  TP_LOG(log_error, "%d of %s", 7, "nine");
  NDRX_LOG(log_always, "no values");
  line = taken("process.log");
  CHECK(strstr(line, "logging.c:") != NULL && strstr(line, ":7 of nine\n") != NULL);
  CHECK(strstr(line, ":no values\n") != NULL);
  CHECK(tplogex(log_warn, "dir/file.c", 42, "text") == 0);
  CHECK(strstr(taken("process.log"), ":file.c:42:text\n") != NULL);

  memset(one, 'a', sizeof one);
  memcpy(other, one, sizeof one);
  other[20] = 'b';
  CHECK(tplogdump(log_error, "bytes", "\001hello", 6) == 0);
  line = taken("process.log");
  CHECK(strstr(line, ":bytes\n  000000  01 68 65 6c 6c 6f ") != NULL && strstr(line, "  .hello\n"));
  CHECK(tplogdumpdiff(log_error, "differ", one, other, sizeof one) == 0);
  line = taken("process.log");
  CHECK(strstr(line, "\n< 000010  ") != NULL && strstr(line, "\n> 000010  ") != NULL);
  CHECK(strstr(line, "000000") == NULL);
  UBFH *ubf = (UBFH *)tpalloc("UBF", NULL, 512);
  CHECK(Badd(ubf, Bmkfldid(BFLD_STRING, 5), "x", 0) == 0);
  CHECK(tplogprintubf(log_error, "fields", ubf) == 0);
  CHECK(strstr(taken("process.log"), ":fields\n((BFLDID32)167772165)\tx\n") != NULL);

  pthread_t other_thread;
  CHECK(pthread_create(&other_thread, NULL, thread, NULL) == 0);
  CHECK(pthread_join(other_thread, NULL) == 0);
  CHECK(strstr(taken("thread.log"), "from the thread") != NULL);
  CHECK(strstr(taken("process.log"), "from the process") != NULL);

  CHECK(tploggetreqfile(name, sizeof name) == 0);
  CHECK(tplogsetreqfile_direct(path_of("request.log")) == 0 && tplog(log_info, "request") == 0);
  CHECK(tploggetreqfile(NULL, 0) == 1);
  CHECK(tploggetreqfile(name, 3) == -1 && tperrno == TPELIMIT);
  CHECK(tplogqinfo(log_info, TPLOGQI_GET_TP) == (LOG_FACILITY_TP_REQUEST | 4L << 24));
  /* A stream of the log stays one, whatever becomes of the file. */
  ndrx_debug_t *locked = tplogfplock(log_info, 0);
  CHECK(locked != NULL && locked->level == log_info && fprintf(tplogfpget(locked, 0), "by hand\n") == 8);
  CHECK(tplog(log_info, "between") == 0 && rename(path_of("request.log"), "moved.log") == 0);
  CHECK(fprintf(tplogfpget(locked, 0), "to the moved one\n") > 0);
  tplogclosereqfile();
  tplogfpunlock(locked);
  CHECK(rename("moved.log", path_of("request.log")) == 0);
  line = taken("request.log");
  CHECK(strstr(line, "by hand\n") != NULL && strstr(line, ":between\n") != NULL);
  CHECK(strstr(line, "to the moved one\n") != NULL && strstr(line, "request\n") != NULL);
  CHECK(tplogfplock(log_debug, 0) == NULL && tplogfpget(NULL, 0) == NULL);
  tplogfpunlock(NULL);
  CHECK((locked = tplogfplock(-1, 0)) != NULL && fputs("at any level\n", tplogfpget(locked, 0)) >= 0);
  tplogfpunlock(locked);
  CHECK(strcmp(taken("process.log"), "at any level\n") == 0);
  CHECK(tplogsetreqfile_direct(path_of("request.log")) == 0 && tplog(log_info, "request") == 0);
  tplogclosereqfile();
  CHECK(tplogqinfo(log_info, TPLOGQI_GET_TP) == (LOG_FACILITY_TP | 4L << 24));
  CHECK(tplogqinfo(log_debug, TPLOGQI_GET_TP) == 0);
  CHECK(tplogqinfo(log_debug, TPLOGQI_GET_TP | TPLOGQI_EVAL_RETURN) == (LOG_FACILITY_TP | 4L << 24));
  CHECK(tplogqinfo(log_info, TPLOGQI_EVAL_RETURN) == -1 && tperrno == TPEINVAL);
  CHECK(tplog(log_info, "behind it") == 0);
  CHECK(strstr(taken("request.log"), "request\n") != NULL);
  CHECK(strstr(taken("process.log"), "behind it\n") != NULL);

  CHECK(tplogconfig(LOG_FACILITY_TP, -1, "tp=2 ubf=5", NULL, NULL) == 0);
  CHECK(tplog(log_warn, "no") == 0 && taken("process.log")[0] == '\0');
  CHECK(tplogconfig(LOG_FACILITY_TP | LOG_FACILITY_NDRX, log_warn, NULL, NULL, NULL) == 0);
  CHECK(tplog(log_warn, "yes") == 0 && taken("process.log")[0] != '\0');
  /* Bindings give texts without a letter for what is left out. */
  CHECK(tplogconfig(LOG_FACILITY_TP, -1, "", "", "") == 0 && tplog(log_warn, "still") == 0);
  CHECK(strstr(taken("process.log"), "still\n") != NULL);
  CHECK(tplogconfig(LOG_FACILITY_NDRX_THREAD | LOG_FACILITY_UBF_REQUEST, log_debug, NULL, NULL, NULL) == 0);
  CHECK(tplogqinfo(log_error, TPLOGQI_GET_TP) == (LOG_FACILITY_TP | (long)log_warn << 24));
  CHECK(tplogconfig(0, 1, NULL, NULL, NULL) == -1 && tperrno == TPEINVAL);
  CHECK(tplogconfig(0x1000, 1, NULL, NULL, NULL) == -1 && tperrno == TPEINVAL);
  CHECK(tplogconfig(LOG_FACILITY_TP, 7, NULL, NULL, NULL) == -1 && tperrno == TPEINVAL);
  CHECK(tplogconfig(LOG_FACILITY_TP, -1, "tp=x", NULL, NULL) == -1 && tperrno == TPEINVAL);
  CHECK(tplogconfig(LOG_FACILITY_TP, -1, "word", NULL, NULL) == -1 && tperrno == TPEINVAL);
  CHECK(tplogconfig(LOG_FACILITY_TP, -1, NULL, NULL, "/no/such/folder/log") == -1);
  CHECK(tperrno == TPEOS);
  CHECK(tplogsetreqfile_direct("/no/such/folder/log") == -1 && tperrno == TPEOS);
  CHECK(tplogsetreqfile_direct(NULL) == -1 && tperrno == TPEINVAL);
  CHECK(tplog(log_error, NULL) == -1);
  CHECK(tplogex(log_error, NULL, 1, NULL) == -1);
  CHECK(tplogdump(log_error, NULL, one, 1) == -1);
  CHECK(tplogdump(log_error, "x", NULL, 1) == -1);
  CHECK(tplogdump(log_error, "x", one, -1) == -1);
  CHECK(tplogdumpdiff(log_error, "x", one, NULL, 1) == -1);
  CHECK(tplogprintubf(log_error, "x", NULL) == -1);
  CHECK(tplogprintubf(log_error, NULL, ubf) == -1);
  char *data = (char *)ubf;
  CHECK(tplogsetreqfile(&data, NULL, NULL) == -1 && tperrno == TPEINVAL);
  CHECK(tplogsetreqfile(NULL, NULL, NULL) == -1 && tperrno == TPEINVAL);
  CHECK(tplogsetreqfile(NULL, "/no/such/folder/log", NULL) == -1 && tperrno == TPEOS);
  CHECK(tploggetbufreqfile(data, name, sizeof name) == -1 && tperrno == TPENOENT);
  CHECK(tplogdelbufreqfile(data) == -1 && tperrno == TPENOENT);
  CHECK(tplogsetreqfile(&data, path_of("request.log"), NULL) == 0 && tplog(log_error, "named") == 0);
  CHECK(strstr(taken("request.log"), "named\n") != NULL && Bpres(ubf, EX_NREQLOGFILE, 0) == 1);
  tplogclosereqfile();
  CHECK(tploggetbufreqfile(data, name, sizeof name) == 0 && strcmp(name, path_of("request.log")) == 0);
  CHECK(tploggetbufreqfile(data, name, 3) == -1 && tperrno == TPELIMIT);
  CHECK(tploggetbufreqfile(NULL, name, sizeof name) == -1 && tperrno == TPEINVAL);
  /* What the buffer names counts. */
  CHECK(tplogsetreqfile(&data, path_of("other.log"), NULL) == 0 && tplog(log_error, "again") == 0);
  CHECK(strstr(taken("request.log"), "again\n") != NULL);
  tplogclosereqfile();
  /* Where there is a folder for such files, no buffer names one elsewhere; a program itself may. */
  CHECK(mkdir(path_of("requests"), 0700) == 0 && setenv("POLLUX_REQUEST_LOG_DIR", path_of("requests"), 1) == 0);
  CHECK(tplogsetreqfile(&data, NULL, NULL) == -1 && tperrno == TPEPERM);
  CHECK(Bchg(ubf, EX_NREQLOGFILE, 0, path_of("requests/../request.log"), 0) == 0);
  CHECK(tplogsetreqfile(&data, NULL, NULL) == -1 && tperrno == TPEPERM);
  FILE *old = fopen(path_of("old.log"), "w");
  CHECK(old != NULL && fclose(old) == 0 && symlink("../old.log", path_of("requests/link.log")) == 0);
  CHECK(symlink("../none.log", path_of("requests/new.log")) == 0);
  CHECK(Bchg(ubf, EX_NREQLOGFILE, 0, path_of("requests/link.log"), 0) == 0);
  CHECK(tplogsetreqfile(&data, NULL, NULL) == -1 && tperrno == TPEPERM);
  CHECK(Bchg(ubf, EX_NREQLOGFILE, 0, path_of("requests/new.log"), 0) == 0);
  CHECK(tplogsetreqfile(&data, NULL, NULL) == -1 && tperrno == TPEPERM);
  CHECK(tplogsetreqfile(NULL, path_of("other.log"), NULL) == 0);
  CHECK(Bchg(ubf, EX_NREQLOGFILE, 0, path_of("requests/one.log"), 0) == 0);
  CHECK(tplogsetreqfile(&data, NULL, NULL) == 0 && tplog(log_error, "within") == 0);
  CHECK(strstr(taken("requests/one.log"), "within\n") != NULL);
  CHECK(tplogsetreqfile(&data, NULL, NULL) == 0);
  tplogclosereqfile();
  CHECK(unsetenv("POLLUX_REQUEST_LOG_DIR") == 0);
  CHECK(tplogdelbufreqfile(data) == 0 && Bpres(ubf, EX_NREQLOGFILE, 0) == 0);
  CHECK(tplogdelbufreqfile(NULL) == -1 && tperrno == TPEINVAL);
  tpfree((char *)ubf);
  return failures != 0;
}
