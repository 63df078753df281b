/* Usignal.h - signals by the names of Tuxedo; the functions are those of the system. */
#ifndef POLLUX_USIGNAL_H
#define POLLUX_USIGNAL_H

#include <signal.h>

#include "Uunix.h"

#define USIGTYP void
#define Usignal signal

#endif
