/*
 * ndrstandard.h - names that programs of Enduro/X expect in every source: results, truth, ends of texts, sizes.
 *
 * atmi.h includes it. Names that a program has already are left alone. What else stands in the file of this
 * name of Enduro/X, such as names of its own variables and queues, is not for programs and not here.
 */
#ifndef POLLUX_NDRSTANDARD_H
#define POLLUX_NDRSTANDARD_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef EXSUCCEED
#define EXSUCCEED 0
#endif
#ifndef EXFAIL
#define EXFAIL -1
#endif
#ifndef EXTRUE
#define EXTRUE 1
#endif
#ifndef EXFALSE
#define EXFALSE 0
#endif
#ifndef EXEOS
#define EXEOS '\0'
#endif
#ifndef EXDIRSEP
#define EXDIRSEP '/'
#endif
#ifndef EXBYTE
#define EXBYTE(number) ((number) & 0xff)
#endif

/* Stands before declarations; nothing here. */
#ifndef NDRX_API
#define NDRX_API
#endif

#ifndef EX_SIZEOF_LONG
#define EX_SIZEOF_LONG 8
#endif

/* A whole number as wide as a pointer, and how printf(3) writes it. */
#ifndef NDRX_LONGPTR_HEX
typedef long ndrx_longptr_t;
#define NDRX_LONGPTR_HEX "%lx"
#endif

/* Room that a program gives to what it does not know the length of. */
#ifndef NDRX_MSGSIZEMAX
#define NDRX_MSGSIZEMAX ndrx_msgsizemax()
static __inline__ long ndrx_msgsizemax(void) { return 65536; }
#endif

#ifndef ATMI_MSG_MAX_SIZE
#define ATMI_MSG_MAX_SIZE NDRX_MSGSIZEMAX
#endif

/* Calls of one thread that may be under way. */
#ifndef MAX_ASYNC_CALLS
#define MAX_ASYNC_CALLS 16384
#endif

/* What is done where a library is built into a program of another language. */
#ifndef NDRX_INTEGRA
#define NDRX_INTEGRA(name) name
#endif

/* How functions are marked. */
#ifndef expublic
#define expublic
#endif
#ifndef exprivate
#define exprivate static
#endif

/* EXFAIL into a variable, and to the label `out`. */
#ifndef EXFAIL_OUT
#define EXFAIL_OUT(variable) \
    do {                     \
        (variable) = EXFAIL; \
        goto out;            \
    } while (0)
#endif

/* Of an array the number of elements; of a struct the place and the size of a member. */
#ifndef N_DIM
#define N_DIM(array) (sizeof(array) / sizeof((array)[0]))
#endif
#ifndef EXOFFSET
#define EXOFFSET(type, member) ((long)offsetof(type, member))
#endif
#ifndef EXELEM_SIZE
#define EXELEM_SIZE(type, member) (sizeof(((type *)0)->member))
#endif
#ifndef NDRX_WORD_SIZE
#define NDRX_WORD_SIZE ((int)(8 * sizeof(void *))) /* bits of a pointer */
#endif
#ifndef NDRX_MIN
#define NDRX_MIN(one, other) (((one) < (other)) ? (one) : (other))
#endif
#ifndef NDRX_MAX
#define NDRX_MAX(one, other) (((one) > (other)) ? (one) : (other))
#endif

#if defined(__GNUC__) && !defined(NDRX_LIKELY)
#define NDRX_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define NDRX_UNLIKELY(condition) __builtin_expect(!!(condition), 0)
#elif !defined(NDRX_LIKELY)
#define NDRX_LIKELY(condition) (condition)
#define NDRX_UNLIKELY(condition) (condition)
#endif

/* Copies at most `most` bytes of a text into `size` bytes, and always ends it there. */
static inline void pollux_copy_text(char *to, size_t size, const char *from, size_t most)
{
    size_t len = strlen(from);
    if (size == 0)
        return;
    if (len > most)
        len = most;
    if (len > size - 1)
        len = size - 1;
    memmove(to, from, len);
    to[len] = '\0';
}

/* Into an array; into so many bytes; at most `count` bytes; behind the text that is there; the last `count`
 * bytes. All of them end the text, and cut what does not fit. */
#define NDRX_STRCPY_SAFE(array, from) pollux_copy_text((array), sizeof(array), (from), SIZE_MAX)
#define NDRX_STRCPY_SAFE_DST(to, from, size) \
    pollux_copy_text((to), (size_t)(size), (from), SIZE_MAX)
#define NDRX_STRNCPY_EOS(to, from, count, size) \
    pollux_copy_text((to), (size_t)(size), (from), (size_t)(count))
#define NDRX_STRCAT_S(to, size, from)                                                     \
    pollux_copy_text((to) + strlen(to),                                                   \
                     strlen(to) < (size_t)(size) ? (size_t)(size) - strlen(to) : 0, (from), \
                     SIZE_MAX)
#define NDRX_STRCPY_LAST_SAFE(array, from, count)                                        \
    pollux_copy_text((array), sizeof(array),                                             \
                     strlen(from) > (size_t)(count) ? (from) + strlen(from) - (size_t)(count) : (from), \
                     SIZE_MAX)
/* As strncpy(3), without the zeros behind: the text has no end where it does not fit. */
#define NDRX_STRNCPY(to, from, count) \
    ((void)memcpy((to), (from), NDRX_MIN(strlen(from) + 1, (size_t)(count))))

#endif
