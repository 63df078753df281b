/* xatmi.h - another name of atmi.h. */
#ifndef POLLUX_XATMI_H
#define POLLUX_XATMI_H

#include "atmi.h"

#endif
