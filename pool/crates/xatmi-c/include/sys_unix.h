/* sys_unix.h - headers of the system that programs of Enduro/X expect with one name. */
#ifndef POLLUX_SYS_UNIX_H
#define POLLUX_SYS_UNIX_H

#include <fcntl.h>
#include <limits.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <regex.h>
#include <stdint.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "atmi.h"
#include "ubf.h"

#endif
