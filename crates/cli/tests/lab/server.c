/* A small HTTP server in C, as somebody would write one: a thread for each connection.
 *
 * server PORT: 128 bytes to every request of one read; connections are kept. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static char answer[256];
static size_t answer_len;

static void *serve(void *argument) {
    int connection = (int)(intptr_t)argument;
    char request[8192];
    for (;;) {
        ssize_t len = read(connection, request, sizeof request - 1);
        if (len <= 0) break;
        request[len] = 0;
        int is_sent = 1;
        for (char *at = request; (at = strstr(at, "\r\n\r\n")); at += 4)
            is_sent &= write(connection, answer, answer_len) == (ssize_t)answer_len;
        if (!is_sent || strstr(request, "Connection: close")) break;
    }
    close(connection);
    return NULL;
}

int main(int argc, char **argv) {
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)(argc > 1 ? atoi(argv[1]) : 0)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 1024)) {
        perror("server");
        return 1;
    }
    answer_len = (size_t)snprintf(answer, sizeof answer,
                                  "HTTP/1.1 200 OK\r\nContent-Length: 128\r\n\r\n%0128d", 0);
    for (;;) {
        int connection = accept(listener, NULL, NULL);
        if (connection < 0) continue;
        setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        pthread_t thread;
        if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)connection)) close(connection);
        else pthread_detach(thread);
    }
}
