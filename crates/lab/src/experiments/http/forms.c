// One server in each form of io_uring and of epoll that people argue about: HTTP/1.1, a constant reply.
//
//   forms raw-uring:none+single listen=127.0.0.1:0 reply=128 [close] [probe]
//
// It reads top to bottom: what is asked for, HTTP, epoll, the ring, the trial, main. No library and no header of the
// kernel: a form that is newer than the headers of a machine can still be asked of its kernel.
//
// Before it serves it asks itself some requests over loopback. From what the kernel did then it says which form this
// is ("raw-uring: http://127.0.0.1:8080 (none+single, ...)"), and ends where that is another than was asked for:
// status 3 with the error of the kernel where it does not grant the form, 4 where the form can do nothing on this
// path. "probe" ends after the trial. SIGTERM ends it with a line of counts.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// ---------------------------------------------------------------- what is asked for

enum setup { DEFER, COOP, NONE, SQPOLL };
enum receive { MULTI, SINGLE, POLL_FIRST, INCREMENTAL, BUNDLE, OWN };
enum epoll_kind { NO_EPOLL, EDGE, LEVEL, EPOLL_WAIT };

static const char *setup_words[] = {"defer", "coop", "none", "sqpoll"};
static const char *receive_words[] = {"multi", "single", "poll-first", "incremental", "bundle", "own"};

static enum setup setup = DEFER;
static enum receive receive_kind = MULTI;
static enum epoll_kind epoll_kind;
static unsigned buffers, buffer_kib;
static int is_direct, is_zero_copy, is_min_wait, is_busy_poll, is_anyway;

// Receive buffers of each kind where none are named: 1 MiB in all, or as much for one read.
static const struct { unsigned count, kib; } buffers_of[] = {
    {64, 16}, {64, 16}, {64, 16}, {4, 256}, {256, 4}, {1, 64}};
#define EPOLL_BUFFER_KIB 64

#define CONNECTIONS_MAX 65536     // descriptors, or slots of the ring's table
#define DIRECT_MAX 32768          // the most that a table of descriptors may have
#define EVENTS_MAX 512
#define HEAD_MAX 16384            // of a request
#define BACKLOG 4096
#define TOGETHER_MAX (1 << 20)    // replies that one send carries
#define SUBMISSIONS 4096
#define COMPLETIONS 32768
#define SQ_IDLE_MS 1              // until the kernel's thread sleeps: the least that it takes
#define MIN_WAIT_FOR 8            // completions
#define MIN_WAIT_US 50            // and how long they are waited for
#define BUSY_POLL_US 50
#define TRIAL_BODY 65536
#define TRIAL_REQUESTS 16
#define TRIAL_S 5

static struct {
    unsigned long accepted, receives, rearmed, out_of_buffers, sends, cut_short, enters, completions, requests,
        zero_copy, copied, overflows;
} counts;
static char form[256];            // as it was asked for
static size_t granted_len;
static char granted[256];

static void out_of_reach(int status, const char *text) {
    fprintf(stderr, "%s: %s\n", form, text);
    exit(status);
}

static int has_plain_ring(void);

// The kernel does not grant it.
static void refused(const char *word, const char *since, const char *call, int error) {
    char text[256];
    int is_forbidden = error == EPERM || error == EACCES || error == ENOSYS;
    if (is_forbidden && !strncmp(call, "io_uring", 8) && !has_plain_ring())
        snprintf(text, sizeof text, "refused: %s: %s; io_uring is forbidden here, or this kernel has none", call, strerror(error));
    else if (is_forbidden)
        snprintf(text, sizeof text, "refused: %s: %s: %s; a filter or security module forbids what this form needs, not every ring",
                 word, call, strerror(error));
    else if (error == ENOMEM)
        snprintf(text, sizeof text, "refused: %s: %s: %s; raise RLIMIT_MEMLOCK (ulimit -l), or name fewer buffers", word, call, strerror(error));
    else if (error != EINVAL && error != EOPNOTSUPP && error != ENOTTY)
        snprintf(text, sizeof text, "refused: %s: %s: %s (%d)", word, call, strerror(error), error);
    else
        snprintf(text, sizeof text, "refused: %s needs Linux %s: %s: %s (%d)", word, since, call, strerror(error), error);
    out_of_reach(3, text);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void failed(const char *call) {
    fprintf(stderr, "%s: %s: %s\n", form, call, strerror(errno));
    exit(1);
}

static void grant(const char *word) {
    granted_len += snprintf(granted + granted_len, sizeof granted - granted_len, "%s%s", granted_len ? "+" : "", word);
}

static void read_word(const char *word) {
    unsigned count, kib;
    char unit;
    for (int i = 0; i < 4; i++)
        if (!strcmp(word, setup_words[i])) { setup = i; return; }
    for (int i = 0; i < 6; i++)
        if (!strcmp(word, receive_words[i])) { receive_kind = i; return; }
    if (!strcmp(word, "edge")) epoll_kind = EDGE;
    else if (!strcmp(word, "level")) epoll_kind = LEVEL;
    else if (!strcmp(word, "epoll-wait")) epoll_kind = EPOLL_WAIT;
    else if (!strcmp(word, "plain")) is_direct = 0;
    else if (!strcmp(word, "direct")) is_direct = 1;
    else if (!strcmp(word, "copy")) is_zero_copy = 0;
    else if (!strcmp(word, "zc")) is_zero_copy = 1;
    else if (!strcmp(word, "min-wait")) is_min_wait = 1;
    else if (!strcmp(word, "busy-poll")) is_busy_poll = 1;
    else if (!strcmp(word, "anyway")) is_anyway = 1;
    else if (sscanf(word, "%ux%u%c", &count, &kib, &unit) == 3 && unit == 'k') { buffers = count; buffer_kib = kib; }
    else {
        fprintf(stderr, "%s: \"%s\" is not a word of a form\n", form, word);
        exit(2);
    }
}

// ---------------------------------------------------------------- HTTP

struct connection {
    uint32_t generation;          // tells it from an earlier one of the same number
    uint8_t is_open, is_ending;   // ending: closed when its replies are sent
    uint8_t is_armed, wants_receive, is_dirty, is_blocked, is_linked;
    uint8_t sending;              // see below
    long out;                     // bytes of replies that are to be sent
    long in_flight;               // bytes of the send that is under way
    long body;                    // bytes of a request's body that are still to come
    char *head;                   // the part of a head that has come
    unsigned head_len;
    char *own;                    // its own receive buffer
};
static struct connection connections[CONNECTIONS_MAX];

static char *replies;             // the reply, many times in a row
static long reply_len, replies_len;
static int closes;                // each reply ends its connection

static void make_replies(long body) {
    char head[256];
    int head_len = snprintf(head, sizeof head,
                            "HTTP/1.1 200 OK\r\nServer: raw\r\nContent-Type: text/plain\r\nContent-Length: %ld\r\n%s\r\n",
                            body, closes ? "Connection: close\r\n" : "");
    reply_len = head_len + body;
    long copies = TOGETHER_MAX / reply_len;
    copies = copies < 1 ? 1 : copies > 256 ? 256 : copies;
    replies_len = copies * reply_len;
    replies = malloc(replies_len);
    if (!replies) failed("malloc");
    for (long at = 0; at < replies_len; at += reply_len) {
        memcpy(replies + at, head, head_len);
        memset(replies + at + head_len, 'x', body);
    }
}

// Length of the body behind a head that ends with a blank line; -1 where it is not said by a length.
static long body_of(const char *head, size_t len) {
    if (head[0] != 'P') return 0;
    long body = 0;
    for (const char *line = head; line < head + len;) {
        const char *end = memchr(line, '\n', head + len - line);
        if (!end) break;
        if (!strncasecmp(line, "content-length:", 15)) body = atol(line + 15);
        if (!strncasecmp(line, "transfer-encoding:", 18)) return -1;
        line = end + 1;
    }
    return body < 0 ? -1 : body;
}

// Requests that are complete with these bytes; -1 where they are none.
static long requests_in(struct connection *c, const char *data, size_t len) {
    long complete = 0;
    while (len) {
        if (c->body) {
            size_t part = (long)len < c->body ? len : (size_t)c->body;
            c->body -= part, data += part, len -= part;
            complete += !c->body;
            continue;
        }
        const char *head = data;
        size_t head_len, used;
        if (!c->head_len) {
            const char *blank = memmem(data, len, "\r\n\r\n", 4);
            if (blank) {
                head_len = used = blank + 4 - data;
            } else {
                if (len > HEAD_MAX) return -1;
                if (!c->head && !(c->head = malloc(HEAD_MAX))) failed("malloc");
                memcpy(c->head, data, c->head_len = len);
                return complete;
            }
        } else {
            // A head that came in parts: the blank line may lie across two of them.
            size_t before = c->head_len, more = HEAD_MAX - before < len ? HEAD_MAX - before : len;
            memcpy(c->head + before, data, more);
            size_t from = before > 3 ? before - 3 : 0;
            const char *blank = memmem(c->head + from, before + more - from, "\r\n\r\n", 4);
            if (!blank) {
                if (more < len) return -1;
                c->head_len = before + more;
                return complete;
            }
            head = c->head, head_len = blank + 4 - c->head, used = head_len - before;
            c->head_len = 0;
        }
        c->body = body_of(head, head_len);
        if (c->body < 0) return -1;
        complete += !c->body;
        data += used, len -= used;
    }
    return complete;
}

// Bytes that came in: what they ask for is to be sent.
static void take(struct connection *c, const char *data, size_t len) {
    if (c->is_ending) return;
    long requests = requests_in(c, data, len);
    if (requests < 0) { c->is_ending = 1; return; }
    counts.requests += requests;
    if (closes && requests) { requests = 1; c->is_ending = 1; }
    c->out += requests * reply_len;
}

// What of the row of replies is sent next.
static char *next_reply(const struct connection *c, long *len) {
    long at = (reply_len - c->out % reply_len) % reply_len;
    *len = c->out < replies_len - at ? c->out : replies_len - at;
    return replies + at;
}

static void begin(struct connection *c) {
    uint32_t generation = (c->generation + 1) & 0xffffff;
    char *head = c->head, *own = c->own;
    *c = (struct connection){.generation = generation, .is_open = 1, .head = head, .own = own};
    counts.accepted++;
}

static int listener;

// ---------------------------------------------------------------- epoll

struct epoll_busy { uint32_t us; uint16_t budget; uint8_t prefer, pad; };
#define EPOLL_SET_BUSY _IOW(0x8a, 0x01, struct epoll_busy)

static int epoll = -1;
static char *read_buffer;
static struct epoll_event events[EVENTS_MAX];

static void open_epoll(void) {
    epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};
    if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event)) failed("epoll_ctl");
    read_buffer = malloc((size_t)buffer_kib << 10);
    if (!read_buffer) failed("malloc");
    if (epoll_kind != EDGE) grant(epoll_kind == EPOLL_WAIT ? "epoll-wait" : "level");
    struct epoll_busy busy = {.us = BUSY_POLL_US, .budget = 8};
    if (is_busy_poll && ioctl(epoll, EPOLL_SET_BUSY, &busy)) refused("busy-poll", "6.9", "ioctl(EPIOCSPARAMS)", errno);
}

static void end_plain(int fd) {
    close(fd);
    connections[fd].is_open = 0;
}

// Sends as much as the socket takes. By level its readiness for more is asked for only where it takes no more.
static int send_out(int fd, struct connection *c) {
    while (c->out) {
        long len;
        char *from = next_reply(c, &len);
        ssize_t sent = send(fd, from, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        counts.sends++;
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno != EAGAIN) { end_plain(fd); return 0; }
        if (sent > 0) c->out -= sent;
        if (sent < len) {
            counts.cut_short++;
            if (sent < 0) break;
        }
    }
    int is_blocked = c->out > 0;
    if (epoll_kind == LEVEL && is_blocked != c->is_blocked) {
        struct epoll_event event = {.events = (c->is_ending ? 0 : EPOLLIN) | (is_blocked ? EPOLLOUT : 0), .data.fd = fd};
        epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event);
        c->is_blocked = is_blocked;
    }
    if (!c->out && c->is_ending) { end_plain(fd); return 0; }
    return 1;
}

// By edge to a short read; by level one read for each event, as most loops on it do.
static void read_in(int fd, struct connection *c, int has_ended) {
    size_t size = (size_t)buffer_kib << 10;
    for (;;) {
        ssize_t len = recv(fd, read_buffer, size, MSG_DONTWAIT);
        counts.receives++;
        if (len < 0 && errno == EINTR) continue;
        if (len < 0 && errno == EAGAIN) return;
        if (len < 0 || (!len && !c->out)) { end_plain(fd); return; }
        // A client that has only ended its side still gets its replies.
        if (!len) {
            c->is_ending = 1;
            // By level the end would be reported until it is over.
            struct epoll_event event = {.events = EPOLLOUT, .data.fd = fd};
            if (epoll_kind == LEVEL) epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event);
            return;
        }
        take(c, read_buffer, len);
        if ((c->out || c->is_ending) && !send_out(fd, c)) return;
        if (epoll_kind == LEVEL || ((size_t)len < size && !has_ended)) return;
    }
}

static void accept_all(void) {
    for (;;) {
        int fd = accept4(listener, 0, 0, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) return;
        if (fd >= CONNECTIONS_MAX) { close(fd); continue; }
        begin(&connections[fd]);
        uint32_t both = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
        struct epoll_event event = {.events = epoll_kind == LEVEL ? EPOLLIN : both, .data.fd = fd};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)) end_plain(fd);
    }
}

static void take_events(int found) {
    counts.completions += found;
    for (int i = 0; i < found; i++) {
        int fd = events[i].data.fd;
        uint32_t what = events[i].events;
        if (fd == listener) { accept_all(); continue; }
        struct connection *c = &connections[fd];
        if (!c->is_open) continue;
        if (c->out && (what & EPOLLOUT) && !send_out(fd, c)) continue;
        if (what & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP)) read_in(fd, c, what & (EPOLLRDHUP | EPOLLHUP));
    }
}

static void epoll_turn(int waits) {
    int found = epoll_wait(epoll, events, EVENTS_MAX, waits ? -1 : 0);
    counts.enters++;
    if (found > 0) take_events(found);
}

// ---------------------------------------------------------------- the ring: its memory

struct sq_offsets { uint32_t head, tail, mask, entries, flags, dropped, array, reserved; uint64_t address; };
struct cq_offsets { uint32_t head, tail, mask, entries, overflow, cqes, flags, reserved; uint64_t address; };
struct ring_params {
    uint32_t sq_entries, cq_entries, flags, sq_cpu, sq_idle, features, wq, reserved[3];
    struct sq_offsets sq;
    struct cq_offsets cq;
};
struct request {
    uint8_t opcode, flags;
    uint16_t how;
    int32_t fd;
    uint64_t offset, address;
    uint32_t len, op_flags;
    uint64_t mark;
    uint16_t buffer_group, personality;
    uint32_t slot;
    uint64_t more[2];
};
struct completion { uint64_t mark; int32_t result; uint32_t flags; };
struct ring_buffer { uint64_t address; uint32_t len; uint16_t id, tail; };
struct buffer_ring { uint64_t address; uint32_t entries; uint16_t group, flags; uint64_t reserved[3]; };
struct file_table { uint32_t count, flags; uint64_t reserved, data, tags; };
struct busy_poll { uint32_t us; uint8_t prefer, opcode, pad[2]; uint32_t param, reserved; };
struct wait { uint64_t signals; uint32_t signals_len, min_us; uint64_t time; };

enum { SYS_SETUP = 425, SYS_ENTER = 426, SYS_REGISTER = 427 };
enum { MAP_SQ = 0, MAP_CQ = 0x8000000, MAP_REQUESTS = 0x10000000 };
enum { FLAG_SQPOLL = 1 << 1, FLAG_CQSIZE = 1 << 3, FLAG_SUBMIT_ALL = 1 << 7, FLAG_COOP = 1 << 8,
       FLAG_SINGLE_ISSUER = 1 << 12, FLAG_DEFER = 1 << 13 };
enum { HAS_BUNDLE = 1 << 14, HAS_MIN_WAIT = 1 << 15, HAS_NO_IOWAIT = 1 << 17 };
enum { ENTER_GETEVENTS = 1, ENTER_WAKE = 2, ENTER_SQ_WAIT = 4, ENTER_EXT_ARG = 8, ENTER_NO_IOWAIT = 1 << 7 };
enum { SQ_NEEDS_WAKE = 1, SQ_OVERFLOW = 2 };
enum { OP_ACCEPT = 13, OP_CANCEL = 14, OP_CLOSE = 19, OP_SEND = 26, OP_RECEIVE = 27, OP_SEND_ZC = 47, OP_EPOLL_WAIT = 59 };
enum { FIXED_FILE = 1, LINK = 1 << 2, BUFFER_SELECT = 1 << 5, SKIP_SUCCESS = 1 << 6 };
enum { HOW_POLL_FIRST = 1, HOW_MULTI = 2, HOW_REPORT_USAGE = 8, HOW_BUNDLE = 16, HOW_ACCEPT_MULTI = 1 };
enum { HAS_BUFFER = 1, HAS_MORE = 2, IS_NOTICE = 8, BUFFER_HAS_MORE = 16 };
enum { REGISTER_FILES2 = 13, REGISTER_BUFFER_RING = 22, REGISTER_BUSY_POLL = 27 };
enum { RING_INCREMENTAL = 2, TABLE_SPARSE = 1 };
#define SLOT_ANY 0xffffffffu
#define WAS_COPIED 0x80000000u

enum mark { ACCEPT = 1, RECEIVE, SEND, CLOSE, CANCEL, EVENTS };
#define MARK(what, fd) ((uint64_t)(what) << 56 | (uint64_t)connections[fd].generation << 32 | (uint32_t)(fd))

static int ring = -1;
static struct ring_params params;
static struct { uint32_t *head, *tail, *flags, mask, entries, next; struct request *requests; } sq;
static struct { uint32_t *head, *tail, mask; struct completion *completions; } cq;
static struct ring_buffer *pool;  // the ring of receive buffers
static char *pool_bytes;
static uint16_t pool_tail, *pool_order, pool_head;
static uint32_t *pool_used;       // bytes of a buffer that came already, where it is filled in pieces

// Whether a ring without any flag is granted, where one with flags or what belongs to it is not.
static int has_plain_ring(void) {
    struct ring_params plain = {0};
    int fd = syscall(SYS_SETUP, 8, &plain);
    if (fd < 0) return 0;
    int is_entered = syscall(SYS_ENTER, fd, 0, 0, 0, 0, 0) >= 0;
    close(fd);
    return is_entered;
}

static uint32_t setup_flags(void) {
    switch (setup) {
    case DEFER: return FLAG_SINGLE_ISSUER | FLAG_DEFER;
    case COOP: return FLAG_SINGLE_ISSUER | FLAG_COOP;
    case SQPOLL: return FLAG_SINGLE_ISSUER | FLAG_SQPOLL;
    default: return 0;
    }
}

static void *map(size_t len, off_t offset) {
    void *at = mmap(0, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, offset);
    if (at == MAP_FAILED) failed("mmap of the ring");
    return at;
}

static void *pages(size_t len) {
    void *at = mmap(0, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) failed("mmap");
    return at;
}

static void give(uint16_t id) {
    struct ring_buffer *slot = &pool[pool_tail & (buffers - 1)];
    slot->address = (uintptr_t)(pool_bytes + ((size_t)id * buffer_kib << 10));
    slot->len = buffer_kib << 10;
    slot->id = id;
    pool_order[pool_tail & (buffers - 1)] = id;
    pool_used[id] = 0;
    __atomic_store_n(&pool[0].tail, ++pool_tail, __ATOMIC_RELEASE);
}

static void open_ring(void) {
    params.flags = FLAG_CQSIZE | FLAG_SUBMIT_ALL | setup_flags();
    params.cq_entries = COMPLETIONS;
    params.sq_idle = setup == SQPOLL ? SQ_IDLE_MS : 0;
    // Starting the thread that submits may be interrupted, and the kernel may be short of threads for a moment.
    double end = now() + TRIAL_S;
    do ring = syscall(SYS_SETUP, SUBMISSIONS, &params);
    while (ring < 0 && (errno == EINTR || errno == EAGAIN) && now() < end);
    if (ring < 0) refused(setup_words[setup], setup == DEFER ? "6.1" : setup == NONE ? "5.18" : "6.0", "io_uring_setup", errno);
    size_t len = params.cq.cqes + params.cq_entries * sizeof(struct completion);
    size_t array_end = params.sq.array + params.sq_entries * sizeof(uint32_t);
    // Of one piece since 5.4.
    char *memory = map(len > array_end ? len : array_end, MAP_SQ);
    sq.head = (void *)(memory + params.sq.head), sq.tail = (void *)(memory + params.sq.tail);
    sq.flags = (void *)(memory + params.sq.flags), sq.entries = params.sq_entries, sq.mask = params.sq_entries - 1;
    sq.requests = map(params.sq_entries * sizeof(struct request), MAP_REQUESTS);
    for (uint32_t i = 0; i < params.sq_entries; i++) ((uint32_t *)(memory + params.sq.array))[i] = i;
    cq.head = (void *)(memory + params.cq.head), cq.tail = (void *)(memory + params.cq.tail);
    cq.completions = (void *)(memory + params.cq.cqes), cq.mask = params.cq_entries - 1;
    if (is_min_wait && !(params.features & HAS_MIN_WAIT)) refused("min-wait", "6.12", "features of the ring", EOPNOTSUPP);
    if (is_busy_poll) {
        struct busy_poll busy = {.us = BUSY_POLL_US};
        if (syscall(SYS_REGISTER, ring, REGISTER_BUSY_POLL, &busy, 1)) refused("busy-poll", "6.9", "io_uring_register", errno);
    }
}

static void open_pool(void) {
    if (receive_kind == BUNDLE && !(params.features & HAS_BUNDLE)) refused("bundle", "6.10", "features of the ring", EOPNOTSUPP);
    if (is_direct) {
        struct rlimit limit;
        getrlimit(RLIMIT_NOFILE, &limit);
        struct file_table table = {.count = limit.rlim_cur < DIRECT_MAX ? limit.rlim_cur : DIRECT_MAX, .flags = TABLE_SPARSE};
        if (syscall(SYS_REGISTER, ring, REGISTER_FILES2, &table, sizeof table)) refused("direct", "5.19", "io_uring_register", errno);
    }
    if (receive_kind == OWN) return;
    size_t len = (size_t)buffers * buffer_kib << 10;
    pool = pages(buffers * sizeof *pool);
    pool_bytes = pages(len);
    pool_order = calloc(buffers, sizeof *pool_order), pool_used = calloc(buffers, sizeof *pool_used);
    if (!pool_order || !pool_used) failed("calloc");
    struct buffer_ring what = {.address = (uintptr_t)pool, .entries = buffers,
                               .flags = receive_kind == INCREMENTAL ? RING_INCREMENTAL : 0};
    if (syscall(SYS_REGISTER, ring, REGISTER_BUFFER_RING, &what, 1))
        refused(receive_words[receive_kind], receive_kind == INCREMENTAL ? "6.12" : "5.19", "io_uring_register", errno);
    for (unsigned id = 0; id < buffers; id++) give(id);
}

// ---------------------------------------------------------------- the ring: requests

// A send is known to be carried out when the call that submitted it returns (one that was cut short has a completion
// by then, others have none), or by its own completion: where a thread of the kernel submits, where the socket took
// not all before, and without a copy. A second one waits for the first: two under way could change places.
enum { NOT_SENDING, UNTIL_ENTERED, UNTIL_COMPLETED };

static int sent[SUBMISSIONS], sent_len, dirty[CONNECTIONS_MAX], dirty_len, is_watching;
static struct __attribute__((aligned(16))) { int64_t s, ns; } ten_seconds = {10, 0};

static void enter(unsigned wait_for, int drains) {
    for (int is_first = 1;; is_first = 0) {
        unsigned to_submit = sq.next - __atomic_load_n(sq.head, __ATOMIC_ACQUIRE);
        __atomic_store_n(sq.tail, sq.next, __ATOMIC_RELEASE);
        unsigned flags = ENTER_GETEVENTS | (params.features & HAS_NO_IOWAIT ? ENTER_NO_IOWAIT : 0);
        unsigned wanted = is_first ? wait_for : 0;
        if (setup == SQPOLL) {
            __atomic_thread_fence(__ATOMIC_SEQ_CST);
            unsigned state = __atomic_load_n(sq.flags, __ATOMIC_RELAXED);
            if (state & SQ_NEEDS_WAKE) flags |= ENTER_WAKE;
            if (drains) flags |= ENTER_SQ_WAIT;
            if (!wanted && !drains && !(state & (SQ_NEEDS_WAKE | SQ_OVERFLOW))) return;
        }
        struct wait how = {.time = (uintptr_t)&ten_seconds, .min_us = MIN_WAIT_US};
        int is_patient = is_min_wait && wanted;
        int done = syscall(SYS_ENTER, ring, to_submit, wanted, flags | (is_patient ? ENTER_EXT_ARG : 0),
                           is_patient ? &how : 0, is_patient ? sizeof how : 0);
        counts.enters++;
        if (done < 0 && errno != EINTR && errno != ETIME && errno != EAGAIN && errno != EBUSY) failed("io_uring_enter");
        if (setup == SQPOLL || sq.next == __atomic_load_n(sq.head, __ATOMIC_ACQUIRE)) return;
    }
}

// Room for so many requests that belong together.
static void make_room(unsigned count) {
    while (sq.next + count - __atomic_load_n(sq.head, __ATOMIC_ACQUIRE) > sq.entries) enter(0, 1);
}

static struct request *request(uint8_t opcode, int fd, uint64_t mark) {
    make_room(1);
    struct request *r = &sq.requests[sq.next++ & sq.mask];
    *r = (struct request){.opcode = opcode, .fd = fd, .mark = mark};
    return r;
}

static void arm_accept(void) {
    struct request *r = request(OP_ACCEPT, listener, MARK(ACCEPT, 0));
    r->how = HOW_ACCEPT_MULTI;
    if (is_direct) r->slot = SLOT_ANY;
    else r->op_flags = SOCK_CLOEXEC;
}

static void arm_receive(int fd, struct connection *c) {
    struct request *r = request(OP_RECEIVE, fd, MARK(RECEIVE, fd));
    if (is_direct) r->flags |= FIXED_FILE;
    if (receive_kind == OWN) {
        if (!c->own && !(c->own = malloc((size_t)buffer_kib << 10))) failed("malloc");
        r->address = (uintptr_t)c->own, r->len = buffer_kib << 10;
    } else {
        r->flags |= BUFFER_SELECT;
        int is_single = receive_kind == SINGLE || receive_kind == POLL_FIRST;
        if (is_single) r->len = buffer_kib << 10;
        else r->how |= HOW_MULTI;
    }
    if (receive_kind == POLL_FIRST) r->how |= HOW_POLL_FIRST;
    if (receive_kind == BUNDLE) r->how |= HOW_BUNDLE;
    c->is_armed = 1, c->wants_receive = 0;
}

static void queue_cancel(int fd) {
    struct request *r = request(OP_CANCEL, -1, MARK(CANCEL, fd));
    r->address = MARK(RECEIVE, fd);
    r->flags = SKIP_SUCCESS;
}

static void queue_close(int fd) {
    struct request *r = request(OP_CLOSE, is_direct ? 0 : fd, MARK(CLOSE, fd));
    if (is_direct) r->slot = fd + 1;
    r->flags = SKIP_SUCCESS;
}

static void end(int fd, struct connection *c) {
    make_room(2);
    if (c->is_armed) queue_cancel(fd);
    queue_close(fd);
    c->is_open = 0;
}

static void queue_send(int fd, struct connection *c) {
    make_room(3);
    long len;
    char *from = next_reply(c, &len);
    // One that leaves something to be sent has a completion too: nothing else might wake the loop for the rest.
    int is_known = setup != SQPOLL && !is_zero_copy && !c->is_blocked && len == c->out && sent_len < SUBMISSIONS;
    int is_last = is_known && c->is_ending;
    if (is_last && c->is_armed) queue_cancel(fd);
    struct request *r = request(is_zero_copy ? OP_SEND_ZC : OP_SEND, fd, MARK(SEND, fd));
    r->address = (uintptr_t)from, r->len = len;
    r->op_flags = MSG_NOSIGNAL | MSG_WAITALL | (is_known ? MSG_DONTWAIT : 0);
    if (is_direct) r->flags |= FIXED_FILE;
    if (is_zero_copy) r->how |= HOW_REPORT_USAGE;
    if (is_known) r->flags |= SKIP_SUCCESS, sent[sent_len++] = fd;
    // The link breaks where the socket does not take all.
    if (is_last) r->flags |= LINK, queue_close(fd), c->is_linked = 1;
    c->sending = is_known ? UNTIL_ENTERED : UNTIL_COMPLETED;
    c->in_flight = len;
    counts.sends++;
}

// The peer is gone: nothing more is sent than what is under way.
static void lose(struct connection *c) {
    c->is_ending = 1;
    c->out = c->sending ? c->in_flight : 0;
}

static void touch(int fd, struct connection *c) {
    if (!c->is_dirty) c->is_dirty = 1, dirty[dirty_len++] = fd;
}

// ---------------------------------------------------------------- the ring: completions

static unsigned seen_more, seen_pieces, seen_bundles;  // what receives were like

static void accepted(const struct completion *done) {
    if (done->result >= 0) {
        int fd = done->result;
        if (fd >= CONNECTIONS_MAX) failed("too many connections");
        uint8_t is_dirty = connections[fd].is_dirty;
        begin(&connections[fd]);
        connections[fd].is_dirty = is_dirty;
        connections[fd].wants_receive = 1;
        touch(fd, &connections[fd]);
    } else if (done->result == -EINVAL) {
        refused("accepting with one request", "5.19", "accept", -done->result);
    }
    if (!(done->flags & HAS_MORE)) arm_accept();
}

// The bytes of a receive, whose buffers go back at once.
static void received_bytes(struct connection *c, const struct completion *done, int is_stale) {
    if (receive_kind == OWN) {
        if (!is_stale) take(c, c->own, done->result);
        return;
    }
    uint16_t id = done->flags >> 16;
    size_t size = (size_t)buffer_kib << 10;
    if (receive_kind == BUNDLE) {
        // Only the first buffer is named: the others follow in the order in which they were given.
        if (pool_order[pool_head & (buffers - 1)] != id) { errno = EPROTO; failed("the order of buffers"); }
        seen_bundles += (size_t)done->result > size;
        for (size_t left = done->result; left;) {
            size_t part = left < size ? left : size;
            id = pool_order[pool_head++ & (buffers - 1)];
            if (!is_stale) take(c, pool_bytes + id * size, part);
            left -= part;
            give(id);
        }
        return;
    }
    if (!is_stale) take(c, pool_bytes + id * size + pool_used[id], done->result);
    pool_used[id] += done->result;
    if (receive_kind == INCREMENTAL && (done->flags & BUFFER_HAS_MORE)) seen_pieces++;
    else give(id);
}

static void received(const struct completion *done, int fd, struct connection *c, int is_stale) {
    counts.receives++;
    seen_more += (done->flags & HAS_MORE) != 0;
    if (done->result > 0) received_bytes(c, done, is_stale);
    if (is_stale) return;
    if (!(done->flags & HAS_MORE)) c->is_armed = 0;
    if (done->result == -ENOBUFS) counts.out_of_buffers++;
    else if (done->result == -EINVAL) refused(receive_words[receive_kind], receive_kind == MULTI ? "6.0" : "5.19", "receive", EINVAL);
    else if (done->result == -ECANCELED) return;
    else if (done->result < 0) lose(c);
    else if (done->result == 0) c->is_ending = 1;
    if (!c->is_armed && !c->is_ending) c->wants_receive = 1, counts.rearmed++;
    touch(fd, c);
}

static void send_done(const struct completion *done, int fd, struct connection *c, int is_stale) {
    if (done->flags & IS_NOTICE) {
        counts.zero_copy++;
        counts.copied += ((uint32_t)done->result & WAS_COPIED) != 0;
        return;
    }
    if (is_stale) return;
    if (done->result == -EINVAL) refused(is_zero_copy ? "zc" : "send", is_zero_copy ? "6.2" : "5.6", "send", EINVAL);
    long len = done->result > 0 ? done->result : 0;
    if (len < c->in_flight) counts.cut_short++;
    c->is_blocked = c->sending == UNTIL_ENTERED;
    c->sending = NOT_SENDING, c->is_linked = 0;
    c->out -= len;
    if (done->result < 0 && done->result != -EAGAIN) lose(c);
    touch(fd, c);
}

static void complete(const struct completion *done) {
    int fd = (uint32_t)done->mark;
    struct connection *c = &connections[fd];
    int is_stale = !c->is_open || c->generation != ((done->mark >> 32) & 0xffffff);
    switch (done->mark >> 56) {
    case ACCEPT: accepted(done); break;
    case RECEIVE: received(done, fd, c, is_stale); break;
    case SEND: send_done(done, fd, c, is_stale); break;
    case EVENTS:
        is_watching = 0;
        if (done->result < 0 && done->result != -EINTR) refused("epoll-wait", "6.15", "epoll_wait by the ring", -done->result);
        if (done->result > 0) take_events(done->result);
        break;
    }
}

// Sends of the call that has just returned of which nothing was said: they were carried out whole.
static void note_sent(void) {
    for (int i = 0; i < sent_len; i++) {
        struct connection *c = &connections[sent[i]];
        if (!c->is_open || c->sending != UNTIL_ENTERED) continue;
        c->sending = NOT_SENDING;
        c->out -= c->in_flight;
        if (c->is_linked) c->is_open = 0;
        else if (c->out || c->is_ending) touch(sent[i], c);
    }
    sent_len = 0;
}

static void ring_turn(int waits) {
    if (epoll_kind == EPOLL_WAIT && !is_watching) {
        struct request *r = request(OP_EPOLL_WAIT, epoll, MARK(EVENTS, 0));
        r->address = (uintptr_t)events, r->len = EVENTS_MAX;
        is_watching = 1;
    }
    enter(waits ? (is_min_wait ? MIN_WAIT_FOR : 1) : 0, 0);
    uint32_t head = *cq.head, tail = __atomic_load_n(cq.tail, __ATOMIC_ACQUIRE);
    counts.completions += tail - head;
    counts.overflows += (__atomic_load_n(sq.flags, __ATOMIC_RELAXED) & SQ_OVERFLOW) != 0;
    for (; head != tail; head++) complete(&cq.completions[head & cq.mask]);
    __atomic_store_n(cq.head, tail, __ATOMIC_RELEASE);
    note_sent();
    // A send before the receive that waits for what it causes.
    int len = dirty_len;
    dirty_len = 0;
    for (int i = 0; i < len; i++) {
        int fd = dirty[i];
        struct connection *c = &connections[fd];
        c->is_dirty = 0;
        if (!c->is_open || c->sending) continue;
        if (c->out) queue_send(fd, c);
        else if (c->is_ending) end(fd, c);
        if (c->is_open && c->wants_receive && !c->is_ending) arm_receive(fd, c);
    }
}

static void turn(int waits) {
    if (ring >= 0) ring_turn(waits);
    else epoll_turn(waits);
}

// ---------------------------------------------------------------- the trial

static struct sockaddr_in address;

// Sends a request to this server, and lets it work until the whole reply is there.
static void ask(int client, const char *text, long len) {
    long out = 0, in = 0;
    static char buffer[65536];
    for (double end = now() + TRIAL_S; in < reply_len;) {
        if (now() > end) out_of_reach(3, "refused: the trial over loopback got no answer");
        ssize_t moved = out < len ? send(client, text + out, len - out, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
        if (moved > 0) out += moved;
        turn(0);
        moved = recv(client, buffer, sizeof buffer, MSG_DONTWAIT);
        if (moved > 0) in += moved;
        if (!moved) out_of_reach(3, "refused: the trial over loopback was ended early");
        struct pollfd either = {.fd = client, .events = POLLIN | (out < len ? POLLOUT : 0)};
        if (moved < 0) poll(&either, 1, 1);
    }
}

// Says what receives, sends and the path were like.
static void judge(int client) {
    char text[256];
    if (ring >= 0 && epoll_kind == NO_EPOLL) {
        enum receive seen = seen_more ? (seen_pieces ? INCREMENTAL : seen_bundles ? BUNDLE : MULTI)
                          : receive_kind == OWN || receive_kind == POLL_FIRST ? receive_kind : SINGLE;
        if (seen != MULTI) grant(receive_words[seen]);
        unsigned is_usual = buffers == buffers_of[seen].count && buffer_kib == buffers_of[seen].kib;
        if (!is_usual) snprintf(text, sizeof text, "%ux%uk", buffers, buffer_kib), grant(text);
        if (is_direct) grant("direct");
        if (is_zero_copy && counts.zero_copy) grant("zc");
        if (is_min_wait) grant("min-wait");
    } else if (buffer_kib != EPOLL_BUFFER_KIB) {
        snprintf(text, sizeof text, "1x%uk", buffer_kib), grant(text);
    }
    if (is_busy_poll) grant("busy-poll");
    if (is_zero_copy && counts.copied == counts.zero_copy && !is_anyway) {
        snprintf(text, sizeof text, "n/a: loopback copies every zero-copy send (REPORT_USAGE said copied for %lu of %lu); "
                 "needs a NIC with scatter-gather between two hosts; anyway measures it", counts.copied, counts.zero_copy);
        out_of_reach(4, text);
    }
    unsigned napi = 0;
    socklen_t len = sizeof napi;
    getsockopt(client, SOL_SOCKET, 56 /* SO_INCOMING_NAPI_ID */, &napi, &len);
    if (is_busy_poll && !napi && !is_anyway)
        out_of_reach(4, "n/a: SO_INCOMING_NAPI_ID is 0 on this path, so there is no queue to poll; anyway measures it");
    if (is_anyway) grant("anyway");
}

static int are_open(void) {
    for (int fd = 0; fd < CONNECTIONS_MAX; fd++)
        if (connections[fd].is_open) return 1;
    return 0;
}

static void trial(void) {
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (client < 0 || connect(client, (void *)&address, sizeof address)) failed("connect of the trial");
    const char *get = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    char *post = malloc(TRIAL_BODY + 128);
    if (!post) failed("malloc");
    int head = sprintf(post, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", TRIAL_BODY);
    memset(post + head, 'x', TRIAL_BODY);
    int is_closing = closes;
    closes = 0;
    for (int i = 0; i < TRIAL_REQUESTS; i++) ask(client, get, strlen(get));
    ask(client, post, head + TRIAL_BODY);
    for (double end = now() + TRIAL_S; is_zero_copy && counts.zero_copy < TRIAL_REQUESTS && now() < end;) turn(0);
    judge(client);
    closes = is_closing;
    free(post);
    close(client);
    // Until its connection is gone, and a turn more that closes it.
    for (double end = now() + TRIAL_S; are_open() && now() < end;) turn(0);
    turn(0);
    for (double end = now() + TRIAL_S; ring >= 0 && sq.next != __atomic_load_n(sq.head, __ATOMIC_ACQUIRE) && now() < end;) turn(0);
    memset(&counts, 0, sizeof counts);
}

// ---------------------------------------------------------------- main

static void on_end(int signal) {
    (void)signal;
    char text[512];
    int len = snprintf(text, sizeof text,
                       "counts accepted=%lu requests=%lu receives=%lu rearmed=%lu out_of_buffers=%lu sends=%lu "
                       "cut_short=%lu enters=%lu completions=%lu overflows=%lu zero_copy=%lu copied=%lu\n",
                       counts.accepted, counts.requests, counts.receives, counts.rearmed, counts.out_of_buffers, counts.sends,
                       counts.cut_short, counts.enters, counts.completions, counts.overflows, counts.zero_copy, counts.copied);
    if (write(2, text, len)) {}
    _exit(0);
}

static void listen_at(const char *where) {
    char host[64];
    const char *port = strrchr(where, ':');
    if (!port || (size_t)(port - where) >= sizeof host) { errno = EINVAL; failed("listen="); }
    snprintf(host, sizeof host, "%.*s", (int)(port - where), where);
    address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(atoi(port + 1))};
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1) { errno = EINVAL; failed("listen="); }
    // A ring waits for connections by itself: its listener must not say that there are none.
    int kind = SOCK_STREAM | SOCK_CLOEXEC | (epoll_kind ? SOCK_NONBLOCK : 0), one = 1;
    socklen_t len = sizeof address;
    listener = socket(AF_INET, kind, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(listener, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (bind(listener, (void *)&address, sizeof address) || listen(listener, BACKLOG) ||
        getsockname(listener, (void *)&address, &len))
        failed("bind");
}

int main(int count, char **words) {
    if (count < 2) return 2;
    snprintf(form, sizeof form, "%s", words[1]);
    char text[256], *family = text;
    snprintf(text, sizeof text, "%s", words[1]);
    char *rest = strchr(text, ':');
    if (!rest) { fprintf(stderr, "%s: expected words behind a colon, as in raw-uring:defer\n", form); return 2; }
    const char *asked = words[1] + (rest + 1 - text);
    *rest++ = 0;
    if (!strcmp(family, "raw-epoll")) epoll_kind = EDGE;
    for (char *word = strtok(rest, "+"); word; word = strtok(0, "+")) read_word(word);
    const char *where = "127.0.0.1:0";
    long reply = 128;
    int is_probe = 0;
    for (int i = 2; i < count; i++) {
        if (!strncmp(words[i], "listen=", 7)) where = words[i] + 7;
        else if (!strncmp(words[i], "reply=", 6)) reply = atol(words[i] + 6);
        else if (!strcmp(words[i], "close")) closes = 1;
        else if (!strcmp(words[i], "probe")) is_probe = 1;
        else { fprintf(stderr, "%s: \"%s\" is not an option\n", form, words[i]); return 2; }
    }
    if (!buffers) {
        buffers = epoll_kind ? 1 : buffers_of[receive_kind].count;
        buffer_kib = epoll_kind ? EPOLL_BUFFER_KIB : buffers_of[receive_kind].kib;
    }
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max < CONNECTIONS_MAX ? limit.rlim_max : CONNECTIONS_MAX;
    setrlimit(RLIMIT_NOFILE, &limit);
    signal(SIGTERM, on_end);
    make_replies(reply);
    listen_at(where);
    int is_on_ring = !epoll_kind || epoll_kind == EPOLL_WAIT;
    if (is_on_ring) {
        open_ring();
        // What the kernel says that it has set up.
        uint32_t is = params.flags;
        enum setup seen = is & FLAG_SQPOLL ? SQPOLL : is & FLAG_DEFER ? DEFER : is & FLAG_COOP ? COOP : NONE;
        if (seen != DEFER) grant(setup_words[seen]);
    }
    if (epoll_kind) open_epoll();
    else open_pool(), arm_accept();
    trial();
    // A form of nothing but defaults is called by the first of them.
    if (!granted_len) grant(epoll_kind ? "edge" : setup_words[DEFER]);
    if (strcmp(granted, asked)) {
        char text[512];
        snprintf(text, sizeof text, "refused: the kernel granted another form, %s", granted);
        out_of_reach(3, text);
    }
    if (is_probe) return 0;
    fprintf(stderr, "%s: http://127.0.0.1:%d (%s, %s buffers %ux%uk)\n", family, ntohs(address.sin_port), granted,
            receive_kind == OWN && !epoll_kind ? "each connection's" : "shared", buffers, buffer_kib);
    for (;;) turn(1);
}
