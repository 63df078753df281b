/*
 * Exfields.h - fields of typed buffers that Enduro/X itself writes into buffers of programs.
 *
 * A program reads them by these names where it was written for Enduro/X; no part of pollux writes them. Fields of
 * servers that are not here (gateways, queues, transactions, settings) have no names.
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

#endif
