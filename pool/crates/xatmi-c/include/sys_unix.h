/* sys_unix.h - headers of the system that programs of Enduro/X expect with one name. */
#ifndef POLLUX_SYS_UNIX_H
#define POLLUX_SYS_UNIX_H

#include <limits.h>
#include <regex.h>
#include <stdint.h>

#include "atmi.h"
#include "ubf.h"

#endif
