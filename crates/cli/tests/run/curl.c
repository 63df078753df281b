// A client on libcurl's event mode with epoll. Asks a server that answers with the target of the request,
// and checks each answer: curl PORT REQUESTS
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#define CLIENTS 32
#define MS_MAX 5000

struct client {
    CURL *easy;
    char expected[32], found[64];
    size_t len;
};

static int epoll, port;
static long asked, requests, answered, right, timeout_ms = -1;
static struct client clients[CLIENTS];

static size_t on_body(char *bytes, size_t one, size_t len, void *whose) {
    struct client *client = whose;
    if (client->len + len >= sizeof client->found)
        return 0;
    memcpy(client->found + client->len, bytes, one * len);
    client->len += len;
    return len;
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *unused, void *known) {
    (void)easy, (void)unused, (void)known;
    struct epoll_event event = {.data.fd = fd};
    event.events = (what & CURL_POLL_IN ? EPOLLIN : 0) | (what & CURL_POLL_OUT ? EPOLLOUT : 0);
    if (what == CURL_POLL_REMOVE)
        return epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL), 0;
    if (epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event))
        epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    return 0;
}

static int on_timer(CURLM *multi, long ms, void *unused) {
    (void)multi, (void)unused;
    timeout_ms = ms;
    return 0;
}

static void ask(CURLM *multi, struct client *client) {
    char url[64];
    if (asked == requests)
        return;
    client->len = 0;
    snprintf(client->expected, sizeof client->expected, "/%ld", asked++);
    snprintf(url, sizeof url, "http://127.0.0.1:%d%s", port, client->expected);
    curl_easy_setopt(client->easy, CURLOPT_URL, url);
    curl_multi_add_handle(multi, client->easy);
}

static void take_answers(CURLM *multi) {
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(multi, &left))) {
        CURL *easy = message->easy_handle;
        int failed = message->data.result != CURLE_OK;
        struct client *client;
        curl_easy_getinfo(easy, CURLINFO_PRIVATE, &client);
        right += !failed && client->len == strlen(client->expected) &&
                 !memcmp(client->found, client->expected, client->len);
        answered++;
        curl_multi_remove_handle(multi, easy);
        ask(multi, client);
    }
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    port = atoi(argv[1]), requests = atol(argv[2]), epoll = epoll_create1(0);
    curl_global_init(CURL_GLOBAL_ALL);
    CURLM *multi = curl_multi_init();
    curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, on_timer);
    for (int i = 0; i < CLIENTS; i++) {
        clients[i].easy = curl_easy_init();
        curl_easy_setopt(clients[i].easy, CURLOPT_WRITEFUNCTION, on_body);
        curl_easy_setopt(clients[i].easy, CURLOPT_WRITEDATA, &clients[i]);
        curl_easy_setopt(clients[i].easy, CURLOPT_PRIVATE, &clients[i]);
        ask(multi, &clients[i]);
    }
    while (answered < requests) {
        int running;
        struct epoll_event events[CLIENTS];
        int ms = timeout_ms < 0 || timeout_ms > MS_MAX ? MS_MAX : (int)timeout_ms;
        int ready = epoll_wait(epoll, events, CLIENTS, ms);
        if (ready == 0) {
            if (timeout_ms < 0)
                break; // nothing for so long: an event is lost
            timeout_ms = -1;
            curl_multi_socket_action(multi, CURL_SOCKET_TIMEOUT, 0, &running);
        }
        for (int i = 0; i < ready; i++) {
            unsigned got = events[i].events;
            int what = (got & (EPOLLIN | EPOLLHUP) ? CURL_CSELECT_IN : 0) |
                       (got & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                       (got & EPOLLERR ? CURL_CSELECT_ERR : 0);
            curl_multi_socket_action(multi, events[i].data.fd, what, &running);
        }
        take_answers(multi);
    }
    printf("%ld of %ld answers are right\n", right, requests);
    return right != requests;
}
