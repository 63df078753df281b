/*
 * oatmi.h - functions of atmi.h and ndebug.h with the context in front that they work in, for bindings of languages.
 *
 * Each enters the context of `*p_ctxt` on whichever thread it is called, does what the function without the O does, and
 * leaves. Errors, the transaction, times, handlers and log files are those of the context then.
 */
#ifndef POLLUX_OATMI_H
#define POLLUX_OATMI_H

#include "atmi.h"
#include "ubf.h"
#include "ndebug.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of several threads one uses a context at a time. Where `*p_ctxt` is TPNULLCONTEXT a context is made, whose handle it becomes. */
extern void pollux_enter_context(TPCONTEXT_T *p_ctxt);
extern void pollux_leave_context(void);

#define POLLUX_IN_CONTEXT(result, name, declared, given) \
  static __inline__ result O##name declared {            \
    pollux_enter_context(p_ctxt);                        \
    result pollux_result = name given;                   \
    pollux_leave_context();                              \
    return pollux_result;                                \
  }
#define POLLUX_IN_CONTEXT_VOID(name, declared, given) \
  static __inline__ void O##name declared {           \
    pollux_enter_context(p_ctxt);                     \
    name given;                                       \
    pollux_leave_context();                           \
  }

extern int *O_exget_tperrno_addr(const TPCONTEXT_T *p_ctxt);
extern long *O_exget_tpurcode_addr(const TPCONTEXT_T *p_ctxt);
#define Otperrno(p_ctxt) (*O_exget_tperrno_addr(p_ctxt))
#define Otpurcode(p_ctxt) (*O_exget_tpurcode_addr(p_ctxt))

/* The thread is in a context until it is in TPNULLCONTEXT again; all parts of it. */
#define CTXT_PRIV_NSTD 0x00008
#define CTXT_PRIV_UBF 0x00010
#define CTXT_PRIV_ATMI 0x00020
static __inline__ int ndrx_tpsetctxt(TPCONTEXT_T context, long flags, long parts) {
  (void)flags;
  (void)parts;
  if (context == TPNULLCONTEXT) pollux_leave_context();
  else pollux_enter_context(&context);
  return 0;
}
static __inline__ void Otpfreectxt(TPCONTEXT_T *p_ctxt, TPCONTEXT_T context) {
  (void)p_ctxt;
  tpfreectxt(context);
}

/* Bindings have them for all programs: TPENOENT, there are no queues. */
extern int pollux_no_queue(const char *space, const char *name);
static __inline__ int Otpenqueue(TPCONTEXT_T *p_ctxt, const char *space, const char *name, TPQCTL *control, char *data,
                                 long len, long flags) {
  (void)control;
  (void)data;
  (void)len;
  (void)flags;
  pollux_enter_context(p_ctxt);
  int pollux_result = pollux_no_queue(space, name);
  pollux_leave_context();
  return pollux_result;
}
static __inline__ int Otpdequeue(TPCONTEXT_T *p_ctxt, const char *space, const char *name, TPQCTL *control, char **data,
                                 long *len, long flags) {
  (void)data;
  (void)len;
  return Otpenqueue(p_ctxt, space, name, control, NULL, 0, flags);
}

POLLUX_IN_CONTEXT(int, tpacall, (TPCONTEXT_T *p_ctxt, const char *svc, char *data, long len, long flags),
    (svc, data, len, flags))
POLLUX_IN_CONTEXT(char *, tpalloc, (TPCONTEXT_T *p_ctxt, const char *type, const char *subtype, long size),
    (type, subtype, size))
POLLUX_IN_CONTEXT(int, tpcall,
    (TPCONTEXT_T *p_ctxt, const char *svc, char *idata, long ilen, char **odata, long *olen, long flags), (svc,
    idata, ilen, odata, olen, flags))
POLLUX_IN_CONTEXT(int, tpcancel, (TPCONTEXT_T *p_ctxt, int cd), (cd))
POLLUX_IN_CONTEXT(int, tpconnect, (TPCONTEXT_T *p_ctxt, const char *svc, char *data, long len, long flags),
    (svc, data, len, flags))
POLLUX_IN_CONTEXT(int, tpdiscon, (TPCONTEXT_T *p_ctxt, int cd), (cd))
POLLUX_IN_CONTEXT_VOID(tpfree, (TPCONTEXT_T *p_ctxt, char *ptr), (ptr))
POLLUX_IN_CONTEXT(int, tpgetrply, (TPCONTEXT_T *p_ctxt, int *cd, char **data, long *len, long flags),
    (cd, data, len, flags))
POLLUX_IN_CONTEXT(char *, tprealloc, (TPCONTEXT_T *p_ctxt, char *ptr, long size), (ptr, size))
POLLUX_IN_CONTEXT(int, tprecv, (TPCONTEXT_T *p_ctxt, int cd, char **data, long *len, long flags, long *revent),
    (cd, data, len, flags, revent))
POLLUX_IN_CONTEXT(int, tpsend, (TPCONTEXT_T *p_ctxt, int cd, char *data, long len, long flags, long *revent),
    (cd, data, len, flags, revent))
POLLUX_IN_CONTEXT(long, tptypes, (TPCONTEXT_T *p_ctxt, char *ptr, char *type, char *subtype), (ptr, type, subtype))
POLLUX_IN_CONTEXT(int, tpabort, (TPCONTEXT_T *p_ctxt, long flags), (flags))
POLLUX_IN_CONTEXT(int, tpscmt, (TPCONTEXT_T *p_ctxt, long when), (when))
POLLUX_IN_CONTEXT(int, tpbegin, (TPCONTEXT_T *p_ctxt, unsigned long timeout, long flags), (timeout, flags))
POLLUX_IN_CONTEXT(int, tpcommit, (TPCONTEXT_T *p_ctxt, long flags), (flags))
POLLUX_IN_CONTEXT(int, tpconvert, (TPCONTEXT_T *p_ctxt, char *text, char *id, long flags), (text, id, flags))
POLLUX_IN_CONTEXT(int, tpsuspend, (TPCONTEXT_T *p_ctxt, TPTRANID *transaction, long flags), (transaction, flags))
POLLUX_IN_CONTEXT(int, tpresume, (TPCONTEXT_T *p_ctxt, TPTRANID *transaction, long flags), (transaction, flags))
POLLUX_IN_CONTEXT(int, tpopen, (TPCONTEXT_T *p_ctxt), ())
POLLUX_IN_CONTEXT(int, tpclose, (TPCONTEXT_T *p_ctxt), ())
POLLUX_IN_CONTEXT(int, tpgetlev, (TPCONTEXT_T *p_ctxt), ())
POLLUX_IN_CONTEXT(char *, tpstrerror, (TPCONTEXT_T *p_ctxt, int error), (error))
POLLUX_IN_CONTEXT(int, tperrordetail, (TPCONTEXT_T *p_ctxt, long flags), (flags))
POLLUX_IN_CONTEXT(char *, tpstrerrordetail, (TPCONTEXT_T *p_ctxt, int detail, long flags), (detail, flags))
POLLUX_IN_CONTEXT(char *, tpecodestr, (TPCONTEXT_T *p_ctxt, int error), (error))
POLLUX_IN_CONTEXT(long, tpgetnodeid, (TPCONTEXT_T *p_ctxt), ())
POLLUX_IN_CONTEXT(long, tpsubscribe,
    (TPCONTEXT_T *p_ctxt, const char *events, const char *filter, const TPEVCTL *control, long flags), (events,
    filter, control, flags))
POLLUX_IN_CONTEXT(int, tpunsubscribe, (TPCONTEXT_T *p_ctxt, long subscription, long flags), (subscription, flags))
POLLUX_IN_CONTEXT(int, tppost, (TPCONTEXT_T *p_ctxt, const char *event, char *data, long len, long flags),
    (event, data, len, flags))
POLLUX_IN_CONTEXT(int, tpinit, (TPCONTEXT_T *p_ctxt, TPINIT *info), (info))
POLLUX_IN_CONTEXT(TPUNSOLHANDLER, tpsetunsol, (TPCONTEXT_T *p_ctxt, TPUNSOLHANDLER handler), (handler))
POLLUX_IN_CONTEXT(int, tpnotify, (TPCONTEXT_T *p_ctxt, const CLIENTID *client, char *data, long len, long flags),
    (client, data, len, flags))
POLLUX_IN_CONTEXT(int, tpbroadcast,
    (TPCONTEXT_T *p_ctxt, const char *machine, const char *usrname, const char *cltname, char *data, long len,
    long flags), (machine, usrname, cltname, data, len, flags))
POLLUX_IN_CONTEXT(int, tpchkunsol, (TPCONTEXT_T *p_ctxt), ())
POLLUX_IN_CONTEXT(int, tptoutset, (TPCONTEXT_T *p_ctxt, int seconds), (seconds))
POLLUX_IN_CONTEXT(int, tptoutget, (TPCONTEXT_T *p_ctxt), ())
POLLUX_IN_CONTEXT(int, tpimport,
    (TPCONTEXT_T *p_ctxt, const char *text, long len, char **buffer, long *buffer_len, long flags), (text, len,
    buffer, buffer_len, flags))
POLLUX_IN_CONTEXT(int, tpexport, (TPCONTEXT_T *p_ctxt, char *buffer, long len, char *to, long *to_len, long flags),
    (buffer, len, to, to_len, flags))
POLLUX_IN_CONTEXT(char *, tuxgetenv, (TPCONTEXT_T *p_ctxt, const char *name), (name))
POLLUX_IN_CONTEXT(int, tpterm, (TPCONTEXT_T *p_ctxt), ())
POLLUX_IN_CONTEXT(int, tpjsontoubf, (TPCONTEXT_T *p_ctxt, struct pollux_ubf *ubf, const char *text), (ubf, text))
POLLUX_IN_CONTEXT(int, tpubftojson, (TPCONTEXT_T *p_ctxt, struct pollux_ubf *ubf, char *text, int size),
    (ubf, text, size))
POLLUX_IN_CONTEXT(int, tpviewtojson,
    (TPCONTEXT_T *p_ctxt, const char *data, const char *view, char *text, int size, long flags), (data, view, text,
    size, flags))
POLLUX_IN_CONTEXT(char *, tpjsontoview, (TPCONTEXT_T *p_ctxt, char *view, const char *text), (view, text))
POLLUX_IN_CONTEXT(int, tplogsetreqfile, (TPCONTEXT_T *p_ctxt, char **data, const char *file, const char *service),
    (data, file, service))
POLLUX_IN_CONTEXT(int, tploggetbufreqfile, (TPCONTEXT_T *p_ctxt, const char *data, char *file, int size),
    (data, file, size))
POLLUX_IN_CONTEXT(int, tplogdelbufreqfile, (TPCONTEXT_T *p_ctxt, char *data), (data))
POLLUX_IN_CONTEXT(int, tplogprintubf, (TPCONTEXT_T *p_ctxt, int level, const char *title, UBFH *ubf),
    (level, title, ubf))
POLLUX_IN_CONTEXT(int, tpsetcallinfo, (TPCONTEXT_T *p_ctxt, const char *message, UBFH *info, long flags), (message, info, flags))
POLLUX_IN_CONTEXT(int, tpgetcallinfo, (TPCONTEXT_T *p_ctxt, const char *message, UBFH **info, long flags), (message, info, flags))
POLLUX_IN_CONTEXT(int, tpsprio, (TPCONTEXT_T *p_ctxt, int priority, long flags), (priority, flags))
POLLUX_IN_CONTEXT(int, tpgprio, (TPCONTEXT_T *p_ctxt), ())
POLLUX_IN_CONTEXT(int, tpsblktime, (TPCONTEXT_T *p_ctxt, int seconds, long flags), (seconds, flags))
POLLUX_IN_CONTEXT(int, tpgblktime, (TPCONTEXT_T *p_ctxt, long flags), (flags))
POLLUX_IN_CONTEXT(int, tplogdumpdiff,
    (TPCONTEXT_T *p_ctxt, int level, const char *comment, const void *one, const void *other, int len), (level,
    comment, one, other, len))
POLLUX_IN_CONTEXT(int, tplogdump, (TPCONTEXT_T *p_ctxt, int level, const char *comment, const void *data, int len),
    (level, comment, data, len))
POLLUX_IN_CONTEXT(int, tplog, (TPCONTEXT_T *p_ctxt, int level, const char *text), (level, text))
POLLUX_IN_CONTEXT(int, tplogex, (TPCONTEXT_T *p_ctxt, int level, const char *file, long line, const char *text),
    (level, file, line, text))
POLLUX_IN_CONTEXT(int, tploggetreqfile, (TPCONTEXT_T *p_ctxt, char *file, int size), (file, size))
POLLUX_IN_CONTEXT(int, tplogconfig,
    (TPCONTEXT_T *p_ctxt, int parts, int level, const char *settings, const char *module, const char *file), (parts,
    level, settings, module, file))
POLLUX_IN_CONTEXT_VOID(tplogclosereqfile, (TPCONTEXT_T *p_ctxt), ())
POLLUX_IN_CONTEXT_VOID(tplogclosethread, (TPCONTEXT_T *p_ctxt), ())
POLLUX_IN_CONTEXT(int, tplogsetreqfile_direct, (TPCONTEXT_T *p_ctxt, const char *file), (file))
#define Ondrxlog Otplog
#define Oubflog Otplog
#define Ondrxlogex Otplogex
#define Oubflogex Otplogex
#define Ondrxlogdump Otplogdump
#define Oubflogdump Otplogdump
#define Ondrxlogdumpdiff Otplogdumpdiff
#define Oubflogdumpdiff Otplogdumpdiff

#ifdef __cplusplus
}
#endif

#endif
