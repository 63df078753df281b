/*
 * The client of the bank example: asks for balances from several threads at once.
 *
 *   CFLAGS="-I." pollux pool build-client -o bankcl examples/bank/bankcl.c -l -lpthread
 *   bankcl [THREADS [CALLS]]        1 and 1 by default; CALLS are those of each thread
 *
 * Each thread has an account and prints its last balance. Exit code 1 when a call failed.
 */
#include <atmi.h>
#include <bank.fd.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <ubf.h>

#define THREADS_MAX 1000

struct caller {
  pthread_t thread;
  int number;
  long calls;
  int has_failed;
};

/* Fills a request, which is the answer's buffer too. */
static int fill(UBFH *fields, int number) {
  char account[29];
  snprintf(account, sizeof account, "ACC%011d", number + 1);
  if (Binit(fields, (BFLDLEN)Bsizeof(fields)) == -1) return -1;
  if (Badd(fields, T_ACCNUM, account, 0) == -1) return -1;
  return Badd(fields, T_ACCCUR, "USD", 0);
}

static int ask(struct caller *caller, UBFH **fields) {
  double balance = 0;
  long len = 0;
  for (long call = 0; call < caller->calls; call++) {
    if (fill(*fields, caller->number) == -1) {
      fprintf(stderr, "request: %s\n", Bstrerror(Berror));
      return -1;
    }
    if (tpcall("BALANCE", (char *)*fields, 0, (char **)fields, &len, 0) == -1) {
      fprintf(stderr, "BALANCE: %s (tpurcode %ld)\n", tpstrerror(tperrno), tpurcode);
      return -1;
    }
    if (Bget(*fields, T_AMTAVL, 0, (char *)&balance, NULL) == -1) {
      fprintf(stderr, "answer: %s\n", Bstrerror(Berror));
      return -1;
    }
  }
  printf("account %d: balance %.2f USD after %ld calls\n", caller->number + 1, balance,
         caller->calls);
  return 0;
}

static void *run(void *argument) {
  struct caller *caller = argument;
  UBFH *fields = (UBFH *)tpalloc("UBF", NULL, 1024);
  caller->has_failed = fields == NULL || ask(caller, &fields) == -1;
  if (fields == NULL) fprintf(stderr, "tpalloc: %s\n", tpstrerror(tperrno));
  tpfree((char *)fields);
  tpterm();
  return NULL;
}

int main(int argc, char **argv) {
  static struct caller callers[THREADS_MAX];
  int threads = argc > 1 ? atoi(argv[1]) : 1, has_failed = 0;
  long calls = argc > 2 ? atol(argv[2]) : 1;
  if (threads < 1 || threads > THREADS_MAX || calls < 1) {
    fprintf(stderr, "usage: %s [THREADS [CALLS]], 1 to %d threads\n", argv[0], THREADS_MAX);
    return 2;
  }
  for (int i = 0; i < threads; i++) {
    callers[i].number = i;
    callers[i].calls = calls;
    if (pthread_create(&callers[i].thread, NULL, run, &callers[i]) != 0) {
      fprintf(stderr, "thread %d could not be started\n", i + 1);
      return 1;
    }
  }
  for (int i = 0; i < threads; i++) {
    pthread_join(callers[i].thread, NULL);
    has_failed |= callers[i].has_failed;
  }
  return has_failed;
}
