/* net.c: see net.h.
   takes: the sockets of POSIX, or Winsock 2.
   gives: what net.h declares.
   owns:  nothing. */
#define _POSIX_C_SOURCE 200809L
#ifdef __APPLE__
#define _DARWIN_C_SOURCE /* SO_NOSIGPIPE */
#endif
#include "net.h"
#include "../common/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The system holds at most so much of what a client does not read; the rest waits with us, where it is counted. */
#define SEND_BUFFER (64 << 10)
#define BACKLOG 256

#ifdef _WIN32
#include <ws2tcpip.h>
typedef int socket_size;
typedef int io_size;
#define SEND_FLAGS 0

static int last_error(void)
{
    return WSAGetLastError();
}

static net_result result_of(int error)
{
    switch (error) {
    case WSAEWOULDBLOCK:
    case WSAEINTR:
    case WSAECONNRESET: /* of accept: the client has left while it waited */
        return NET_AGAIN;
    case WSAEMFILE:
    case WSAENOBUFS:
        return NET_FULL;
    default:
        return NET_FAILED;
    }
}

static void error_text(int error, char *out, size_t out_bytes)
{
    const char *known = error == WSAEADDRINUSE      ? "the port is in use"
                        : error == WSAEACCES        ? "access is denied"
                        : error == WSAEADDRNOTAVAIL ? "this machine does not have the address"
                                                    : NULL;
    if (known) {
        snprintf(out, out_bytes, "%s", known);
    } else {
        snprintf(out, out_bytes, "Windows error %d", error);
    }
}

static bool start_sockets(void)
{
    WSADATA data;
    return WSAStartup(MAKEWORD(2, 2), &data) == 0;
}

static bool no_blocking(net_socket s)
{
    u_long on = 1;
    return ioctlsocket(s, (long)FIONBIO, &on) == 0;
}

void net_close(net_socket s)
{
    if (s != NET_NONE) {
        closesocket(s);
    }
}

void net_end_write(net_socket s)
{
    shutdown(s, SD_SEND);
}

static int poll_now(net_poll *sockets, size_t count, int wait_ms)
{
    return WSAPoll(sockets, (ULONG)count, wait_ms);
}

/* A datagram socket that is connected to itself. */
bool net_wake_open(net_socket ends[2])
{
    struct sockaddr_in at = { .sin_family = AF_INET };
    int bytes = sizeof at;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ends[0] = ends[1] = start_sockets() ? socket(AF_INET, SOCK_DGRAM, 0) : NET_NONE;
    bool open = ends[0] != NET_NONE && bind(ends[0], (struct sockaddr *)&at, sizeof at) == 0 &&
                getsockname(ends[0], (struct sockaddr *)&at, &bytes) == 0 &&
                connect(ends[0], (struct sockaddr *)&at, sizeof at) == 0 && no_blocking(ends[0]);
    if (!open) {
        net_close(ends[0]);
        ends[0] = ends[1] = NET_NONE;
    }
    return open;
}

void net_wake(net_socket end)
{
    send(end, "", 1, 0);
}

void net_drain(net_socket end)
{
    char bytes[64];
    while (recv(end, bytes, sizeof bytes, 0) > 0) {
    }
}

void net_wake_close(net_socket ends[2])
{
    net_close(ends[0]);
}
#else
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>
typedef socklen_t socket_size;
typedef size_t io_size;
#ifdef MSG_NOSIGNAL
#define SEND_FLAGS MSG_NOSIGNAL
#else
#define SEND_FLAGS 0
#endif

static int last_error(void)
{
    return errno;
}

static net_result result_of(int error)
{
    switch (error) {
    case EAGAIN:
#if EAGAIN != EWOULDBLOCK
    case EWOULDBLOCK:
#endif
    case EINTR:
    case ECONNABORTED: /* of accept: the client has left while it waited */
    case EPROTO:
        return NET_AGAIN;
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
        return NET_FULL;
    default:
        return NET_FAILED;
    }
}

static void error_text(int error, char *out, size_t out_bytes)
{
    snprintf(out, out_bytes, "%s", strerror(error));
}

static bool start_sockets(void)
{
    return true;
}

static bool no_blocking(net_socket s)
{
    return fcntl(s, F_SETFL, O_NONBLOCK) == 0 && fcntl(s, F_SETFD, FD_CLOEXEC) == 0;
}

void net_close(net_socket s)
{
    if (s != NET_NONE) {
        close(s);
    }
}

void net_end_write(net_socket s)
{
    shutdown(s, SHUT_WR);
}

static int poll_now(net_poll *sockets, size_t count, int wait_ms)
{
    return poll(sockets, (nfds_t)count, wait_ms);
}

bool net_wake_open(net_socket ends[2])
{
    if (pipe(ends) != 0) {
        ends[0] = ends[1] = NET_NONE;
        return false;
    }
    if (no_blocking(ends[0]) && no_blocking(ends[1])) {
        return true;
    }
    net_wake_close(ends);
    ends[0] = ends[1] = NET_NONE;
    return false;
}

void net_wake(net_socket end)
{
    int before = errno; /* a signal handler leaves it as it was */
    ssize_t written = write(end, "", 1);
    (void)written; /* a full pipe wakes, too */
    errno = before;
}

void net_drain(net_socket end)
{
    char bytes[64];
    while (read(end, bytes, sizeof bytes) > 0) {
    }
}

void net_wake_close(net_socket ends[2])
{
    net_close(ends[0]);
    net_close(ends[1]);
}
#endif

static void switch_on(net_socket s, int level, int option)
{
    int on = 1;
    setsockopt(s, level, option, (const void *)&on, sizeof on);
}

static uint64_t system_now(void *user)
{
    (void)user;
    return clock_ns() / 1000000u;
}

static void *system_resize(void *user, void *memory, size_t bytes)
{
    (void)user;
    if (bytes == 0) {
        free(memory);
        return NULL;
    }
    return realloc(memory, bytes);
}

static net_result system_accept(void *user, net_socket listener, net_socket *out)
{
    int buffer = SEND_BUFFER;
    (void)user;
    *out = accept(listener, NULL, NULL);
    if (*out == NET_NONE) {
        return result_of(last_error());
    }
    if (!no_blocking(*out)) {
        net_close(*out);
        return NET_AGAIN;
    }
    switch_on(*out, IPPROTO_TCP, TCP_NODELAY);
    setsockopt(*out, SOL_SOCKET, SO_SNDBUF, (const void *)&buffer, sizeof buffer);
#ifdef SO_NOSIGPIPE
    switch_on(*out, SOL_SOCKET, SO_NOSIGPIPE);
#endif
    return NET_OK;
}

/* What recv and send return. A connection that the peer has reset is broken, whatever accept calls it. */
static net_result moved(long long count, size_t *done)
{
    *done = count > 0 ? (size_t)count : 0;
    if (count >= 0) {
        return count > 0 ? NET_OK : NET_END;
    }
    int error = last_error();
#ifdef _WIN32
    return error == WSAEWOULDBLOCK || error == WSAEINTR ? NET_AGAIN : NET_FAILED;
#else
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR ? NET_AGAIN : NET_FAILED;
#endif
}

static net_result system_read(void *user, net_socket s, void *bytes, size_t count, size_t *done)
{
    (void)user;
    return moved(recv(s, bytes, (io_size)count, 0), done);
}

static net_result system_write(void *user, net_socket s, const void *bytes, size_t count, size_t *done)
{
    (void)user;
    return moved(send(s, bytes, (io_size)count, SEND_FLAGS), done);
}

static int system_poll(void *user, net_poll *sockets, size_t count, int wait_ms)
{
    (void)user;
    return poll_now(sockets, count, wait_ms);
}

void net_complete(net_system *s)
{
    s->now_ms = s->now_ms ? s->now_ms : system_now;
    s->resize = s->resize ? s->resize : system_resize;
    s->accept = s->accept ? s->accept : system_accept;
    s->read = s->read ? s->read : system_read;
    s->write = s->write ? s->write : system_write;
    s->poll = s->poll ? s->poll : system_poll;
}

/* The numeric address, without the zone of IPv6 and without the prefix of an IPv4 address in IPv6. Returns the port. */
static int name_of(const struct sockaddr_storage *at, socket_size bytes, char out[NET_ADDRESS_MAX])
{
    char host[256], port[16];
    *out = 0;
    if (getnameinfo((const struct sockaddr *)at, bytes, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        return 0;
    }
    host[strcspn(host, "%")] = 0;
    const char *plain = strncmp(host, "::ffff:", 7) == 0 && strchr(host, '.') ? host + 7 : host;
    snprintf(out, NET_ADDRESS_MAX, "%.*s", NET_ADDRESS_MAX - 1, plain);
    return atoi(port);
}

void net_names(net_socket s, char peer[NET_ADDRESS_MAX], char local[NET_ADDRESS_MAX])
{
    struct sockaddr_storage at;
    socket_size bytes = sizeof at;
    *peer = *local = 0;
    if (getpeername(s, (struct sockaddr *)&at, &bytes) == 0) {
        name_of(&at, bytes, peer);
    }
    bytes = sizeof at;
    if (getsockname(s, (struct sockaddr *)&at, &bytes) == 0) {
        name_of(&at, bytes, local);
    }
}

static net_socket listen_at(const struct addrinfo *at)
{
    net_socket s = socket(at->ai_family, at->ai_socktype, at->ai_protocol);
    if (s == NET_NONE) {
        return NET_NONE;
    }
#ifdef _WIN32
    switch_on(s, SOL_SOCKET, SO_EXCLUSIVEADDRUSE); /* SO_REUSEADDR would share the port with other programs */
#else
    switch_on(s, SOL_SOCKET, SO_REUSEADDR);
#endif
    if (no_blocking(s) && bind(s, at->ai_addr, (socket_size)at->ai_addrlen) == 0 && listen(s, BACKLOG) == 0) {
        return s;
    }
    int error = last_error();
    net_close(s);
#ifdef _WIN32
    WSASetLastError(error);
#else
    errno = error;
#endif
    return NET_NONE;
}

net_socket net_listen(const char *host, int *port, char *address, size_t address_bytes, char *error, size_t error_bytes)
{
    struct addrinfo wanted = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE };
    struct addrinfo *list = NULL;
    struct sockaddr_storage at;
    socket_size bytes = sizeof at;
    char service[16], reason[160], name[NET_ADDRESS_MAX];
    snprintf(service, sizeof service, "%d", *port);
    if (!start_sockets() || getaddrinfo(host, service, &wanted, &list) != 0) {
        snprintf(error, error_bytes, "cannot listen on %s: no such host", host);
        return NET_NONE;
    }
    net_socket s = NET_NONE;
    for (const struct addrinfo *i = list; i && s == NET_NONE; i = i->ai_next) {
        s = listen_at(i);
    }
    if (s == NET_NONE) {
        error_text(last_error(), reason, sizeof reason);
        snprintf(error, error_bytes, "cannot listen on %s, port %d: %s", host, *port, reason);
    }
    freeaddrinfo(list);
    if (s != NET_NONE && getsockname(s, (struct sockaddr *)&at, &bytes) == 0) {
        *port = name_of(&at, bytes, name);
        snprintf(address, address_bytes, strchr(name, ':') ? "[%s]:%d" : "%s:%d", name, *port);
    }
    return s;
}
