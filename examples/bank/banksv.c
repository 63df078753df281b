/*
 * The server of the bank example: BALANCE says what may be spent from an account.
 *
 *   pollux fld examples/bank/bank.fd -d .
 *   CFLAGS="-I." pollux pool build-server -o banksv examples/bank/banksv.c
 *
 * It keeps no accounts: the balance follows from the number, so that every answer can be checked.
 */
#include <atmi.h>
#include <bank.fd.h>
#include <stdio.h>
#include <string.h>
#include <ubf.h>

/* Room that the answer takes beside the request. */
#define ANSWER_BYTES 64

/* A balance of 0.00 to 9999.99 for each number of an account. */
static double balance_of(const char *account) {
  unsigned hash = 2166136261u;
  for (; *account != '\0'; account++) hash = (hash ^ (unsigned char)*account) * 16777619u;
  return hash % 1000000u / 100.0;
}

/* In: T_ACCNUM, T_ACCCUR. Out: T_AMTAVL beside them. TPFAIL when a field is missing, with 1 in
 * tpurcode, or the currency is not kept, with 2. */
void BALANCE(TPSVCINFO *call) {
  char account[29], currency[4];
  BFLDLEN account_len = sizeof account, currency_len = sizeof currency;
  UBFH *fields = (UBFH *)call->data;
  /* Only when it is short: the caller's next request comes in a buffer as large as this answer's. */
  if (Bunused(fields) < ANSWER_BYTES) {
    fields = (UBFH *)tprealloc(call->data, call->len + ANSWER_BYTES);
  }
  if (fields == NULL) {
    fprintf(stderr, "BALANCE: %s\n", tpstrerror(tperrno));
    tpreturn(TPFAIL, 1, call->data, 0, 0);
  }
  if (Bget(fields, T_ACCNUM, 0, account, &account_len) == -1 ||
      Bget(fields, T_ACCCUR, 0, currency, &currency_len) == -1) {
    fprintf(stderr, "BALANCE: %s\n", Bstrerror(Berror));
    tpreturn(TPFAIL, 1, (char *)fields, 0, 0);
  }
  if (strcmp(currency, "USD") != 0) tpreturn(TPFAIL, 2, (char *)fields, 0, 0);
  double balance = balance_of(account);
  if (Bchg(fields, T_AMTAVL, 0, (char *)&balance, 0) == -1) {
    fprintf(stderr, "BALANCE: %s\n", Bstrerror(Berror));
    tpreturn(TPFAIL, 1, (char *)fields, 0, 0);
  }
  tpreturn(TPSUCCESS, 0, (char *)fields, 0, 0);
}

int tpsvrinit(int argc, char **argv) {
  (void)argc;
  if (tpadvertise("BALANCE", BALANCE) == -1) {
    fprintf(stderr, "%s: %s\n", argv[0], tpstrerror(tperrno));
    return -1;
  }
  return 0;
}
