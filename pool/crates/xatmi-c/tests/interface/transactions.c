/* Transactions over no resource, by both interfaces, without a pool: no service is offered. */
#include <atmi.h>
#include <string.h>
#include <time.h>
#include <tx.h>

#include "check.h"

static int call(long flags) {
  char *reply = NULL;
  long len = 0;
  return tpcall("NONE", NULL, 0, &reply, &len, flags);
}

/* Until the time of a transaction of 1 second is over. */
static void outlive(void) {
  struct timespec end;
  clock_gettime(CLOCK_MONOTONIC, &end);
  end.tv_sec += 1;
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) != 0) continue;
}

static void by_atmi(void) {
  CHECK(tpopen() == 0 && tpopen() == 0 && tpgetlev() == 0);
  CHECK(tpcommit(0) == -1 && tperrno == TPEPROTO);
  CHECK(tpabort(0) == -1 && tperrno == TPEPROTO);
  CHECK(tpbegin(30, 1) == -1 && tperrno == TPEINVAL && tpgetlev() == 0);
  CHECK(tpbegin(30, 0) == 0 && tpgetlev() == 1);
  CHECK(tpbegin(30, 0) == -1 && tperrno == TPEPROTO && tpgetlev() == 1);
  CHECK(tpclose() == -1 && tperrno == TPEPROTO);
  CHECK(tpcommit(1) == -1 && tperrno == TPEINVAL && tpgetlev() == 1);
  CHECK(tpabort(1) == -1 && tperrno == TPEINVAL && tpgetlev() == 1);
  CHECK(tpacall("NONE", NULL, 0, TPNOREPLY) == -1 && tperrno == TPEINVAL);
  /* That there is no such service decides nothing. */
  CHECK(call(0) == -1 && tperrno != TPETIME && tperrno != TPESVCERR);
  CHECK(tpcommit(TPTXCOMMITDLOG) == 0 && tpgetlev() == 0);
  CHECK(tpbegin(0, 0) == 0 && tpabort(0) == 0 && tpgetlev() == 0);
  /* tpterm ends it. */
  CHECK(tpbegin(0, 0) == 0 && tpterm() == 0 && tpgetlev() == 0);

  CHECK(tpbegin(1, 0) == 0);
  outlive();
  CHECK(call(0) == -1 && tperrno == TPETIME);
  CHECK(call(TPNOTRAN) == -1 && tperrno != TPETIME);
  CHECK(tpcommit(0) == -1 && tperrno == TPEABORT);
  CHECK(strstr(tpstrerror(TPEABORT), "its time was over") != NULL && tpgetlev() == 0);
  CHECK(tpclose() == 0 && tpclose() == 0);
}

static void by_tx(void) {
  TXINFO info;
  memset(&info, 'x', sizeof info);
  CHECK(tx_begin() == TX_PROTOCOL_ERROR && tx_commit() == TX_PROTOCOL_ERROR);
  CHECK(tx_rollback() == TX_PROTOCOL_ERROR && tx_info(&info) == TX_PROTOCOL_ERROR);
  CHECK(tx_set_commit_return(0) == TX_PROTOCOL_ERROR);
  CHECK(tx_set_transaction_control(0) == TX_PROTOCOL_ERROR);
  CHECK(tx_set_transaction_timeout(0) == TX_PROTOCOL_ERROR);
  CHECK(tx_open() == TX_OK && tx_open() == TX_OK);
  CHECK(tx_commit() == TX_PROTOCOL_ERROR && tx_rollback() == TX_PROTOCOL_ERROR);
  CHECK(tx_set_commit_return(TX_COMMIT_COMPLETED) == TX_OK);
  CHECK(tx_set_commit_return(TX_COMMIT_DECISION_LOGGED) == TX_OK);
  CHECK(tx_info(&info) == 0 && info.when_return == TX_COMMIT_DECISION_LOGGED);
  CHECK(tx_set_commit_return(2) == TX_EINVAL && tx_set_transaction_control(2) == TX_EINVAL);
  CHECK(tx_set_transaction_timeout(-1) == TX_EINVAL);
  CHECK(tx_info(NULL) == 0 && tx_info(&info) == 0 && info.xid.formatID == -1);
  CHECK(info.transaction_timeout == 0 && info.transaction_control == TX_UNCHAINED);

  CHECK(tx_begin() == TX_OK && tx_begin() == TX_PROTOCOL_ERROR && tpgetlev() == 1);
  CHECK(tx_close() == TX_PROTOCOL_ERROR);
  CHECK(tx_info(&info) == 1 && info.transaction_state == TX_ACTIVE && info.xid.formatID != -1);
  CHECK(info.xid.gtrid_length > 0 && info.xid.gtrid_length <= MAXGTRIDSIZE);
  XID first = info.xid;
  CHECK(tx_set_transaction_control(TX_CHAINED) == TX_OK);
  CHECK(tx_commit() == TX_OK && tx_info(&info) == 1 && memcmp(&first, &info.xid, sizeof first));
  CHECK(info.transaction_control == TX_CHAINED);
  CHECK(tx_rollback() == TX_OK && tx_info(NULL) == 1);
  CHECK(tpcommit(0) == 0 && tpgetlev() == 1 && tpabort(0) == 0 && tpgetlev() == 1);
  CHECK(tx_set_transaction_control(TX_UNCHAINED) == TX_OK);
  CHECK(tx_set_transaction_timeout(1) == TX_OK);
  CHECK(tx_rollback() == TX_OK && tx_info(&info) == 0 && info.transaction_timeout == 1);

  CHECK(tx_begin() == TX_OK);
  outlive();
  CHECK(tx_info(&info) == 1 && info.transaction_state == TX_TIMEOUT_ROLLBACK_ONLY);
  CHECK(tx_commit() == TX_ROLLBACK && tx_info(NULL) == 0);
  CHECK(tx_close() == TX_OK && tx_begin() == TX_PROTOCOL_ERROR);
}

int main(void) {
  by_atmi();
  by_tx();
  return failures != 0;
}
