/* Where there is no memory for what a function gives out: BMALLOC, and nothing else changes. This
 * program's malloc says so for blocks of one size. */
#include <atmi.h>
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
#include <ubf.h>

#include "check.h"

/* Blocks of this size and above are refused; 0 refuses none. */
static size_t refused_from, refused_to;
static int refusals;

void *malloc(size_t size) {
  static void *(*of_system)(size_t);
  if (of_system == NULL) of_system = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
  if (refused_from != 0 && size >= refused_from && size <= refused_to) {
    refusals++;
    return NULL;
  }
  return of_system(size);
}

static void refuse(size_t from, size_t to) {
  refused_from = from;
  refused_to = to;
}

/* A call that gets a block of this size, and then does not. */
#define WITHOUT_MEMORY(size, call)                              \
  do {                                                          \
    CHECK((call) != NULL && Berror == 0);                       \
    refuse((size), (size));                                     \
    refusals = 0;                                               \
    CHECK((call) == NULL && Berror == BMALLOC && refusals == 1); \
    refuse(0, 0);                                               \
    CHECK((call) != NULL && Berror == 0);                       \
  } while (0)

enum { EXTRA = 7001 };

int main(void) {
  BFLDID field = Bmkfldid(BFLD_STRING, 6);
  UBFH *ubf = (UBFH *)tpalloc("UBF", NULL, 1024);
  BFLDLEN room = EXTRA;
  static char long_number[4000];
  CHECK(Badds(ubf, field, "12") == 0);
  WITHOUT_MEMORY(3 + EXTRA, (room = EXTRA, Bgetalloc(ubf, field, 0, &room)));
  WITHOUT_MEMORY(3 + EXTRA, (room = EXTRA, Bgetsa(ubf, field, 0, &room)));
  WITHOUT_MEMORY(8 + EXTRA, (room = EXTRA, CBgetalloc(ubf, field, 0, BFLD_LONG, &room)));
  memset(long_number, '1', sizeof long_number - 1);
  WITHOUT_MEMORY(sizeof long_number, Btypcvt(NULL, BFLD_STRING, long_number, BFLD_STRING, 0));
  /* A tree is its text with 4 bytes in front and a zero. */
  static char expression[1501];
  memset(expression, ' ', sizeof expression - 1);
  expression[0] = '1';
  WITHOUT_MEMORY(sizeof expression + 4, Bboolco(expression));
  /* Fields are zeroed memory, whose limit is that of the address space: see buffers.c. */
  tpfree((char *)ubf);
  return failures != 0;
}
