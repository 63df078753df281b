/*
 * Exfields.h - fields of typed buffers that Enduro/X itself writes into buffers of programs.
 *
 * A program reads them by these names where it was written for Enduro/X; no part of pollux writes them. Those of EX_CC_
 * are for the service @CCONF, those of EX_NET for services of a network gateway: no server here offers these, and such a
 * call ends with TPENOENT. Fields of other servers that are not here (queues, transactions) have no names.
 */
#ifndef POLLUX_EXFIELDS_H
#define POLLUX_EXFIELDS_H

#include "ubf.h"

/* A field of this type and number, as Bmkfldid makes it. */
#define POLLUX_EX_FIELD(type, number) ((BFLDID)(((type) << 25) | (number)))

#define EX_NERROR_CODE POLLUX_EX_FIELD(BFLD_SHORT, 400)
#define EX_NERROR_MSG POLLUX_EX_FIELD(BFLD_STRING, 401)
#define EX_NREQLOGFILE POLLUX_EX_FIELD(BFLD_STRING, 402) /* the log file of a request */
#define EX_TPERRNO POLLUX_EX_FIELD(BFLD_LONG, 450)
#define EX_TPURCODE POLLUX_EX_FIELD(BFLD_LONG, 451)
#define EX_TPSTRERROR POLLUX_EX_FIELD(BFLD_STRING, 452)
#define EX_TPERRSRC POLLUX_EX_FIELD(BFLD_CHAR, 453)
#define EX_CC_CMD POLLUX_EX_FIELD(BFLD_CHAR, 500)
#define EX_CC_RESOURCE POLLUX_EX_FIELD(BFLD_STRING, 501)
#define EX_CC_LOOKUPSECTION POLLUX_EX_FIELD(BFLD_STRING, 502)
#define EX_CC_SECTIONMASK POLLUX_EX_FIELD(BFLD_STRING, 503)
#define EX_CC_MANDATORY POLLUX_EX_FIELD(BFLD_STRING, 504)
#define EX_CC_FORMAT_KEY POLLUX_EX_FIELD(BFLD_STRING, 505)
#define EX_CC_FORMAT_FORMAT POLLUX_EX_FIELD(BFLD_STRING, 506)
#define EX_CC_SECTION POLLUX_EX_FIELD(BFLD_STRING, 509)
#define EX_CC_KEY POLLUX_EX_FIELD(BFLD_STRING, 510)
#define EX_CC_VALUE POLLUX_EX_FIELD(BFLD_STRING, 511)
#define EX_NETDATA POLLUX_EX_FIELD(BFLD_CARRAY, 650)
#define EX_NETGATEWAY POLLUX_EX_FIELD(BFLD_STRING, 651)
#define EX_NETCONNID POLLUX_EX_FIELD(BFLD_LONG, 652)
#define EX_NETCORR POLLUX_EX_FIELD(BFLD_STRING, 653)
#define EX_NETFLAGS POLLUX_EX_FIELD(BFLD_STRING, 654)
#define EX_NETCONNIDCOMP POLLUX_EX_FIELD(BFLD_LONG, 655)
#define EX_NETOURIP POLLUX_EX_FIELD(BFLD_STRING, 656)
#define EX_NETOURPORT POLLUX_EX_FIELD(BFLD_LONG, 657)
#define EX_NETTHEIRIP POLLUX_EX_FIELD(BFLD_STRING, 658)
#define EX_NETTHEIRPORT POLLUX_EX_FIELD(BFLD_LONG, 659)
#define EX_NETCONMODE POLLUX_EX_FIELD(BFLD_CHAR, 660)
#define EX_NETRCODE POLLUX_EX_FIELD(BFLD_LONG, 751)

#endif
