/*
 * atmi.h - calls, services and typed buffers of pollux (XATMI).
 *
 * Link with -lpollux_xatmi, or let `pollux pool build-client` and `pollux pool build-server` do it.
 * Everything here is per thread but the buffers, tptoutset and tpopen: the error number, the context (made
 * by the first call, ended by tpterm or with the thread) and the texts. Functions return -1 or NULL
 * for an error and leave its number in tperrno; a call that succeeds sets it to 0.
 *
 * NULL where something is needed, a pointer that is not that of a buffer of tpalloc (freed ones
 * too), and lengths that cannot be are TPEINVAL. Texts, and pointers to what a call writes, are
 * followed as they are.
 */
#ifndef POLLUX_ATMI_H
#define POLLUX_ATMI_H

#include <stdlib.h>

#include "ndrstandard.h"
#include "ubf.h"
#include "xa.h"

/* In declarations of Tuxedo's programs. */
#ifndef _TMDLLENTRY
#define _TMDLLENTRY
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Errors: values of tperrno. */
#define TPMINVAL 0
#define TPEABORT 1     /* the transaction was aborted instead */
#define TPEBADDESC 2   /* no such descriptor is outstanding */
#define TPEBLOCK 3     /* it would block, and TPNOBLOCK was given */
#define TPEINVAL 4     /* an argument is not valid */
#define TPELIMIT 5     /* a limit was reached */
#define TPENOENT 6     /* no such service, or no such type of buffer */
#define TPEOS 7        /* the system said no */
#define TPEPERM 8      /* the pool is that of another user */
#define TPEPROTO 9     /* not here or not now */
#define TPESVCERR 10   /* the service ended without an answer, or with one that is not valid */
#define TPESVCFAIL 11  /* the service says that it failed; its reply was delivered */
#define TPESYSTEM 12   /* the service pool failed */
#define TPETIME 13     /* the time was over */
#define TPETRAN 14     /* the call belongs to a transaction */
#define TPGOTSIG 15    /* a signal came, and TPSIGRSTRT was not given */
#define TPERMERR 16
#define TPEITYPE 17    /* the service does not take this type of buffer */
#define TPEOTYPE 18    /* the reply's type is another, and TPNOCHANGE was given */
#define TPERELEASE 19
#define TPEHAZARD 20
#define TPEHEURISTIC 21
#define TPEEVENT 22
#define TPEMATCH 23    /* the name is advertised with another function */
#define TPEDIAGNOSTIC 24
#define TPEMIB 25
#define TPINITFAIL 30
#define TPMAXVAL 30

/* Flags of calls. Those without a remark are accepted and change nothing. */
#define TPNOFLAGS 0x00000000L
#define TPNOBLOCK 0x00000001L /* TPEBLOCK instead of waiting for room, in tpgetrply for a reply */
#define TPSIGRSTRT 0x00000002L /* continue after a signal instead of TPGOTSIG */
#define TPNOREPLY 0x00000004L /* tpacall: without a reply, and the result is 0 */
#define TPNOTRAN 0x00000008L /* the call does not belong to the transaction */
#define TPTRAN 0x00000010L
#define TPNOTIME 0x00000020L /* wait as long as it takes */
#define TPABSOLUTE 0x00000040L
#define TPGETANY 0x00000080L /* tpgetrply: any reply; *cd becomes its descriptor */
#define TPNOCHANGE 0x00000100L /* TPEOTYPE for a reply of another type than *odata has */
#define TPCONV 0x00000400L /* of TPSVCINFO: the service was reached by tpconnect */
#define TPSENDONLY 0x00000800L /* tpconnect: this side has control; TPSVCINFO: the service has */
#define TPRECVONLY 0x00001000L /* tpconnect, tpsend: the other side has control */

#define TPACK 0x00002000L
#define TPREGEXMATCH 0x00800000L /* tpbroadcast: names are regular expressions of the whole */

/* Events of a conversation, and kinds of subscriptions. */
#define TPEV_DISCONIMM 0x0001L
#define TPEV_SVCERR 0x0002L
#define TPEV_SVCFAIL 0x0004L
#define TPEV_SVCSUCC 0x0008L
#define TPEV_SENDONLY 0x0020L
#define TPEVSERVICE 0x00000001L
#define TPEVQUEUE 0x00000002L
#define TPEVTRAN 0x00000004L
#define TPEVPERSIST 0x00000008L

/* Flags of tpreturn: the caller gets an error instead of the answer. */
#define TPSOFTTIMEOUT 0x00080000L /* TPETIME */
#define TPSOFTENOENT 0x00100000L  /* TPENOENT */
#define TPSOFTERR 0x00400000L     /* the error number in rval */

/* First argument of tpreturn; anything else is TPFAIL. */
#define TPFAIL 0x00000001
#define TPSUCCESS 0x00000002
#define TPEXIT 0x08000000 /* with either: answer, then end this server; it is started again */

/* Flags of tpsblktime and tpgblktime. */
#define TPBLK_NEXT 0x00000001L
#define TPBLK_ALL 0x00000002L

/* Lengths, with the ending NUL where there is one. */
#define XATMI_SERVICE_NAME_LENGTH 30
#define MAXTIDENT 30
#define XATMI_TYPE_LENGTH 8
#define XATMI_SUBTYPE_LENGTH 16
#define XATMI_TYPE_LEN XATMI_TYPE_LENGTH
#define XATMI_SUBTYPE_LEN 33 /* of programs of Enduro/X: room for more than there is */
#define X_OCTET "X_OCTET"
#define X_C_TYPE "X_C_TYPE"
#define X_COMMON "X_COMMON"

/* The client that called. */
typedef struct clientid_t {
  char clientdata[96];
} CLIENTID;

/* What a service function is given. `data` is the request and NULL when the caller sent none; it
 * belongs to the server and may be given to tprealloc and tpreturn, not to tpfree. */
typedef struct tpsvcinfo {
  char name[XATMI_SERVICE_NAME_LENGTH + 1];
  char *data;
  long len;
  long flags;
  int cd;
  long appkey;
  CLIENTID cltid;
  char fname[XATMI_SERVICE_NAME_LENGTH + 2];
} TPSVCINFO;

/* What tpinit is given; nothing in it is needed, and NULL is fine. Of the flags TPMULTICONTEXTS counts.
 * tpalloc("TPINIT", NULL, TPINITNEED(bytes)) gives one with so many bytes of data. */
#define TPU_MASK 0x00000007L
#define TPU_SIG 0x00000001L
#define TPU_DIP 0x00000002L
#define TPU_IGN 0x00000004L
#define TPSA_FASTPATH 0x00000008L
#define TPSA_PROTECTED 0x00000010L
#define TPMULTICONTEXTS 0x00000020L /* another context, beside those that there are */
#define TPU_THREAD 0x00000040L
typedef struct tpinfo_t {
  char usrname[MAXTIDENT + 1];
  char cltname[MAXTIDENT + 1];
  char passwd[MAXTIDENT + 1];
  char grpname[MAXTIDENT + 1];
  long flags;
  long datalen;
  long data;
} TPINIT;
#define TPINITNEED(bytes) \
  ((bytes) > (long)sizeof(long) ? (long)(sizeof(TPINIT) - sizeof(long)) + (bytes) : (long)sizeof(TPINIT))

/* Typed buffers: UBF (FML, FML32, UBF32), STRING, CARRAY (X_OCTET), JSON, and structs of a view: VIEW
 * (VIEW32), X_C_TYPE, X_COMMON, with the view as subtype; they hold its null values at first. tpfree takes any
 * pointer and leaves tperrno as it is. */
extern char *tpalloc(const char *type, const char *subtype, long size);
extern char *tprealloc(char *ptr, long size);
extern void tpfree(char *ptr);
extern long tptypes(char *ptr, char *type, char *subtype);
extern int tpisautobuf(char *ptr); /* 1 for the request of a service, else 0 */

/* Calls. `idata` and `*odata` may be NULL or buffers of tpalloc; `ilen` and `len` count for CARRAY
 * and X_OCTET only. `*odata` is replaced when the reply needs it, and `*olen` says how long that
 * is: the size of the buffer for UBF, 0 for none. After TPESVCFAIL the reply is there as well. A
 * descriptor that tpgetrply ended with TPETIME, TPEBLOCK or TPGOTSIG for may be asked for again.
 * Threads may send one buffer at the same time, but not wait for replies in one. */
extern int tpcall(const char *svc, char *idata, long ilen, char **odata, long *olen, long flags);
extern int tpacall(const char *svc, char *data, long len, long flags);
extern int tpgetrply(int *cd, char **data, long *len, long flags);
extern int tpcancel(int cd);

/* Conversations: data goes both ways in turns, and the side with control sends. tpconnect needs TPSENDONLY or
 * TPRECVONLY and waits until the service has come; tpsend with TPRECVONLY gives control away. The
 * service uses the descriptor of TPSVCINFO and ends by tpreturn, for which it needs control, else it is
 * TPEV_SVCERR (but for TPFAIL without data). TPEEVENT: *revent is TPEV_SENDONLY (tprecv: with the data
 * comes control), TPEV_SVCSUCC or TPEV_SVCFAIL (with the data of tpreturn; tpurcode), TPEV_SVCERR (the
 * service or its process ended otherwise), TPEV_DISCONIMM (the initiator called tpdiscon or ended); but for
 * the first the descriptor is over. TPEPROTO: it is the other side's turn. tpdiscon is for the side that began it. */
extern int tpconnect(const char *svc, char *data, long len, long flags);
extern int tpsend(int cd, char *data, long len, long flags, long *revent);
extern int tprecv(int cd, char **data, long *len, long flags, long *revent);
extern int tpdiscon(int cd);

/* Events and unsolicited messages. tpsubscribe takes a regular expression of names and a filter (for
 * fields a Boolean expression, for texts a regular expression; NULL or "" for all), 255 bytes each; with
 * TPEVSERVICE the service `name1` gets the data as a request, without TPEVCTL (NULL) the thread's
 * context as an unsolicited message. It gives a handle, and lasts as long as its context. tppost (names
 * have up to 31 bytes), tpbroadcast (NULL fits every name; machines are not looked at) and tpunsubscribe (-1
 * for all) give how many there were, also in tpurcode. Messages wait until tpchkunsol gives them to the
 * thread's handler and frees them; those that find no room are lost. TPEPROTO: no handler.
 * tpnotify: TPENOENT for a client that is gone or has no handler, TPEBLOCK when it does not look. */
#define XATMI_EVENT_MAX 32
typedef struct tpevctl_t {
  long flags;
  char name1[XATMI_EVENT_MAX];
  char name2[XATMI_EVENT_MAX];
} TPEVCTL;
typedef void (*TPUNSOLHANDLER)(char *data, long len, long flags);
#define TPUNSOLERR ((TPUNSOLHANDLER)-1)
extern long tpsubscribe(const char *events, const char *filter, const TPEVCTL *control, long flags);
extern int tpunsubscribe(long subscription, long flags);
extern int tppost(const char *event, char *data, long len, long flags);
extern int tpnotify(const CLIENTID *client, char *data, long len, long flags);
extern int tpbroadcast(const char *machine, const char *usrname, const char *cltname, char *data,
                       long len, long flags);
extern TPUNSOLHANDLER tpsetunsol(TPUNSOLHANDLER handler); /* the one before; TPUNSOLERR for an error */
extern int tpchkunsol(void);

/* Ends of a service function: neither comes back to it, and the buffer is the server's. Anywhere
 * else they do come back, with TPEPROTO. */
extern void tpreturn(int rval, long rcode, char *data, long len, long flags);
extern void tpforward(const char *svc, char *data, long len, long flags);

/* Services of this server; in tpsvrinit they take effect when it has returned 0. */
#define tpadvertise(name, function) tpadvertise_full((name), (function), #function)
extern int tpadvertise_full(const char *name, void (*function)(TPSVCINFO *),
                            const char *function_name);
extern int tpunadvertise(const char *name);

/* The thread's context. Both may be left out: any call makes it, the thread's end closes it. */
extern int tpinit(TPINIT *info);
extern int tpterm(void);
extern int tpappthrinit(TPINIT *info); /* the same for threads that a server made */
extern int tpappthrterm(void);
#define TPNOAUTH 0 /* no password is asked for: who may call is decided by the user */
#define TPSYSAUTH 1
#define TPAPPAUTH 2
static __inline__ int tpchkauth(void) { return TPNOAUTH; }

/* Contexts by their handles. The one that tpgetctxt tells lasts until its tpterm, whatever becomes of the
 * thread, and so does one of TPMULTICONTEXTS; any thread may enter it by tpsetctxt and leave it for another
 * one or none. Of several threads in one context one calls at a time. Those whose context another
 * thread ended are in TPINVALIDCONTEXT: calls are TPEPROTO there. tpsetctxt is TPENOENT for a context that
 * there is not, TPEPROTO on a server's own thread, whose context is the server's. tpnewctxt makes a context by itself, which
 * joins the pool by its first call and lasts until tpfreectxt, with `ends_with_thread` not longer than the thread; with
 * `is_entered` the thread is in it. NULL: TPELIMIT, or TPEPROTO on a server's own thread. Functions of oatmi.h name a
 * context in front. */
typedef void *TPCONTEXT_T;
#define TPNULLCONTEXT ((TPCONTEXT_T)0) /* none */
#define TPINVALIDCONTEXT ((TPCONTEXT_T)0x7fffffffL)
#define TPSINGLECONTEXT ((TPCONTEXT_T)0x7ffffffeL) /* no context has it */
extern int tpgetctxt(TPCONTEXT_T *context, long flags); /* TPMULTICONTEXTS, 0 where there is none */
extern int tpsetctxt(TPCONTEXT_T context, long flags);
extern TPCONTEXT_T tpnewctxt(int ends_with_thread, int is_entered);
extern void tpfreectxt(TPCONTEXT_T context);

/* Transactions over no resource, as programs have them that are linked with the null switch: they
 * commit unless a call that belongs to them ended with TPETIME, TPESVCFAIL, TPESVCERR or TPEOTYPE,
 * their time is over (`timeout` in seconds, 0 is none) or replies are outstanding: TPEABORT then.
 * Calls with TPNOTRAN do not belong to them; TPNOREPLY needs it. A service that is called takes part, as TPTRAN in
 * the flags of its TPSVCINFO says: its calls belong to them, and a failure of these, or a reply that it leaves outstanding,
 * has the caller's transaction abort; begin, commit and abort are TPEPROTO there. tpgetlev is 1 within a transaction. */
#define TPTXCOMMITDLOG 0x00000004L /* tpcommit: nothing is logged, and it changes nothing */
extern int tpopen(void);
extern int tpclose(void);
extern int tpbegin(unsigned long timeout, long flags);
extern int tpcommit(long flags);
extern int tpabort(long flags);
extern int tpgetlev(void);

/* A transaction is put aside, and taken up again by any thread of the process, once. TPEPROTO: there is none, or it is that
 * of a service's caller; there is one. TPEABORT: replies of it are outstanding. TPEMATCH: it is not put aside. tpscmt gives
 * what was set before; as nothing is logged, both are the same. */
#define TPTRANID_TEXT_MAX 64
typedef struct tp_tranid_t {
  char text[TPTRANID_TEXT_MAX]; /* with a NUL */
} TPTRANID;
#define TP_CMT_LOGGED 0x04
#define TP_CMT_COMPLETE 0x08
extern int tpsuspend(TPTRANID *transaction, long flags);
extern int tpresume(TPTRANID *transaction, long flags);
extern int tpscmt(long when);

/* Ids as texts of at most TPCONVMAXSTR bytes: of a CLIENTID by TPCONVCLTID, of a TPTRANID by TPCONVTRANID; with TPTOSTRING
 * from the id to the text, else from the text. */
#define TPCONVMAXSTR 512
#define TPTOSTRING 0x00000001L
#define TPCONVCLTID 0x00000002L
#define TPCONVTRANID 0x00000004L
#define TPCONVXID 0x00000008L /* TPEINVAL */
extern int tpconvert(char *text, char *id, long flags);

/* How long calls may take, in seconds; 0 takes a setting back. What is closest to the call counts:
 * tpsblktime for the thread's next call (TPBLK_NEXT) or for all of the thread (TPBLK_ALL),
 * tptoutset for the process, NDRX_TOUT, the pool's. */
extern int tptoutset(int seconds);
extern int tptoutget(void);
extern int tpsblktime(int seconds, long flags);
extern int tpgblktime(long flags);

/* Errors. The texts are the thread's until its next call of the same function. */
#define tperrno (*pollux_tperrno_address())
#define tpurcode (*pollux_tpurcode_address())
extern int *pollux_tperrno_address(void);
extern long *pollux_tpurcode_address(void);
#define _exget_tperrno_addr pollux_tperrno_address
#define _exget_tpurcode_addr pollux_tpurcode_address
extern char *tpstrerror(int error);
extern char *tpecodestr(int error);

/* The cause of the last error, which stays: TPED_MINVAL where its text says all; -1 for flags. The causes
 * without a remark are not given. */
#define TPED_MINVAL 0
#define TPED_SVCTIMEOUT 1
#define TPED_TERM 2
#define TPED_NOUNSOLHANDLER 3 /* TPEPROTO of tpsubscribe and tpchkunsol */
#define TPED_NOCLIENT 4       /* TPENOENT of tpnotify */
#define TPED_DOMAINUNREACHABLE 5
#define TPED_CLIENTDISCONNECTED 6
#define TPED_PERM 7 /* TPEPERM */
#define TPED_OTS_INTERNAL 8
#define TPED_MAXVAL 16
extern int tperrordetail(long flags);
extern char *tpstrerrordetail(int detail, long flags);

/* The number of the server that this process is (-1 and TPEPROTO for a client), and that of the node
 * (NDRX_NODEID, 1 without; TPEINVAL for what is not 1 to 255). */
extern int tpgetsrvid(void);
extern long tpgetnodeid(void);

/* Fields as JSON: {"NAME":"text","NUMBER":[1,2],"INNER":{...}}, bytes as base64. TPELIMIT where there is
 * not enough room, TPEINVAL for all else, with the field in the text. tpjsontoubf replaces what the
 * buffer held. */
struct pollux_ubf;
extern int tpubftojson(struct pollux_ubf *ubf, char *text, int size);
extern int tpjsontoubf(struct pollux_ubf *ubf, const char *text);

/* A struct of a view as JSON: {"VIEW":{"member":1,"array":["a","b"]}}, carrays as base64; BVACCESS_NOTNULL of
 * ubf.h leaves null values out. tpjsontoview gives a buffer of type VIEW, and copies the name of its view to the 34 bytes at
 * `view`. TPEOTYPE: no such view. */
extern int tpviewtojson(const char *data, const char *view, char *text, int size, long flags);
extern char *tpjsontoview(char *view, const char *text);

/* A buffer as text, {"buftype":"UBF","version":1,"data":{"NAME":"Ada"}}, with TPEX_STRING as base64. `*to_len` is the room,
 * then the length with the NUL; `len` counts for CARRAY and X_OCTET. tpimport puts the buffer of a text in the place of
 * `*buffer`, which is one of tpalloc; `len` is 0 for a text with a NUL. TPEX_NOCHANGE: TPEINVAL for another type. */
#define TPEX_NOCHANGE 0x00000004L
#define TPEX_STRING 0x00000008L
extern int tpexport(char *buffer, long len, char *to, long *to_len, long flags);
extern int tpimport(const char *text, long len, char **buffer, long *buffer_len, long flags);

/* Fields that travel with a buffer beside its data: with requests and replies, and with what is made of it by tpforward,
 * tpreturn and tprealloc. A copy of `info` is kept; a reply that comes with none leaves what is kept with its buffer.
 * tpgetcallinfo copies them to `*info`, a buffer of fields or NULL, which becomes another one where there is no room;
 * TPESYSTEM where there are none, or with TPCI_NOEOFERR 0, and 1 where there are. */
#define TPCI_NOEOFERR 0x00000001
extern int tpsetcallinfo(const char *message, UBFH *info, long flags);
extern int tpgetcallinfo(const char *message, UBFH **info, long flags);

/* The priority of the thread's next request, by tpcall, tpacall, tpconnect or tpforward: 1 to 100, without TPABSOLUTE
 * relative to that of the service, which is 50 where the configuration does not say; of a forward to that of the request.
 * Of the requests that wait for a service the one with the highest is served first. tpgprio: that of the thread's last
 * request, sent or received. */
extern int tpsprio(int priority, long flags);
extern int tpgprio(void);

/* getenv(3), and putenv(3), whose text stays in the environment. */
extern char *tuxgetenv(const char *name);
extern int tuxputenv(char *pair);

/* Written by the server's author; all may be left out. tpsvrthrinit is called once tpsvrinit has returned 0,
 * on the one thread that serves, tpsvrthrdone before tpsvrdone. `argv` is the whole command line, in
 * which `optind` of getopt(3) stands behind `--`, where <appopt> begins. Anything but 0 refuses to start. */
extern int tpsvrinit(int argc, char **argv);
extern void tpsvrdone(void);
extern int tpsvrthrinit(int argc, char **argv);
extern void tpsvrthrdone(void);

/* One row for each service that a server offers from the start (pollux pool build-server -s). */
struct pollux_service {
  const char *name;
  void (*function)(TPSVCINFO *);
  const char *function_name;
};

/* What is called for the thread that serves; either may be NULL. Before pollux_server_main. */
extern void pollux_server_thread_functions(int (*init)(int, char **), void (*done)(void));

/* The whole life of a server; main of libatmisrv is one call of it. `services` ends with a row
 * whose name is NULL; it, `init` and `done` may be NULL. The result is main's. */
extern int pollux_server_main(int argc, char **argv, int (*init)(int, char **), void (*done)(void),
                              const struct pollux_service *services);

/* The same for a program with a main of its own: the table ends with a row without a name, `xa_switch` is NULL or that of no
 * resource, what is reserved is 0. */
struct tmdsptchtbl_t {
  char *svcnm;
  char *funcnm;
  void (*p_func)(TPSVCINFO *);
  long rfu1;
  long rfu2;
};
struct xa_switch_t;
struct tmsvrargs_t {
  struct xa_switch_t *xa_switch;
  struct tmdsptchtbl_t *svctab;
  long flags;
  int (*p_tpsvrinit)(int, char **);
  void (*p_tpsvrdone)(void);
  void *reserved0;
  void *reserved1;
  void *reserved2;
  void *reserved3;
  void *reserved4;
  int (*p_tpsvrthrinit)(int, char **);
  void (*p_tpsvrthrdone)(void);
};
#define POLLUX_VARIABLE extern
POLLUX_VARIABLE struct xa_switch_t tmnull_switch;
POLLUX_VARIABLE int _tmbuilt_with_thread_option; /* looked at by nothing */
extern int _tmstartserver(int argc, char **argv, struct tmsvrargs_t *arguments);

/* Functions that a server has called on its own thread, between requests: for a descriptor with events of epoll(7), each so
 * many seconds, before it waits for requests. One that does not return 0 ends the server, as tpexit does after the service
 * function that calls it; the manager starts another. TPEPROTO: not on a server's own thread; TPEMATCH: the descriptor has
 * one already, or none. */
extern int tpext_addpollerfd(int fd, uint32_t events, void *data,
                             int (*function)(int fd, uint32_t events, void *data));
extern int tpext_delpollerfd(int fd);
extern int tpext_addperiodcb(int seconds, int (*function)(void)); /* 0 or NULL ends it */
extern int tpext_delperiodcb(void);
extern int tpext_addb4pollcb(int (*function)(void));
extern int tpext_delb4pollcb(void);
extern void tpexit(void); /* on any thread of a server */

/* A service function hands its call over to another thread of the server: tpsrvgetctxdata gives it as data of malloc(), or
 * with 2 in the `*len` bytes at `data`; tpcontinue ends the function, and the server serves on. The other thread takes the call
 * by tpsrvsetctxdata, and its tpreturn or tpforward answers it and comes back. The request's buffer is the server's, and gone
 * with tpcontinue. A call that no thread answers is over when its caller's time is. TPEPROTO: no service function runs
 * here; for tpsrvsetctxdata one does; for tpcontinue in a conversation too. */
#define SYS_SRV_THREAD 0x00000001L
#define TPNOAUTBUF 0x00200000L
extern char *tpsrvgetctxdata(void);
extern char *tpsrvgetctxdata2(char *data, long *len);
extern int tpsrvsetctxdata(const char *data, long flags);
extern void tpsrvfreectxdata(char *data);
extern void tpcontinue(void);

/* main of a server that has one of its own and tables of nothing: what the two variables hold is called at its start and its end.
 * With ATMI_SRVLIB_NOLONGJUMP tpreturn, tpforward and tpcontinue come back to the service function, which returns then. */
#define ATMI_SRVLIB_NOLONGJUMP 0x00000001L
POLLUX_VARIABLE int (*G_tpsvrinit__)(int, char **);
POLLUX_VARIABLE void (*G_tpsvrdone__)(void);
extern int ndrx_main(int argc, char **argv);
extern int ndrx_main_integra(int argc, char **argv, int (*init)(int, char **), void (*done)(void), long flags);

/* What is not here is refused where it is used: persistent queues. */
#ifdef __has_attribute
#if __has_attribute(error)
#define POLLUX_REFUSED(why) __attribute__((error(why)))
#endif
#endif
#ifndef POLLUX_REFUSED
#define POLLUX_REFUSED(why)
#endif
#define POLLUX_NO_QUEUES "pollux has no persistent queues: see docs/xatmi-programming.md"
#define TMQNAMELEN 15
#define TMMSGIDLEN 32
#define TMCORRIDLEN 32
typedef struct tpqctl_t {
  long flags;
  long deq_time;
  long priority;
  long diagnostic;
  char diagmsg[256];
  char msgid[TMMSGIDLEN];
  char corrid[TMCORRIDLEN];
  char replyqueue[TMQNAMELEN + 1];
  char failurequeue[TMQNAMELEN + 1];
  CLIENTID cltid;
  long urcode;
  long appkey;
  long delivery_qos;
  long reply_qos;
  long exp_time;
} TPQCTL;
#define TPNOQFLAGS 0x00000L
#define TPQCORRID 0x00001L
#define TPQFAILUREQ 0x00002L
#define TPQBEFOREMSGID 0x00004L
#define TPQMSGID 0x00010L
#define TPQPRIORITY 0x00020L
#define TPQTOP 0x00040L
#define TPQWAIT 0x00080L
#define TPQREPLYQ 0x00100L
#define QMEINVAL -1
#define QMEBADRMID -2
#define QMENOTOPEN -3
#define QMETRAN -4
#define QMEBADMSGID -5
#define QMESYSTEM -6
#define QMEOS -7
#define QMEABORTED -8
#define QMENOTA QMEABORTED
#define QMEPROTO -9
#define QMEBADQUEUE -10
#define QMENOMSG -11
#define QMEINUSE -12
#define QMENOSPACE -13
POLLUX_REFUSED(POLLUX_NO_QUEUES)
int tpenqueue(const char *space, const char *name, TPQCTL *control, char *data, long len, long flags);
POLLUX_REFUSED(POLLUX_NO_QUEUES)
int tpdequeue(const char *space, const char *name, TPQCTL *control, char **data, long *len, long flags);

#ifdef __cplusplus
}
#endif

#endif
