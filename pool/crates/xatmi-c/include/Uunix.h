/* Uunix.h - the error of the system call behind TPEOS: that of errno(3). */
#ifndef POLLUX_UUNIX_H
#define POLLUX_UUNIX_H

#include <errno.h>

/* Arguments of a prototype, in sources that were also for compilers without any. */
#ifndef _
#define _(arguments) arguments
#endif

#define Uunixerr errno

#endif
