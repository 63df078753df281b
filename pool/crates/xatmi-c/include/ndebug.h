/*
 * ndebug.h - lines of programs with a level, to a file or to standard error.
 *
 * A process logs by NDRX_DEBUG_STR, words as in "tp=4 file=app.log": `tp` is the highest level that
 * is written (5 where nothing is said), `file` is appended to (standard error without). What
 * tplogconfig says goes above it, for the process, the thread or the request at hand. A line is
 * t:PROGRAM:LEVEL:PID:THREAD:YYYYMMDD:HHMMSSmmm:FILE:LINE:TEXT, without FILE and LINE where they are
 * not known.
 *
 * Functions return 0 or -1. What writes a line leaves tperrno in any case; tplogconfig, tplogsetreqfile_direct and
 * tploggetreqfile leave it when they succeed, and give the reason there when they do not.
 */
#ifndef POLLUX_NDEBUG_H
#define POLLUX_NDEBUG_H

#include "ubf.h"

#ifdef __cplusplus
extern "C" {
#endif

#define log_always 1
#define log_fatal 1
#define log_error 2
#define log_warn 3
#define log_info 4
#define log_debug 5
#define log_dump 6

#define LOG_FACILITY_NDRX 0x01 /* those of the library: it logs nothing there */
#define LOG_FACILITY_UBF 0x02
#define LOG_FACILITY_TP 0x04 /* the process */
#define LOG_FACILITY_TP_THREAD 0x08
#define LOG_FACILITY_TP_REQUEST 0x10

#define POLLUX_LOG_TEXT_MAX 8192 /* bytes of a text that a format makes, and its zero; the rest is cut */

/* TP_LOG(log_info, "%d calls", calls) */
#define TP_LOG(level, ...) pollux_log((level), __FILE__, (long)__LINE__, __VA_ARGS__)
#define NDRX_LOG TP_LOG
#define UBF_LOG TP_LOG

#ifdef __GNUC__
__attribute__((format(printf, 4, 5)))
#endif
extern int pollux_log(int level, const char *file, long line, const char *format, ...);

extern int tplog(int level, const char *text);
extern int tplogex(int level, const char *file, long line, const char *text);
extern int tplogdump(int level, const char *comment, const void *data, int len);
extern int tplogdumpdiff(int level, const char *comment, const void *one, const void *other, int len);
extern int tplogprintubf(int level, const char *title, UBFH *ubf);

/* `level` -1 and `file` NULL stay as they are; `settings` is as NDRX_DEBUG_STR or NULL; `module` is
 * not looked at. */
extern int tplogconfig(int parts, int level, const char *settings, const char *module,
                       const char *file);

/* A file for the thread's lines, until it is closed. tploggetreqfile gives 1 with its name, or 0. */
extern int tplogsetreqfile_direct(const char *file);
extern int tploggetreqfile(char *file, int size);
extern void tplogclosereqfile(void);
extern void tplogclosethread(void); /* takes back what tplogconfig said for the thread */

#ifdef __cplusplus
}
#endif

#endif
