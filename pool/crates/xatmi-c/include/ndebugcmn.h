/* ndebugcmn.h - what sources of Enduro/X include beside ndebug.h, which has all of it here. */
#ifndef POLLUX_NDEBUGCMN_H
#define POLLUX_NDEBUGCMN_H

#include "ndebug.h"

#endif
