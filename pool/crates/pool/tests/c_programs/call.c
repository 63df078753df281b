/* Calls the service of its argument once, with a text; 3 must come in tpurcode. */
#include <atmi.h>
#include <string.h>

#include "check.h"

int main(int argc, char **argv) {
  char *text = tpalloc("STRING", NULL, 100);
  long len = 0;
  if (argc != 2 || text == NULL) return 2;
  strcpy(text, "a text");
  if (tpcall(argv[1], text, 0, &text, &len, 0) == -1) {
    fprintf(stderr, "%s: %s\n", argv[1], tpstrerror(tperrno));
    return 1;
  }
  CHECK(len == 7 && strcmp(text, "a text") == 0 && tpurcode == 3);
  tpfree(text);
  return failures != 0;
}
