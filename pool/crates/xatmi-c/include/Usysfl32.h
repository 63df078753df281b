/* Usysfl32.h - fml32.h under a name of Tuxedo, whose fields of administration are not here. */
#ifndef POLLUX_USYSFL32_H
#define POLLUX_USYSFL32_H

#include "fml32.h"

#endif
