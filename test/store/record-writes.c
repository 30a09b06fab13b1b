/*
 * LD_PRELOAD: writes down everything a process does to the files below RECORD_ROOT, into RECORD_LOG, for simulated power cuts
 * (power-cut.mount.test.ts). An event is logged after its call returned; a sync also before it begins, because it covers only
 * what was written by then.
 *
 * event: type u8 · flags u8 · length of the payload u32 · inode u64 · offset u64 · payload
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPENED = 1, WROTE, SYNC_BEGINS, SYNC_ENDED, RENAMED, REMOVED, MADE_DIRECTORY, CUT_TO, PUNCHED, LINKED };

#define FDS 65536
static uint64_t inode_of[FDS];
static unsigned char is_dsync[FDS];
static int log_fd = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
static ssize_t (*real_write)(int, const void *, size_t);

__attribute__((constructor)) static void begin(void) {
  real_write = REAL(write);
  const char *r = getenv("RECORD_ROOT"), *l = getenv("RECORD_LOG");
  if (r == NULL || l == NULL) return;
  snprintf(root, sizeof root, "%s/", r);
  log_fd = REAL(open)(l, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static void put(const void *bytes, size_t length) {
  const char *at = bytes;
  while (length > 0) {
    ssize_t n = real_write(log_fd, at, length);
    if (n <= 0) abort();
    at += n;
    length -= (size_t)n;
  }
}

static void event(uint8_t type, uint8_t flags, uint64_t inode, uint64_t offset, const struct iovec *parts, int count) {
  uint32_t length = 0;
  unsigned char head[22];
  for (int i = 0; i < count; i++) length += (uint32_t)parts[i].iov_len;
  head[0] = type;
  head[1] = flags;
  memcpy(head + 2, &length, 4);
  memcpy(head + 6, &inode, 8);
  memcpy(head + 14, &offset, 8);
  pthread_mutex_lock(&lock);
  put(head, sizeof head);
  for (int i = 0; i < count; i++) put(parts[i].iov_base, parts[i].iov_len);
  pthread_mutex_unlock(&lock);
}

static int below_root(const char *path) { return log_fd >= 0 && strncmp(path, root, strlen(root)) == 0; }
static int tracked(int fd) { return fd >= 0 && fd < FDS && inode_of[fd] != 0; }

static int opened(int fd, const char *path, int flags, int existed) {
  if (fd < 0 || fd >= FDS) return fd;
  inode_of[fd] = 0;
  if (!below_root(path)) return fd;
  struct stat st;
  if (fstat(fd, &st) != 0) return fd;
  inode_of[fd] = st.st_ino;
  is_dsync[fd] = (flags & O_DSYNC) != 0;
  struct iovec name = {(void *)path, strlen(path)};
  event(OPENED, (uint8_t)((existed ? 0 : 1) | (flags & O_TRUNC ? 2 : 0)), st.st_ino, 0, &name, 1);
  return fd;
}

static int open_any(const char *path, int flags, mode_t mode) {
  int existed = access(path, F_OK) == 0;
  return opened(REAL(open)(path, flags, mode), path, flags, existed);
}

#define MODE_OF(flags) \
  mode_t mode = 0; \
  if ((flags) & (O_CREAT | __O_TMPFILE)) { \
    va_list args; \
    va_start(args, flags); \
    mode = va_arg(args, mode_t); \
    va_end(args); \
  }
int open(const char *path, int flags, ...) { MODE_OF(flags) return open_any(path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE_OF(flags) return open_any(path, flags, mode); }

int close(int fd) {
  if (fd >= 0 && fd < FDS) inode_of[fd] = 0;
  return REAL(close)(fd);
}

static ssize_t wrote(int fd, const void *bytes, off_t offset, ssize_t n) {
  if (n > 0 && tracked(fd)) {
    struct iovec part = {(void *)bytes, (size_t)n};
    event(WROTE, is_dsync[fd], inode_of[fd], (uint64_t)offset, &part, 1);
  }
  return n;
}

ssize_t write(int fd, const void *bytes, size_t length) {
  if (!tracked(fd)) return real_write(fd, bytes, length);
  off_t offset = lseek(fd, 0, SEEK_CUR);
  return wrote(fd, bytes, offset, real_write(fd, bytes, length));
}
ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) {
  return wrote(fd, bytes, offset, REAL(pwrite)(fd, bytes, length, offset));
}
ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) {
  return wrote(fd, bytes, offset, REAL(pwrite64)(fd, bytes, length, offset));
}
static ssize_t wrote_parts(int fd, const struct iovec *parts, int count, off_t offset, ssize_t n) {
  for (int i = 0; i < count && n > 0; i++) {
    ssize_t length = (ssize_t)parts[i].iov_len < n ? (ssize_t)parts[i].iov_len : n;
    wrote(fd, parts[i].iov_base, offset, length);
    offset += length;
    n -= length;
  }
  return n;
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
  ssize_t n = REAL(pwritev)(fd, parts, count, offset);
  wrote_parts(fd, parts, count, offset, n);
  return n;
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset) {
  ssize_t n = REAL(pwritev64)(fd, parts, count, offset);
  wrote_parts(fd, parts, count, offset, n);
  return n;
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
  off_t offset = tracked(fd) ? lseek(fd, 0, SEEK_CUR) : 0;
  ssize_t n = REAL(writev)(fd, parts, count);
  wrote_parts(fd, parts, count, offset, n);
  return n;
}

static int synced(int fd, int (*sync)(int)) {
  if (!tracked(fd)) return sync(fd);
  uint64_t inode = inode_of[fd];
  event(SYNC_BEGINS, 0, inode, 0, NULL, 0);
  int result = sync(fd);
  if (result == 0) event(SYNC_ENDED, 0, inode, 0, NULL, 0);
  return result;
}
int fsync(int fd) { return synced(fd, REAL(fsync)); }
int fdatasync(int fd) { return synced(fd, REAL(fdatasync)); }

int ftruncate(int fd, off_t length) {
  int result = REAL(ftruncate)(fd, length);
  if (result == 0 && tracked(fd)) event(CUT_TO, 0, inode_of[fd], (uint64_t)length, NULL, 0);
  return result;
}
int ftruncate64(int fd, off64_t length) { return ftruncate(fd, length); }

static int allocated(int fd, int mode, off_t offset, off_t length, int result) {
  if (result == 0 && tracked(fd) && (mode & FALLOC_FL_PUNCH_HOLE)) {
    struct iovec part = {&length, sizeof length};
    event(PUNCHED, 0, inode_of[fd], (uint64_t)offset, &part, 1);
  }
  return result;
}
int fallocate(int fd, int mode, off_t offset, off_t length) {
  return allocated(fd, mode, offset, length, REAL(fallocate)(fd, mode, offset, length));
}
int fallocate64(int fd, int mode, off64_t offset, off64_t length) {
  return allocated(fd, mode, offset, length, REAL(fallocate64)(fd, mode, offset, length));
}

static void named(uint8_t type, const char *path, const char *other) {
  struct iovec parts[3] = {{(void *)path, strlen(path)}, {(void *)"", 1}, {(void *)other, strlen(other)}};
  if (below_root(path)) event(type, 0, 0, 0, parts, 3);
}
int rename(const char *from, const char *to) {
  int result = REAL(rename)(from, to);
  if (result == 0) named(RENAMED, from, to);
  return result;
}
int unlink(const char *path) {
  int result = REAL(unlink)(path);
  if (result == 0) named(REMOVED, path, "");
  return result;
}
int link(const char *from, const char *to) {
  int result = REAL(link)(from, to);
  if (result == 0) named(LINKED, from, to);
  return result;
}
int mkdir(const char *path, mode_t mode) {
  int result = REAL(mkdir)(path, mode);
  if (result == 0) named(MADE_DIRECTORY, path, "");
  return result;
}
