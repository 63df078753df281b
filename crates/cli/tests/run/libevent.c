// A server on libevent that answers each request with its target: libevent PORT
#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <stdlib.h>

static void answer(struct evhttp_request *request, void *unused) {
    (void)unused;
    struct evbuffer *body = evbuffer_new();
    evbuffer_add_printf(body, "%s", evhttp_request_get_uri(request));
    evhttp_send_reply(request, 200, "OK", body);
    evbuffer_free(body);
}

int main(int argc, char **argv) {
    struct event_base *base = event_base_new();
    struct evhttp *http = evhttp_new(base);
    evhttp_set_gencb(http, answer, NULL);
    if (argc < 2 || evhttp_bind_socket(http, "127.0.0.1", (unsigned short)atoi(argv[1])))
        return 1;
    return event_base_dispatch(base) != 0;
}
