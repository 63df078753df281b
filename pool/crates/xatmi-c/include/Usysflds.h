/* Usysflds.h - fml.h under a name of Tuxedo, whose fields of administration are not here. */
#ifndef POLLUX_USYSFLDS_H
#define POLLUX_USYSFLDS_H

#include "fml.h"

#endif
