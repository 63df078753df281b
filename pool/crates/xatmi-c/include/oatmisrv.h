/*
 * oatmisrv.h - functions of servers with a context in front; see oatmi.h.
 */
#ifndef POLLUX_OATMISRV_H
#define POLLUX_OATMISRV_H

#include "oatmi.h"

#ifdef __cplusplus
extern "C" {
#endif

POLLUX_IN_CONTEXT_VOID(tpreturn, (TPCONTEXT_T *p_ctxt, int rval, long rcode, char *data, long len, long flags),
    (rval, rcode, data, len, flags))
POLLUX_IN_CONTEXT(int, tpunadvertise, (TPCONTEXT_T *p_ctxt, const char *name), (name))
POLLUX_IN_CONTEXT_VOID(tpforward, (TPCONTEXT_T *p_ctxt, const char *svc, char *data, long len, long flags),
    (svc, data, len, flags))
POLLUX_IN_CONTEXT_VOID(tpexit, (TPCONTEXT_T *p_ctxt), ())
POLLUX_IN_CONTEXT(char *, tpsrvgetctxdata, (TPCONTEXT_T *p_ctxt), ())
POLLUX_IN_CONTEXT(char *, tpsrvgetctxdata2, (TPCONTEXT_T *p_ctxt, char *data, long *len), (data, len))
POLLUX_IN_CONTEXT(int, tpsrvsetctxdata, (TPCONTEXT_T *p_ctxt, const char *data, long flags), (data, flags))
POLLUX_IN_CONTEXT_VOID(tpcontinue, (TPCONTEXT_T *p_ctxt), ())
POLLUX_IN_CONTEXT(int, tpext_addpollerfd,
    (TPCONTEXT_T *p_ctxt, int fd, uint32_t events, void *data, int (*function)(int fd, uint32_t events, void *data)),
    (fd, events, data, function))
POLLUX_IN_CONTEXT(int, tpext_delpollerfd, (TPCONTEXT_T *p_ctxt, int fd), (fd))
POLLUX_IN_CONTEXT(int, tpext_addperiodcb, (TPCONTEXT_T *p_ctxt, int seconds, int (*function)(void)),
    (seconds, function))
POLLUX_IN_CONTEXT(int, tpext_delperiodcb, (TPCONTEXT_T *p_ctxt), ())
POLLUX_IN_CONTEXT(int, tpext_addb4pollcb, (TPCONTEXT_T *p_ctxt, int (*function)(void)), (function))
POLLUX_IN_CONTEXT(int, tpext_delb4pollcb, (TPCONTEXT_T *p_ctxt), ())
POLLUX_IN_CONTEXT(int, tpgetsrvid, (TPCONTEXT_T *p_ctxt), ())
POLLUX_IN_CONTEXT(int, tpadvertise_full,
    (TPCONTEXT_T *p_ctxt, const char *name, void (*function)(TPSVCINFO *), const char *function_name), (name,
    function, function_name))
static __inline__ void Otpsrvfreectxdata(TPCONTEXT_T *p_ctxt, char *data) {
  (void)p_ctxt;
  tpsrvfreectxdata(data);
}

/* The life of a server is that of its thread, whatever the context. tpreturn, tpforward and tpcontinue come back. */
static __inline__ int Ondrx_main(TPCONTEXT_T *p_ctxt, int argc, char **argv) {
  (void)p_ctxt;
  return ndrx_main_integra(argc, argv, G_tpsvrinit__, G_tpsvrdone__, ATMI_SRVLIB_NOLONGJUMP);
}
static __inline__ int Ondrx_main_integra(TPCONTEXT_T *p_ctxt, int argc, char **argv, int (*init)(int, char **),
                                         void (*done)(void), long flags) {
  (void)p_ctxt;
  return ndrx_main_integra(argc, argv, init, done, flags);
}

/* What Enduro/X keeps of a thread, for those who print it: NULL. */
static __thread void *G_atmi_tls __attribute__((unused));

#ifdef __cplusplus
}
#endif

#endif
