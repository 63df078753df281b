/*
 * tx.h - transactions by the interface of X/Open, over no resource; see tpbegin in atmi.h.
 *
 * Functions return TX_OK, or one of the numbers below that its line names. All but tx_open and
 * tx_close are TX_PROTOCOL_ERROR before tx_open. What is set is the thread's.
 */
#ifndef POLLUX_TX_H
#define POLLUX_TX_H

#ifdef __cplusplus
extern "C" {
#endif

#define TX_NOT_SUPPORTED 1
#define TX_OK 0
#define TX_OUTSIDE -1
#define TX_ROLLBACK -2
#define TX_MIXED -3
#define TX_HAZARD -4
#define TX_PROTOCOL_ERROR -5
#define TX_ERROR -6
#define TX_FAIL -7
#define TX_EINVAL -8
#define TX_COMMITTED -9
#define TX_NO_BEGIN -100
#define TX_ROLLBACK_NO_BEGIN (TX_ROLLBACK + TX_NO_BEGIN)
#define TX_MIXED_NO_BEGIN (TX_MIXED + TX_NO_BEGIN)
#define TX_HAZARD_NO_BEGIN (TX_HAZARD + TX_NO_BEGIN)
#define TX_COMMITTED_NO_BEGIN (TX_COMMITTED + TX_NO_BEGIN)

#define XIDDATASIZE 128
#define MAXGTRIDSIZE 64
#define MAXBQUALSIZE 64

typedef struct xid_t {
  long formatID; /* -1 without a transaction */
  long gtrid_length;
  long bqual_length;
  char data[XIDDATASIZE];
} XID;

typedef long COMMIT_RETURN;
#define TX_COMMIT_COMPLETED 0
#define TX_COMMIT_DECISION_LOGGED 1 /* the same */

typedef long TRANSACTION_CONTROL;
#define TX_UNCHAINED 0
#define TX_CHAINED 1

typedef long TRANSACTION_TIMEOUT; /* seconds, 0 means no limit */

typedef long TRANSACTION_STATE;
#define TX_ACTIVE 0
#define TX_TIMEOUT_ROLLBACK_ONLY 1
#define TX_ROLLBACK_ONLY 2

typedef struct tx_info_t {
  XID xid;
  COMMIT_RETURN when_return;
  TRANSACTION_CONTROL transaction_control;
  TRANSACTION_TIMEOUT transaction_timeout;
  TRANSACTION_STATE transaction_state;
} TXINFO;

extern int tx_open(void);
extern int tx_close(void);    /* TX_PROTOCOL_ERROR within a transaction */
extern int tx_begin(void);    /* TX_PROTOCOL_ERROR within a transaction */
extern int tx_commit(void);   /* TX_ROLLBACK when it aborted; TX_PROTOCOL_ERROR without one */
extern int tx_rollback(void); /* TX_PROTOCOL_ERROR without a transaction */
extern int tx_info(TXINFO *info); /* 1 within a transaction, else 0; `info` may be NULL */
extern int tx_set_commit_return(COMMIT_RETURN when);                /* TX_EINVAL */
extern int tx_set_transaction_control(TRANSACTION_CONTROL control); /* TX_EINVAL */
extern int tx_set_transaction_timeout(TRANSACTION_TIMEOUT timeout); /* TX_EINVAL */

#ifdef __cplusplus
}
#endif

#endif
