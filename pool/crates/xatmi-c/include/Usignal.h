/* Usignal.h - signals, whose functions are those of the system. */
#ifndef POLLUX_USIGNAL_H
#define POLLUX_USIGNAL_H

#include <signal.h>

#endif
