/*
 * ondebug.h - another name of oatmi.h, which has the functions of logs.
 */
#ifndef POLLUX_ONDEBUG_H
#define POLLUX_ONDEBUG_H

#include "oatmi.h"

#endif
