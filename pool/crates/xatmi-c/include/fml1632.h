/* fml1632.h - FML programs that use 32-bit buffers: here they do anyway. */
#ifndef POLLUX_FML1632_H
#define POLLUX_FML1632_H

#include "fml.h"

#endif
