/* CHECK counts what does not hold and says where; a program ends with `return failures != 0`. */
#include <stdio.h>

static int failures = 0;

#define CHECK(fact)                                                              \
  do {                                                                           \
    if (!(fact)) {                                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #fact);                 \
      failures++;                                                                \
    }                                                                            \
  } while (0)

/* An address at which nothing is. */
#define STRAY ((char *)0x123456789000)
