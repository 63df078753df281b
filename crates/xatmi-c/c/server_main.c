/*
 * main of a server that was linked with -latmisrv: the program brings tpsvrinit and tpsvrdone.
 */
#include <stddef.h>

#include "atmi.h"

/* A program may leave them out. */
#pragma weak tpsvrinit
#pragma weak tpsvrdone

int main(int argc, char **argv) {
  return pollux_server_main(argc, argv, tpsvrinit, tpsvrdone, NULL);
}
