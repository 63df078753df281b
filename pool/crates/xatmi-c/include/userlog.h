/*
 * userlog.h - lines of programs in one log for each day, next to each other in the order of time.
 *
 * The file is ULOG.YYYYMMDD in the folder that NDRX_ULOG names, else in the current one. With
 * ULOGPFX set it is the prefix of the file instead of folder and ULOG: ULOGPFX.mmddyy. Dates and
 * times are local ones. A line is PID:YYYYMMDD:HHMMSSmmm:PROGRAM:TEXT.
 */
#ifndef POLLUX_USERLOG_H
#define POLLUX_USERLOG_H

#include <stdarg.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define USERLOG_TEXT_MAX 8192 /* bytes of a text and its zero; what is longer is cut */

/* PROGRAM, where a program sets it, as in proc_name = argv[0]; only what stands behind the last / counts. */
extern char *proc_name;

/* Appends a line. The bytes that were written, or -1 with the reason in errno; tperrno stays. */
extern int pollux_userlog(const char *text);

/* The same with a text as printf(3) makes it; -1 as well for a format that it refuses. */
#ifdef __GNUC__
#define POLLUX_PRINTF(text, values) __attribute__((format(printf, text, values)))
#else
#define POLLUX_PRINTF(text, values)
#endif
static __inline__ int userlog_const(const char *text) { return pollux_userlog(text); }
extern int userlog(const char *format, ...) POLLUX_PRINTF(1, 2);
extern int vuserlog(const char *format, va_list values) POLLUX_PRINTF(1, 0);

#ifdef __cplusplus
}
#endif

#endif
