/* Fields as JSON and back, with each error. */
#include <atmi.h>
#include <stdlib.h>
#include <string.h>
#include <ubf.h>

#include "check.h"

int main(void) {
  UBFH *ubf = (UBFH *)tpalloc("UBF", NULL, 1024), *other = (UBFH *)tpalloc("UBF", NULL, 1024);
  UBFH *small = Balloc(1, 8);
  static long long stray[16];
  char text[256];
  BFLDID name = Bfldid("T_NAME"), age = Bfldid("T_AGE");
  CHECK(Badds(ubf, name, "one \"quoted\"") == 0 && Badds(ubf, name, "two") == 0);
  CHECK(Badds(ubf, age, "-5") == 0 && Badd(ubf, Bfldid("T_BYTES"), "a\0b", 3) == 0);
  CHECK(tpubftojson(ubf, text, sizeof text) == 0 && tperrno == 0);
  CHECK(strcmp(text, "{\"T_AGE\":-5,\"T_NAME\":[\"one \\\"quoted\\\"\",\"two\"],\"T_BYTES\":\"YQBi\"}") == 0);
  CHECK(tpjsontoubf(other, text) == 0 && Bcmp(other, ubf) == 0);
  CHECK(tpjsontoubf(other, "{\"T_INNER\":{\"T_AGE\":\"7\"}}") == 0 && Bnum(other) == 1);
  CHECK(tpubftojson(other, text, sizeof text) == 0);
  CHECK(strcmp(text, "{\"T_INNER\":{\"T_AGE\":7}}") == 0);

  CHECK(tpubftojson(other, text, 24) == 0);
  CHECK(tpubftojson(other, text, 23) == -1 && tperrno == TPELIMIT);
  CHECK(tpubftojson(other, text, -1) == -1 && tperrno == TPELIMIT);
  CHECK(tpubftojson(other, NULL, 10) == -1 && tperrno == TPEINVAL);
  CHECK(tpubftojson(NULL, text, 10) == -1 && tperrno == TPEINVAL);
  CHECK(tpubftojson((UBFH *)stray, text, 10) == -1 && tperrno == TPEINVAL);
  CHECK(tpjsontoubf(NULL, "{}") == -1 && tperrno == TPEINVAL);
  CHECK(tpjsontoubf((UBFH *)STRAY, "{}") == -1 && tperrno == TPEINVAL);
  CHECK(tpjsontoubf(other, NULL) == -1 && tperrno == TPEINVAL);
  CHECK(tpjsontoubf(other, "\xff") == -1 && tperrno == TPEINVAL);
  CHECK(tpjsontoubf(other, "{\"T_AGE\":") == -1 && tperrno == TPEINVAL);
  CHECK(tpjsontoubf(other, "{\"T_NOBODY\":1}") == -1 && tperrno == TPEINVAL);
  CHECK(strstr(tpstrerror(tperrno), "T_NOBODY") != NULL);
  CHECK(tpjsontoubf(other, "{\"T_INNER\":1}") == -1 && tperrno == TPEINVAL && Bnum(other) == 1);
  CHECK(tpjsontoubf(small, "{\"T_NAME\":\"a text that is too long for it\"}") == -1);
  CHECK(tperrno == TPELIMIT && Bnum(small) == 0);
  CHECK(Badds(ubf, name, "\xff") == 0 && tpubftojson(ubf, text, sizeof text) == -1);
  CHECK(tperrno == TPEINVAL && strstr(tpstrerror(tperrno), "T_NAME") != NULL);
  /* With escapes of its own a text of any bytes goes there and back. */
  CHECK(setenv("NDRX_APIFLAGS", "json_escape", 1) == 0);
  CHECK(Bdelall(ubf, Bfldid("T_BYTES")) == 0 && Bdelall(ubf, age) == 0 && Bdelall(ubf, name) == 0);
  CHECK(Badds(ubf, name, "\x01 a\\\xff") == 0 && tpubftojson(ubf, text, sizeof text) == 0);
  CHECK(strcmp(text, "{\"T_NAME\":\"\\\\01 a\\\\\\\\\\\\ff\"}") == 0);
  CHECK(tpjsontoubf(other, text) == 0 && Bcmp(other, ubf) == 0);
  CHECK(tpjsontoubf(other, "{\"T_NAME\":\"\\\\0\"}") == -1 && tperrno == TPEINVAL);
  CHECK(unsetenv("NDRX_APIFLAGS") == 0);
  tpfree((char *)ubf);
  tpfree((char *)other);
  tpfree((char *)small);
  return failures != 0;
}
