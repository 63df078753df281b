/* Uunix.h - the error of the system call behind TPEOS: that of errno(3). */
#ifndef POLLUX_UUNIX_H
#define POLLUX_UUNIX_H

#include <errno.h>

#define Uunixerr errno

#endif
