/* Lines in the log of the day, and what becomes of those that cannot be written. argv: a folder. */
#include <atmi.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <userlog.h>

#include "check.h"

static char found[20000];

/* The log that `command` prints. */
static const char *printed(const char *command) {
  FILE *output = popen(command, "r");
  size_t len = fread(found, 1, sizeof found - 1, output);
  pclose(output);
  found[len] = 0;
  return found;
}

int main(int argc, char **argv) {
  char path[4096], command[8192], text[USERLOG_TEXT_MAX + 100];
  const char *line;
  int written, pid, date, time, at = 0;
  CHECK(argc == 2);
  unsetenv("ULOGPFX");
  setenv("NDRX_ULOG", argv[1], 1);
  written = userlog("%s has %d", "ACCOUNT", 7);
  snprintf(command, sizeof command, "cat %s/ULOG.$(date +%%Y%%m%%d)", argv[1]);
  line = printed(command);
  CHECK(written == (int)strlen(line));
  CHECK(sscanf(line, "%d:%8d:%9d:%n", &pid, &date, &time, &at) == 3 && pid == (int)getpid());
  CHECK(strcmp(line + at, "program:ACCOUNT has 7\n") == 0);

  /* A newline at the end is not doubled, and what is too long is cut. */
  CHECK(userlog("second\n") > 0);
  line = printed(command);
  CHECK(strcmp(line + strlen(line) - 16, ":program:second\n") == 0);
  memset(text, 'x', sizeof text);
  text[sizeof text - 1] = 0;
  CHECK(userlog("%s", text) > USERLOG_TEXT_MAX && userlog("%s", text) < USERLOG_TEXT_MAX + 100);

  /* Tuxedo's prefix wins. */
  snprintf(path, sizeof path, "%s/mine", argv[1]);
  setenv("ULOGPFX", path, 1);
  CHECK(userlog("third") > 0);
  snprintf(command, sizeof command, "cat %s.$(date +%%m%%d%%y)", path);
  CHECK(strstr(printed(command), ":program:third\n") != NULL);

  /* A name that the program has given itself. */
  static char other[] = "/opt/bin/teller";
  proc_name = other;
  CHECK(userlog("named") > 0 && strstr(printed(command), ":teller:named\n") != NULL);
  proc_name = NULL;
  CHECK(userlog("again") > 0 && strstr(printed(command), ":program:again\n") != NULL);

  snprintf(path, sizeof path, "%s/none/mine", argv[1]);
  setenv("ULOGPFX", path, 1);
  CHECK(tpacall("", NULL, 0, 0) == -1);
  written = tperrno;
  errno = 0;
  CHECK(userlog("fourth") == -1 && errno == ENOENT && tperrno == written);
  CHECK(pollux_userlog(NULL) == -1 && errno == EINVAL);
  const char *no_format = NULL;
  CHECK(userlog(no_format) == -1 && errno == EINVAL);
  return failures != 0;
}
