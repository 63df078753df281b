/* An environment that makes no sense is TPEINVAL, with the variable in the text. */
#include <atmi.h>
#include <string.h>

#include "check.h"

int main(void) {
  CHECK(tpinit(NULL) == -1 && tperrno == TPEINVAL);
  CHECK(strstr(tpstrerror(tperrno), "NDRX_QPREFIX") != NULL);
  return failures != 0;
}
