/*
 * ndebug.h - lines of programs with a level, to a file or to standard error.
 *
 * A process logs by NDRX_DEBUG_STR, words as in "tp=4 file=app.log": `tp` is the highest level that
 * is written (5 where nothing is said), `file` is appended to (standard error without). What
 * tplogconfig says goes above it, for the process, the thread or the request at hand. A line is
 * t:PROGRAM:LEVEL:PID:THREAD:YYYYMMDD:HHMMSSmmm:FILE:LINE:TEXT, without FILE and LINE where they are
 * not known.
 *
 * Functions return 0 or -1, where no more is said. What writes a line leaves tperrno in any case; tplogconfig and the functions of files of requests
 * leave it when they succeed, and give the reason there when they do not.
 */
#ifndef POLLUX_NDEBUG_H
#define POLLUX_NDEBUG_H

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "thlock.h"
#include "ubf.h"
#include "userlog.h"

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
#define LOG_FACILITY_NDRX_THREAD 0x20 /* those of the library, again */
#define LOG_FACILITY_UBF_THREAD 0x40
#define LOG_FACILITY_NDRX_REQUEST 0x80
#define LOG_FACILITY_UBF_REQUEST 0x100

#define POLLUX_LOG_TEXT_MAX 8192 /* bytes of a text that a format makes, and its zero; the rest is cut */

/* TP_LOG(log_info, "%d calls", calls) */
#define TP_LOG(level, ...) pollux_log((level), __FILE__, (long)__LINE__, __VA_ARGS__)
#define NDRX_LOG TP_LOG
#define UBF_LOG TP_LOG

#ifdef __GNUC__
__attribute__((format(printf, 4, 5)))
#endif
extern int pollux_log(int level, const char *file, long line, const char *format, ...);

#define TP_LOGEX(level, file, line, ...) pollux_log((level), (file), (long)(line), __VA_ARGS__)
#define NDRX_LOGEX TP_LOGEX
#define UBF_LOGEX TP_LOGEX
#define TP_DUMP(level, comment, data, len) tplogdump((level), (comment), (data), (len))
#define NDRX_DUMP TP_DUMP
#define UBF_DUMP TP_DUMP
#define TP_DUMP_DIFF(level, comment, one, other, len) tplogdumpdiff((level), (comment), (one), (other), (len))
#define NDRX_DUMP_DIFF TP_DUMP_DIFF
#define UBF_DUMP_DIFF TP_DUMP_DIFF

/* Memory and files of programs. */
#define NDRX_MALLOC(size) malloc(size)
#define NDRX_CALLOC(count, size) calloc((count), (size))
#define NDRX_REALLOC(memory, size) realloc((memory), (size))
#define NDRX_FREE(memory) free(memory)
#define NDRX_STRDUP(text) strdup(text)
#define NDRX_FOPEN(path, mode) fopen((path), (mode))
#define NDRX_FCLOSE(file) fclose(file)

/* What belongs to the library in Enduro/X goes where the program's lines go. */
#define ndrxlog tplog
#define ubflog tplog
#define ndrxlogex tplogex
#define ubflogex tplogex
#define ndrxlogdump tplogdump
#define ubflogdump tplogdump
#define ndrxlogdumpdiff tplogdumpdiff
#define ubflogdumpdiff tplogdumpdiff

/* The highest level that is written for this thread. */
extern int pollux_log_level(void);
static __inline__ int debug_get_tp_level(void) { return pollux_log_level(); }
static __inline__ int debug_get_ndrx_level(void) { return pollux_log_level(); }
static __inline__ int debug_get_ubf_level(void) { return pollux_log_level(); }
typedef struct {
  int level;
} ndrx_debug_t;
static __inline__ ndrx_debug_t pollux_log_state(void) {
  ndrx_debug_t state;
  state.level = pollux_log_level();
  return state;
}
/* if (G_tp_debug.level >= log_debug): to be read, not to be set */
#define G_tp_debug (pollux_log_state())
#define G_ndrx_debug G_tp_debug
#define G_ubf_debug G_tp_debug
static __inline__ char *tploggetiflags(void) { return (char *)""; } /* there are no flags */

/* What holds for this thread where a line of this level is written: which of LOG_FACILITY_..., and the level in the highest 8
 * bits; 0 where it is not written, unless TPLOGQI_EVAL_RETURN is set. There are no details to be evaluated. */
#define TPLOGQI_GET_NDRX 0x00000001
#define TPLOGQI_GET_UBF 0x00000002
#define TPLOGQI_GET_TP 0x00000004
#define TPLOGQI_EVAL_DETAILED 0x00000008
#define TPLOGQI_EVAL_RETURN 0x00000010
#define TPLOGQI_RET_HAVDETAILED 0x00010000
#define TPLOGQI_RET_DBGLEVGET(info) ((info) >> 24)
extern long tplogqinfo(int level, long flags);

extern int tplog(int level, const char *text);
extern int tplogex(int level, const char *file, long line, const char *text);
extern int tplogdump(int level, const char *comment, const void *data, int len);
extern int tplogdumpdiff(int level, const char *comment, const void *one, const void *other, int len);
extern int tplogprintubf(int level, const char *title, UBFH *ubf);

/* `level` -1 and `file` NULL or "" stay as they are; `settings` is as NDRX_DEBUG_STR or NULL; `module` is
 * not looked at. */
extern int tplogconfig(int parts, int level, const char *settings, const char *module,
                       const char *file);

/* The stream that the thread's lines go to, which is for the caller until it is unlocked, whatever becomes of the log
 * meanwhile; NULL where a line of this level is not written, with -1 for any. `flags` are not looked at. tplogfpget gives
 * NULL for NULL, and tplogfpunlock closes the stream. */
extern ndrx_debug_t *tplogfplock(int level, long flags);
extern FILE *tplogfpget(ndrx_debug_t *locked, long flags);
extern void tplogfpunlock(ndrx_debug_t *locked);

/* A file for the thread's lines, until it is closed. tploggetreqfile gives 1 with its name, or 0. */
extern int tplogsetreqfile_direct(const char *file);
extern int tploggetreqfile(char *file, int size);

/* The same with a name that travels in buffers of fields, as EX_NREQLOGFILE of Exfields.h: the file is that of the buffer
 * `*data`, else `file`, whose name is put there, else the one that `service` names in its reply to the buffer; TPEINVAL
 * without any. tploggetbufreqfile copies it, tplogdelbufreqfile takes it out: TPENOENT where there is none. */
extern int tplogsetreqfile(char **data, const char *file, const char *service);
extern int tploggetbufreqfile(const char *data, char *file, int size);
extern int tplogdelbufreqfile(char *data);
extern void tplogclosereqfile(void);
extern void tplogclosethread(void); /* takes back what tplogconfig said for the thread */

#ifdef __cplusplus
}
#endif

#endif
