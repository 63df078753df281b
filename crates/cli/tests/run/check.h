/* A check that names its line, for the programs of these tests. */
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
