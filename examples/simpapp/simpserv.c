/* A server with one service: TOUPPER answers a text in capital letters. */
#include <atmi.h>
#include <ctype.h>
#include <unistd.h>
#include <userlog.h>

#ifdef __cplusplus
extern "C"
#endif
void TOUPPER(TPSVCINFO *request) {
  for (char *letter = request->data; letter != NULL && *letter != '\0'; letter++) {
    *letter = (char)toupper((unsigned char)*letter);
  }
  tpreturn(TPSUCCESS, 0, request->data, 0L, 0);
}

int tpsvrinit(int argc, char **argv) {
  userlog("%s starts with %d arguments", argv[0], argc - optind);
  return 0;
}

void tpsvrdone(void) { userlog("the server ends"); }
