/*
 * nerror.h - errors of functions of logs, which Enduro/X keeps apart: here the last one of atmi.h, by another number.
 */
#ifndef POLLUX_NERROR_H
#define POLLUX_NERROR_H

#include "atmi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NMINVAL 0
#define NEUNIX 3   /* the system said no */
#define NEINVAL 4  /* an argument is not valid */
#define NESYSTEM 5 /* anything else */

#define Nerror (*pollux_nerror_address())
extern int *pollux_nerror_address(void);
extern char *Nstrerror(int error);

#ifdef __cplusplus
}
#endif

#endif
