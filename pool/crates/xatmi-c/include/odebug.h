/*
 * odebug.h - lines of ndebug.h with a context in front; see oatmi.h.
 */
#ifndef POLLUX_ODEBUG_H
#define POLLUX_ODEBUG_H

#include "oatmi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define POLLUX_LOG_IN_CONTEXT(p_ctxt, ...) \
  do {                                     \
    pollux_enter_context(p_ctxt);          \
    __VA_ARGS__;                           \
    pollux_leave_context();                \
  } while (0)

#define OTP_LOG(p_ctxt, ...) POLLUX_LOG_IN_CONTEXT(p_ctxt, TP_LOG(__VA_ARGS__))
#define ONDRX_LOG OTP_LOG
#define OUBF_LOG OTP_LOG
#define OTP_DUMP(p_ctxt, ...) POLLUX_LOG_IN_CONTEXT(p_ctxt, TP_DUMP(__VA_ARGS__))
#define ONDRX_DUMP OTP_DUMP
#define OUBF_DUMP OTP_DUMP
#define OTP_DUMP_DIFF(p_ctxt, ...) POLLUX_LOG_IN_CONTEXT(p_ctxt, TP_DUMP_DIFF(__VA_ARGS__))
#define ONDRX_DUMP_DIFF OTP_DUMP_DIFF
#define OUBF_DUMP_DIFF OTP_DUMP_DIFF

#ifdef __cplusplus
}
#endif

#endif
