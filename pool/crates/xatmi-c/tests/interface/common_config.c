/* The files of NDRX_CCONFIG and NDRX_DEBUG_CONF. argv: the log that lines of level 3 go to, NDRX_NODEID of the file; or
 * what is wrong with a file. */
#include <atmi.h>
#include <ndebug.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

int main(int argc, char **argv) {
  char text[4096];
  const char *own = getenv("NDRX_NODEID");
  if (argc == 2) {
    /* A file with a mistake is named by the first call. */
    CHECK(tpinit(NULL) == -1 && tperrno == TPEINVAL && strstr(tpstrerror(tperrno), argv[1]) != NULL);
    return failures != 0;
  }
  CHECK(argc == 3);
  CHECK(own != NULL && strcmp(own, argv[2]) == 0 && tpgetnodeid() == atol(argv[2]));
  TP_LOG(log_info, "not written");
  TP_LOG(log_warn, "written");
  FILE *file = fopen(argv[1], "r");
  size_t len = file == NULL ? 0 : fread(text, 1, sizeof text - 1, file);
  text[len] = 0;
  if (file != NULL) fclose(file);
  CHECK(strstr(text, ":written\n") != NULL && strstr(text, "not written") == NULL);
  return failures != 0;
}
