/*
 * main of a server that was linked with -latmisrv: the program brings tpsvrinit and its
 * fellows.
 */
#include <stddef.h>

#include "atmi.h"

/* A program may leave them out. */
#pragma weak tpsvrinit
#pragma weak tpsvrdone
#pragma weak tpsvrthrinit
#pragma weak tpsvrthrdone

int main(int argc, char **argv) {
  pollux_server_thread_functions(tpsvrthrinit, tpsvrthrdone);
  return pollux_server_main(argc, argv, tpsvrinit, tpsvrdone, NULL);
}
