/* A disk that misbehaves on command, put under one process with LD_PRELOAD.
 *
 * FAULTY_DISK_DIR: files below it are concerned, by the names that the kernel has for them.
 * FAULTY_DISK_ORDER: a file of a few words, read at every call, so that the weather can change:
 *   slow MS      every fsync takes so much longer
 *   full         what would take space fails with ENOSPC
 *   badsync      every fsync fails with EIO
 *   badwrite     every write fails with EIO
 *   readonly     what would open for writing fails with EROFS
 *   forbidden    the same with EACCES
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static int begins(const char *path) {
    const char *dir = getenv("FAULTY_DISK_DIR");
    return dir && strncmp(path, dir, strlen(dir)) == 0;
}

static int concerned(int fd) {
    char name[64], path[4096];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(name, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = 0;
    return begins(path);
}

static int ordered(const char *word, long *number) {
    char text[64] = {0};
    const char *file = getenv("FAULTY_DISK_ORDER");
    int (*real_open)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
    int fd = file ? real_open(file, O_RDONLY) : -1;
    if (fd < 0) return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0 || strncmp(text, word, strlen(word)) != 0) return 0;
    if (number) *number = atol(text + strlen(word));
    return 1;
}

static int sync_fails(int fd) {
    long ms = 0;
    if (!concerned(fd)) return 0;
    if (ordered("slow ", &ms)) {
        struct timespec wait = {ms / 1000, (ms % 1000) * 1000000};
        nanosleep(&wait, NULL);
    }
    if (!ordered("badsync", NULL)) return 0;
    errno = EIO;
    return 1;
}

int fdatasync(int fd) {
    int (*real)(int) = dlsym(RTLD_NEXT, "fdatasync");
    return sync_fails(fd) ? -1 : real(fd);
}

int fsync(int fd) {
    int (*real)(int) = dlsym(RTLD_NEXT, "fsync");
    return sync_fails(fd) ? -1 : real(fd);
}

static int write_fails(int fd) {
    if (!concerned(fd)) return 0;
    // As the kernel does with files that are open when it gives a file system up.
    if (ordered("readonly", NULL)) { errno = EROFS; return 1; }
    if (!ordered("badwrite", NULL)) return 0;
    errno = EIO;
    return 1;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    ssize_t (*real)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pwrite64");
    struct stat now;
    if (concerned(fd) && ordered("full", NULL) && fstat(fd, &now) == 0 && at + (off64_t)size > now.st_size) {
        errno = ENOSPC;
        return -1;
    }
    return write_fails(fd) ? -1 : real(fd, data, size, at);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    return pwrite64(fd, data, size, at);
}

int posix_fallocate64(int fd, off64_t at, off64_t size) {
    int (*real)(int, off64_t, off64_t) = dlsym(RTLD_NEXT, "posix_fallocate64");
    return concerned(fd) && ordered("full", NULL) ? ENOSPC : real(fd, at, size);
}

int posix_fallocate(int fd, off_t at, off_t size) {
    return posix_fallocate64(fd, at, size);
}

int open64(const char *path, int flags, ...) {
    int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, "open64");
    va_list rest;
    va_start(rest, flags);
    mode_t mode = (flags & O_CREAT) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if ((flags & O_ACCMODE) != O_RDONLY && begins(path)) {
        if (ordered("readonly", NULL)) { errno = EROFS; return -1; }
        if (ordered("forbidden", NULL)) { errno = EACCES; return -1; }
    }
    return real(path, flags, mode);
}

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = (flags & O_CREAT) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return open64(path, flags, mode);
}
