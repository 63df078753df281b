/*
 * Functions with variable arguments, which Rust cannot define; src/caller.rs gives them their names.
 */
#include <stdarg.h>
#include <stdio.h>

#include "ndebug.h"
#include "ubf.h"
#include "userlog.h"

/* 17 pairs and the end: what is longer is not a path, and has no end then. */
#define PATH_INTS 35

int pollux_bgetrv(UBFH *ubf, char *value, BFLDLEN *len, ...);
int pollux_cbgetrv(UBFH *ubf, char *value, BFLDLEN *len, int type, ...);
char *pollux_bfindrv(UBFH *ubf, BFLDLEN *len, ...);
char *pollux_cbfindrv(UBFH *ubf, BFLDLEN *len, int type, ...);
int pollux_bpresrv(UBFH *ubf, ...);
char *pollux_cbgetallocrv(UBFH *ubf, int type, BFLDLEN *extra, ...);
int pollux_cbvgetrv(UBFH *ubf, const char *name, BFLDOCC occurrence, char *value, BFLDLEN *len, int type,
                    long flags, ...);
char *pollux_cbvgetallocrv(UBFH *ubf, const char *name, BFLDOCC occurrence, int type, long flags,
                           BFLDLEN *extra, ...);
int pollux_bvnullrv(UBFH *ubf, const char *name, BFLDOCC occurrence, ...);
int pollux_userlog_format(const char *format, ...);
int pollux_userlog_list(const char *format, va_list values);
int pollux_log_format(int level, const char *file, long line, const char *format, ...);

#define TAKE_PATH(path, last)                                \
  BFLDID path[PATH_INTS];                                    \
  int at = 0;                                                \
  va_list list;                                              \
  va_start(list, last);                                      \
  do {                                                       \
    path[at] = va_arg(list, BFLDID);                         \
    if (at % 2 == 0 && path[at] == BBADFLDOCC) break;        \
  } while (++at < PATH_INTS);                                \
  va_end(list)

int pollux_bgetrv(UBFH *ubf, char *value, BFLDLEN *len, ...) {
  TAKE_PATH(path, len);
  return Bgetr(ubf, path, value, len);
}

int pollux_cbgetrv(UBFH *ubf, char *value, BFLDLEN *len, int type, ...) {
  TAKE_PATH(path, type);
  return CBgetr(ubf, path, value, len, type);
}

char *pollux_bfindrv(UBFH *ubf, BFLDLEN *len, ...) {
  TAKE_PATH(path, len);
  return Bfindr(ubf, path, len);
}

char *pollux_cbfindrv(UBFH *ubf, BFLDLEN *len, int type, ...) {
  TAKE_PATH(path, type);
  return CBfindr(ubf, path, len, type);
}

int pollux_bpresrv(UBFH *ubf, ...) {
  TAKE_PATH(path, ubf);
  return Bpresr(ubf, path);
}

char *pollux_cbgetallocrv(UBFH *ubf, int type, BFLDLEN *extra, ...) {
  TAKE_PATH(path, extra);
  return CBgetallocr(ubf, path, type, extra);
}

int pollux_cbvgetrv(UBFH *ubf, const char *name, BFLDOCC occurrence, char *value, BFLDLEN *len, int type,
                    long flags, ...) {
  TAKE_PATH(path, flags);
  return CBvgetr(ubf, path, name, occurrence, value, len, type, flags);
}

char *pollux_cbvgetallocrv(UBFH *ubf, const char *name, BFLDOCC occurrence, int type, long flags,
                           BFLDLEN *extra, ...) {
  TAKE_PATH(path, extra);
  return CBvgetallocr(ubf, path, name, occurrence, type, flags, extra);
}

int pollux_bvnullrv(UBFH *ubf, const char *name, BFLDOCC occurrence, ...) {
  TAKE_PATH(path, occurrence);
  return Bvnullr(ubf, path, name, occurrence);
}

int pollux_userlog_list(const char *format, va_list values) {
  char text[USERLOG_TEXT_MAX];
  int is_whole = format != NULL && vsnprintf(text, sizeof text, format, values) >= 0;
  return pollux_userlog(is_whole ? text : NULL);
}

int pollux_userlog_format(const char *format, ...) {
  va_list values;
  va_start(values, format);
  int written = pollux_userlog_list(format, values);
  va_end(values);
  return written;
}

int pollux_log_format(int level, const char *file, long line, const char *format, ...) {
  char text[POLLUX_LOG_TEXT_MAX];
  va_list values;
  va_start(values, format);
  int is_whole = format != NULL && vsnprintf(text, sizeof text, format, values) >= 0;
  va_end(values);
  return tplogex(level, file, line, is_whole ? text : NULL);
}
