/* Says what did not hold, and ends with 1. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                               \
    do {                                                                                          \
        if (!(what)) {                                                                            \
            fprintf(stderr, "%s:%d: %s does not hold (errno: %s)\n", __FILE__, __LINE__, #what,    \
                    strerror(errno));                                                             \
            exit(1);                                                                              \
        }                                                                                         \
    } while (0)

#define REFUSED(call, number) CHECK((errno = 0, (call) == -1 && errno == (number)))
