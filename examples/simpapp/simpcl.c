/* A client of simpserv: sends its argument and prints the answer. */
#include <atmi.h>
#include <stdio.h>
#include <string.h>

static int failed(const char *what) {
  fprintf(stderr, "%s: %s\n", what, tpstrerror(tperrno));
  return 1;
}

int main(int argc, char **argv) {
  char *text, *answer;
  long length = 0;
  int result = 0;
  if (argc != 2) {
    fprintf(stderr, "usage: simpcl TEXT\n");
    return 2;
  }
  if (tpinit(NULL) == -1) return failed("tpinit");
  text = tpalloc("STRING", NULL, (long)strlen(argv[1]) + 1);
  answer = tpalloc("STRING", NULL, (long)strlen(argv[1]) + 1);
  if (text == NULL || answer == NULL) {
    result = failed("tpalloc");
  } else {
    strcpy(text, argv[1]);
    if (tpcall("TOUPPER", text, 0, &answer, &length, 0) == -1) {
      result = failed("tpcall");
    } else {
      printf("Returned string is: %s\n", answer);
    }
  }
  tpfree(text);
  tpfree(answer);
  tpterm();
  return result;
}
