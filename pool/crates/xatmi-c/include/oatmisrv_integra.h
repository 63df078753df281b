/*
 * oatmisrv_integra.h - another name of oatmisrv.h.
 */
#ifndef POLLUX_OATMISRV_INTEGRA_H
#define POLLUX_OATMISRV_INTEGRA_H

#include "oatmisrv.h"

#endif
