/* Preloaded into a server under test: its disk and wall clock misbehave as a shared page of memory says.
 *
 * The page is the file that CHAOS_CONTROL names: five int64 in the machine's order, written by
 * tests.chaos.shim. Without the variable everything passes through.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

struct control {
    int64_t wall_shift_ns;  /* added to CLOCK_REALTIME */
    int64_t sync_delay_ns;  /* before every fdatasync and fsync */
    int64_t sync_errno;     /* what they fail with, 0: they do not */
    int64_t space_errno;    /* what allocation and writes at an offset fail with */
    int64_t calls;          /* syncs that passed here, so that a test sees the shim work */
};

static volatile struct control nothing;
static volatile struct control *control = &nothing;

static int (*real_clock_gettime)(clockid_t, struct timespec *);
static int (*real_fdatasync)(int);
static int (*real_fsync)(int);
static int (*real_posix_fallocate)(int, off_t, off_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CHAOS_CONTROL");
    real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_posix_fallocate = dlsym(RTLD_NEXT, "posix_fallocate64");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    if (path == NULL)
        return;
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        abort();
    void *page = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (page == MAP_FAILED)
        abort();
    control = page;
}

static int misbehave(void) {
    control->calls++;
    int64_t delay = control->sync_delay_ns;
    if (delay > 0) {
        struct timespec pause = {delay / 1000000000, delay % 1000000000};
        nanosleep(&pause, NULL);
    }
    return (int)control->sync_errno;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (real_clock_gettime == NULL) /* called by another constructor before ours */
        real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real_clock_gettime(clock, now);
    int64_t shift = control->wall_shift_ns;
    if (result == 0 && shift != 0 && clock == CLOCK_REALTIME) {
        int64_t total = (int64_t)now->tv_sec * 1000000000 + now->tv_nsec + shift;
        now->tv_sec = total / 1000000000;
        now->tv_nsec = total % 1000000000;
    }
    return result;
}

int fdatasync(int file) {
    int error = misbehave();
    if (error) {
        errno = error;
        return -1;
    }
    return real_fdatasync(file);
}

int fsync(int file) {
    int error = misbehave();
    if (error) {
        errno = error;
        return -1;
    }
    return real_fsync(file);
}

static int no_space(int file, off_t offset, off_t size) {
    return control->space_errno ? (int)control->space_errno : real_posix_fallocate(file, offset, size);
}

int posix_fallocate(int file, off_t offset, off_t size) { return no_space(file, offset, size); }
int posix_fallocate64(int file, off_t offset, off_t size) { return no_space(file, offset, size); }

static ssize_t put(int file, const void *data, size_t size, off_t offset) {
    if (control->space_errno) {
        errno = (int)control->space_errno;
        return -1;
    }
    return real_pwrite(file, data, size, offset);
}

ssize_t pwrite(int file, const void *data, size_t size, off_t offset) { return put(file, data, size, offset); }
ssize_t pwrite64(int file, const void *data, size_t size, off_t offset) { return put(file, data, size, offset); }
