/* net.h: sockets that do not block, on POSIX and on Windows, and a pair by which a thread or signal handler wakes
   poll. takes: host names and ports.
   gives: net_system, net_socket, net_error, net_*.
   owns:  nothing: who opened a socket closes it. */
#ifndef SERVE_NET_H
#define SERVE_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#include <winsock2.h>
typedef SOCKET net_socket;
typedef WSAPOLLFD net_poll;
#define NET_NONE INVALID_SOCKET
#else
#include <poll.h>
typedef int net_socket;
typedef struct pollfd net_poll;
#define NET_NONE (-1)
#endif

#define NET_ADDRESS_MAX 64 /* bytes of a numeric address with its NUL */

typedef enum net_result {
    NET_OK,
    NET_AGAIN, /* nothing to read, no room to write, nobody to accept */
    NET_END,   /* the peer has ended its direction */
    NET_FULL,  /* accept: no descriptors or memory left */
    NET_FAILED /* the connection is broken */
} net_result;

/* The calls that can fail. A NULL member is the real one. Tests replace them to fail, to cut short, and to set the
   time. */
typedef struct net_system {
    void *user;
    uint64_t (*now_ms)(void *user);                         /* monotonic */
    void *(*resize)(void *user, void *memory, size_t bytes); /* realloc; 0 bytes: free */
    net_result (*accept)(void *user, net_socket listener, net_socket *out);
    net_result (*read)(void *user, net_socket s, void *bytes, size_t count, size_t *done);
    net_result (*write)(void *user, net_socket s, const void *bytes, size_t count, size_t *done);
    int (*poll)(void *user, net_poll *sockets, size_t count, int wait_ms); /* > 0: some are ready; < 0: it failed */
} net_system;

void net_complete(net_system *s); /* fills NULL members with the real calls */

/* A listening socket; host is a name or an address. port 0: a free one, which is written back. NET_NONE: error has one
   sentence. address: the numeric one, with the port, as in a URL. */
net_socket net_listen(const char *host, int *port, char *address, size_t address_bytes, char *error,
                      size_t error_bytes);
/* Numeric addresses of both ends, without brackets and ports; "" if unknown. */
void net_names(net_socket s, char peer[NET_ADDRESS_MAX], char local[NET_ADDRESS_MAX]);
void net_end_write(net_socket s); /* the peer reads the end; it can still be read from */
void net_close(net_socket s);

/* A pair for waking: poll reports ends[0] as readable after net_wake(ends[1]). */
bool net_wake_open(net_socket ends[2]);
void net_wake(net_socket end);  /* one byte; safe in signal handlers */
void net_drain(net_socket end); /* reads all bytes away */
void net_wake_close(net_socket ends[2]);

#endif
