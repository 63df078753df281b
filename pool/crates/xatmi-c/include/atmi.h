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

#include "ndrstandard.h"

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
#define X_OCTET "X_OCTET"

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

/* Typed buffers: UBF (FML, FML32, UBF32), STRING, CARRAY (X_OCTET), JSON. tpfree takes any pointer
 * and leaves tperrno as it is. */
extern char *tpalloc(const char *type, const char *subtype, long size);
extern char *tprealloc(char *ptr, long size);
extern void tpfree(char *ptr);
extern long tptypes(char *ptr, char *type, char *subtype);

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

/* Contexts by their numbers. The one that tpgetctxt tells lasts until its tpterm, whatever becomes of the
 * thread, and so does one of TPMULTICONTEXTS; any thread may enter it by tpsetctxt and leave it for another
 * one or none. Of several threads in one context one calls at a time. Those whose context another
 * thread ended are in TPINVALIDCONTEXT: calls are TPEPROTO there. tpsetctxt is TPENOENT for a context that
 * there is not, TPEPROTO on a server's own thread. */
typedef int TPCONTEXT_T;
#define TPSINGLECONTEXT 0
#define TPINVALIDCONTEXT -1
#define TPNULLCONTEXT -2 /* none */
extern int tpgetctxt(TPCONTEXT_T *context, long flags);
extern int tpsetctxt(TPCONTEXT_T context, long flags);

/* Transactions over no resource, as programs have them that are linked with the null switch: they
 * commit unless a call that belongs to them ended with TPETIME, TPESVCFAIL, TPESVCERR or TPEOTYPE,
 * their time is over (`timeout` in seconds, 0 is none) or replies are outstanding: TPEABORT then.
 * Calls with TPNOTRAN do not belong to them; TPNOREPLY needs it. Services that are called do not
 * take part. tpgetlev is 1 within a transaction. */
#define TPTXCOMMITDLOG 0x00000004L /* tpcommit: nothing is logged, and it changes nothing */
extern int tpopen(void);
extern int tpclose(void);
extern int tpbegin(unsigned long timeout, long flags);
extern int tpcommit(long flags);
extern int tpabort(long flags);
extern int tpgetlev(void);

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

/* Written by the server's author; all may be left out. tpsvrthrinit is called once tpsvrinit has returned 0,
 * on the one thread that serves, tpsvrthrdone before tpsvrdone. `argv[0]` is the program, then comes what
 * stands in <appopt>. Anything but 0 refuses to start. */
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

/* What is not here is refused where it is used: persistent queues, views, request logs in buffers. */
#ifdef __has_attribute
#if __has_attribute(error)
#define POLLUX_REFUSED(why) __attribute__((error(why)))
#endif
#if __has_attribute(unavailable)
#define POLLUX_UNAVAILABLE(why) __attribute__((unavailable(why)))
#endif
#endif
#ifndef POLLUX_REFUSED
#define POLLUX_REFUSED(why)
#endif
#ifndef POLLUX_UNAVAILABLE
#define POLLUX_UNAVAILABLE(why)
#endif
#define POLLUX_NO_QUEUES "pollux has no persistent queues: see docs/xatmi-programming.md"
struct pollux_queue_control;
typedef struct pollux_queue_control TPQCTL POLLUX_UNAVAILABLE(POLLUX_NO_QUEUES);
POLLUX_REFUSED(POLLUX_NO_QUEUES)
int tpenqueue(const char *space, const char *name, struct pollux_queue_control *control, char *data,
              long len, long flags);
POLLUX_REFUSED(POLLUX_NO_QUEUES)
int tpdequeue(const char *space, const char *name, struct pollux_queue_control *control, char **data,
              long *len, long flags);
/* A literal type of a view buffer is refused where it is written; others are TPENOENT when the program
 * runs. A macro tpalloc of the program's own goes before this one; one that comes behind this header
 * needs #undef tpalloc first, and so does a declaration of another tpalloc. */
#if defined(__has_attribute) && !defined(tpalloc)
#if __has_attribute(error)
POLLUX_REFUSED("pollux has no VIEW, X_COMMON and X_C_TYPE buffers: see docs/xatmi-programming.md")
const char *pollux_no_view_buffer(void);
#define POLLUX_IS_TYPE(text, name)                                                                 \
  (__builtin_strcmp(text, "\"" name "\"") == 0 ||                                                  \
   __builtin_strcmp(text, "(char *)\"" name "\"") == 0 ||                                          \
   __builtin_strcmp(text, "(char*)\"" name "\"") == 0)
#define POLLUX_IS_VIEW(text)                                                                       \
  (POLLUX_IS_TYPE(text, "VIEW") || POLLUX_IS_TYPE(text, "VIEW32") ||                               \
   POLLUX_IS_TYPE(text, "X_COMMON") || POLLUX_IS_TYPE(text, "X_C_TYPE"))
#define POLLUX_BUFFER_TYPE(type) (POLLUX_IS_VIEW(#type) ? pollux_no_view_buffer() : (type))
#define tpalloc(type, subtype, size) tpalloc(POLLUX_BUFFER_TYPE(type), subtype, size)
#endif
#endif
#define POLLUX_NO_VIEW_JSON POLLUX_REFUSED("pollux has no views: see docs/xatmi-programming.md")
POLLUX_NO_VIEW_JSON int tpviewtojson(char *view, char *name, char *text, int size, long flags);
POLLUX_NO_VIEW_JSON char *tpjsontoview(char *name, char *text);

#ifdef __cplusplus
}
#endif

#endif
