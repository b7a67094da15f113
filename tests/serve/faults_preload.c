/* faults_preload.c: calls of the C library that fail once, in a program that loads this library first (LD_PRELOAD).
   takes: the environment's SERVE_FAULTS, a file of three 64-bit numbers: which call (faults_call), which one from now
          fails (0: none), how many were made since. Whoever tests writes the first two and reads the third.
   gives: malloc, calloc, realloc, accept, recv, send, poll in place of glibc's. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FAULTS_MALLOC = 1, FAULTS_ACCEPT, FAULTS_READ, FAULTS_WRITE, FAULTS_POLL };

typedef struct faults {
    _Atomic uint64_t call, at, made;
} faults;

static faults none, *shared = &none;

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);

__attribute__((constructor)) static void open_faults(void)
{
    const char *path = getenv("SERVE_FAULTS");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *memory = file >= 0 ? mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    shared = memory == MAP_FAILED ? &none : memory;
    if (file >= 0) {
        close(file);
    }
}

static int fails(uint64_t call, int error)
{
    if (shared->call != call || ++shared->made != shared->at) {
        return 0;
    }
    errno = error;
    return 1;
}

void *malloc(size_t bytes)
{
    return fails(FAULTS_MALLOC, ENOMEM) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return fails(FAULTS_MALLOC, ENOMEM) ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
    return fails(FAULTS_MALLOC, ENOMEM) ? NULL : __libc_realloc(old, bytes);
}

/* The next definition of a function, in glibc. */
#define NEXT(function, name) (*(void **)(void *)&(function) = dlsym(RTLD_NEXT, name))

int accept(int s, __SOCKADDR_ARG address, socklen_t *bytes)
{
    int (*next)(int, __SOCKADDR_ARG, socklen_t *);
    NEXT(next, "accept");
    return fails(FAULTS_ACCEPT, EMFILE) ? -1 : next(s, address, bytes);
}

ssize_t recv(int s, void *bytes, size_t count, int flags)
{
    ssize_t (*next)(int, void *, size_t, int);
    NEXT(next, "recv");
    return fails(FAULTS_READ, ECONNRESET) ? -1 : next(s, bytes, count, flags);
}

ssize_t send(int s, const void *bytes, size_t count, int flags)
{
    ssize_t (*next)(int, const void *, size_t, int);
    NEXT(next, "send");
    return fails(FAULTS_WRITE, EPIPE) ? -1 : next(s, bytes, count, flags);
}

int poll(struct pollfd *sockets, nfds_t count, int wait_ms)
{
    int (*next)(struct pollfd *, nfds_t, int);
    NEXT(next, "poll");
    return fails(FAULTS_POLL, EINTR) ? -1 : next(sockets, count, wait_ms);
}
