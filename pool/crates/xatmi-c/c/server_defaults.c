/*
 * What a server with a main of its own names and does not bring: linked only where it is asked for, and before whatever the
 * program has.
 */
#include "atmi.h"

__attribute__((weak)) int tpsvrinit(int argc, char **argv) {
  (void)argc;
  (void)argv;
  return tpopen();
}

__attribute__((weak)) void tpsvrdone(void) { (void)tpclose(); }

__attribute__((weak)) int tpsvrthrinit(int argc, char **argv) {
  (void)argc;
  (void)argv;
  return 0;
}

__attribute__((weak)) void tpsvrthrdone(void) {}
