/*
 * tpadm.h - results of administration by buffers of fields, for programs that name them. There is no such
 * administration: `pollux pool ... --json` shows a pool.
 */
#ifndef POLLUX_TPADM_H
#define POLLUX_TPADM_H

#include "atmi.h"
#include "fml32.h"

#define MIB_LOCAL 0x00001
#define TAEAPP -1
#define TAECONFIG -2
#define TAEINVAL -3
#define TAEOS -4
#define TAEPERM -6
#define TAEPREIMAGE -7
#define TAEPROTO -8
#define TAEREQUIRED -9
#define TAESUPPORT -10
#define TAESYSTEM -11
#define TAEUNIQ -12
#define TAELIMIT -13
#define TAOK 0
#define TAUPDATED 1
#define TAPARTIAL 2

POLLUX_REFUSED("pollux has no tpadmcall: see `pollux pool ps --json`")
int tpadmcall(FBFR32 *in, FBFR32 **out, long flags);

#endif
