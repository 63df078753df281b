/*
 * The jump out of a service function, and printing to a FILE.
 *
 * tpreturn and tpforward leave the service function from wherever it calls them. Only the frames of
 * the C program lie between pollux_leave_* and pollux_run_service: what Rust does (it records the
 * outcome) has returned before the jump.
 *
 * What a program brings is called from here: an exception of C++ that leaves it ends the process with its own words
 * (see build.rs).
 */
#include <setjmp.h>
#include <stdio.h>

#include "atmi.h"

/* In Rust: they keep the outcome and say where the service function was started, or NULL when none
 * runs on this thread. */
extern jmp_buf *pollux_record_return(int rval, long rcode, char *data, long len, long flags);
extern jmp_buf *pollux_record_continue(void);
extern jmp_buf *pollux_record_forward(const char *svc, char *data, long len, long flags);

int pollux_run_service(void (*function)(TPSVCINFO *), TPSVCINFO *info, void **place);
void pollux_leave_by_return(int rval, long rcode, char *data, long len, long flags);
void pollux_leave_by_forward(const char *svc, char *data, long len, long flags);
void pollux_leave_by_continue(void);
int pollux_start(int (*init)(int, char **), int argc, char **argv);
void pollux_finish(void (*done)(void));
int pollux_write_text(FILE *file, const char *text, size_t len);
int pollux_flush(FILE *file);

/* 1 when the function left by tpreturn or tpforward, 0 when it fell off its end. */
int pollux_run_service(void (*function)(TPSVCINFO *), TPSVCINFO *info, void **place) {
  jmp_buf start;
  *place = &start;
  if (_setjmp(start) != 0) return 1;
  function(info);
  return 0;
}

/* tpsvrinit and tpsvrthrinit, tpsvrdone and tpsvrthrdone. */
int pollux_start(int (*init)(int, char **), int argc, char **argv) { return init(argc, argv); }

void pollux_finish(void (*done)(void)) { done(); }

void pollux_leave_by_return(int rval, long rcode, char *data, long len, long flags) {
  jmp_buf *start = pollux_record_return(rval, rcode, data, len, flags);
  if (start != NULL) longjmp(*start, 1);
}

void pollux_leave_by_forward(const char *svc, char *data, long len, long flags) {
  jmp_buf *start = pollux_record_forward(svc, data, len, flags);
  if (start != NULL) longjmp(*start, 1);
}

void pollux_leave_by_continue(void) {
  jmp_buf *start = pollux_record_continue();
  if (start != NULL) longjmp(*start, 1);
}

/* To standard output without a file; 0, or -1 with errno. */
int pollux_write_text(FILE *file, const char *text, size_t len) {
  FILE *to = file != NULL ? file : stdout;
  return fwrite(text, 1, len, to) == len ? 0 : -1;
}

/* What was printed is there before a fork, an exec or the end of the descriptor. */
int pollux_flush(FILE *file) { return fflush(file != NULL ? file : stdout); }
