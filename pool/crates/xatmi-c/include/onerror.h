/*
 * onerror.h - errors of nerror.h with a context in front; see oatmi.h.
 */
#ifndef POLLUX_ONERROR_H
#define POLLUX_ONERROR_H

#include "oatmi.h"
#include "nerror.h"

#ifdef __cplusplus
extern "C" {
#endif

extern int *O_Nget_Nerror_addr(const TPCONTEXT_T *p_ctxt);
#define ONerror(p_ctxt) (*O_Nget_Nerror_addr(p_ctxt))

POLLUX_IN_CONTEXT(char *, Nstrerror, (TPCONTEXT_T *p_ctxt, int error), (error))

#ifdef __cplusplus
}
#endif

#endif
