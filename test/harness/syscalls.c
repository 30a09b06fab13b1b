/*
 * A process that makes system calls on request: what Node cannot call by itself (xattrs, fallocate, lseek, mmap, renameat2,
 * O_TMPFILE, umask, directory streams), and a process of its own, so that the test never touches a mount from the process
 * that may have to answer it.
 *
 *   syscalls DIR [UID GID]     works in DIR, as that user if given
 *
 * One request per line on standard input, its words separated by single spaces: the name of the call and its arguments.
 * Numbers are decimal; paths and bytes are hexadecimal, `-` when empty. One answer per line on standard output:
 * `+ word...` or `! errno`. Ends at end of input.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/fs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#define SLOTS_MAX 256
#define WORDS_MAX 12

static struct { unsigned char *at; size_t length; } maps[SLOTS_MAX];
static DIR *streams[SLOTS_MAX];

static char *words[WORDS_MAX];
static int word_count;
static char *scratch[WORDS_MAX]; /* decoded strings of this request */

static long long number(int i) { return i < word_count ? strtoll(words[i], NULL, 10) : 0; }

static int nibble(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

/* The bytes of word i, with a NUL behind them. */
static unsigned char *bytes(int i, size_t *length) {
  const char *hex = i < word_count ? words[i] : "-";
  size_t n = hex[0] == '-' ? 0 : strlen(hex) / 2;
  unsigned char *out = malloc(n + 1);
  for (size_t k = 0; k < n; k++) out[k] = (unsigned char)(nibble(hex[2 * k]) << 4 | nibble(hex[2 * k + 1]));
  out[n] = 0;
  if (length) *length = n;
  free(scratch[i]);
  scratch[i] = (char *)out;
  return out;
}

static const char *text(int i) { return (const char *)bytes(i, NULL); }

static void put_hex(const void *data, size_t length) {
  static const char digits[] = "0123456789abcdef";
  const unsigned char *p = data;
  if (length == 0) putchar('-');
  for (size_t k = 0; k < length; k++) {
    putchar(digits[p[k] >> 4]);
    putchar(digits[p[k] & 15]);
  }
}

static void answer_errno(void) { printf("! %d\n", errno); }

static void answer_number(long long result) {
  if (result < 0) answer_errno();
  else printf("+ %lld\n", result);
}

static void answer_bytes(ssize_t length, const void *data) {
  if (length < 0) return answer_errno();
  fputs("+ ", stdout);
  put_hex(data, (size_t)length);
  putchar('\n');
}

static void answer_stat(int result, const struct stat *s) {
  if (result < 0) return answer_errno();
  printf("+ %u %llu %lu %u %u %lld %lld %lld %ld %lld %ld %lld %ld %llu\n", s->st_mode, (unsigned long long)s->st_ino,
         (unsigned long)s->st_nlink, s->st_uid, s->st_gid, (long long)s->st_size, (long long)s->st_blocks,
         (long long)s->st_atim.tv_sec, s->st_atim.tv_nsec, (long long)s->st_mtim.tv_sec, s->st_mtim.tv_nsec,
         (long long)s->st_ctim.tv_sec, s->st_ctim.tv_nsec, (unsigned long long)s->st_dev);
}

static struct timespec moment(int i) {
  struct timespec t = {.tv_sec = 0, .tv_nsec = 0};
  if (strcmp(words[i], "now") == 0) t.tv_nsec = UTIME_NOW;
  else if (strcmp(words[i], "omit") == 0) t.tv_nsec = UTIME_OMIT;
  else sscanf(words[i], "%ld.%ld", &t.tv_sec, &t.tv_nsec);
  return t;
}

static int free_slot_of_maps(void) {
  for (int i = 0; i < SLOTS_MAX; i++) if (maps[i].at == NULL) return i;
  errno = ENOMEM;
  return -1;
}

static int free_slot_of_streams(void) {
  for (int i = 0; i < SLOTS_MAX; i++) if (streams[i] == NULL) return i;
  errno = EMFILE;
  return -1;
}

/* Up to `max` entries of a stream as name:inode:type; an empty answer is the end. */
static void answer_entries(DIR *stream, long long max) {
  errno = 0;
  struct dirent *entry = readdir(stream);
  if (entry == NULL && errno != 0) return answer_errno();
  putchar('+');
  for (long long n = 1; entry != NULL; n++) {
    putchar(' ');
    put_hex(entry->d_name, strlen(entry->d_name));
    printf(":%llu:%u", (unsigned long long)entry->d_ino, entry->d_type);
    if (n == max) break;
    entry = readdir(stream);
  }
  putchar('\n');
}

static void perform(void) {
  const char *call = words[0];
  struct stat s;
  size_t length;
#define IS(name) (strcmp(call, name) == 0)
  if (IS("open")) return answer_number(open(text(1), (int)number(2), (mode_t)number(3)));
  if (IS("close")) return answer_number(close((int)number(1)));
  if (IS("dup")) return answer_number(dup((int)number(1)));
  if (IS("pread") || IS("read")) {
    size_t wanted = (size_t)number(IS("pread") ? 3 : 2);
    void *buffer = malloc(wanted + 1);
    ssize_t n = IS("pread") ? pread((int)number(1), buffer, wanted, (off_t)number(2)) : read((int)number(1), buffer, wanted);
    answer_bytes(n, buffer);
    return free(buffer);
  }
  if (IS("pwrite")) {
    void *data = bytes(3, &length);
    return answer_number(pwrite((int)number(1), data, length, (off_t)number(2)));
  }
  if (IS("write")) {
    void *data = bytes(2, &length);
    return answer_number(write((int)number(1), data, length));
  }
  if (IS("lseek")) return answer_number(lseek((int)number(1), (off_t)number(2), (int)number(3)));
  if (IS("ftruncate")) return answer_number(ftruncate((int)number(1), (off_t)number(2)));
  if (IS("truncate")) return answer_number(truncate(text(1), (off_t)number(2)));
  if (IS("fsync")) return answer_number(fsync((int)number(1)));
  if (IS("fdatasync")) return answer_number(fdatasync((int)number(1)));
  if (IS("fallocate")) return answer_number(fallocate((int)number(1), (int)number(2), (off_t)number(3), (off_t)number(4)));
  if (IS("copyrange")) {
    off_t from = (off_t)number(2), to = (off_t)number(4);
    return answer_number(copy_file_range((int)number(1), &from, (int)number(3), &to, (size_t)number(5), 0));
  }
  if (IS("flock")) return answer_number(flock((int)number(1), (int)number(2)));
  if (IS("setlk")) {
    struct flock lock = {.l_type = (short)number(2), .l_whence = SEEK_SET, .l_start = (off_t)number(3), .l_len = (off_t)number(4)};
    return answer_number(fcntl((int)number(1), F_SETLK, &lock));
  }
  if (IS("stat")) { int r = stat(text(1), &s); return answer_stat(r, &s); }
  if (IS("lstat")) { int r = lstat(text(1), &s); return answer_stat(r, &s); }
  if (IS("fstat")) { int r = fstat((int)number(1), &s); return answer_stat(r, &s); }
  if (IS("statfs")) {
    struct statvfs f;
    if (statvfs(text(1), &f) < 0) return answer_errno();
    printf("+ %lu %lu %llu %llu %llu %llu %llu %lu\n", f.f_bsize, f.f_frsize, (unsigned long long)f.f_blocks,
           (unsigned long long)f.f_bfree, (unsigned long long)f.f_bavail, (unsigned long long)f.f_files,
           (unsigned long long)f.f_ffree, f.f_namemax);
    return;
  }
  if (IS("access")) return answer_number(access(text(1), (int)number(2)));
  if (IS("mkdir")) return answer_number(mkdir(text(1), (mode_t)number(2)));
  if (IS("mknod")) return answer_number(mknod(text(1), (mode_t)number(2), makedev(1, 3)));
  if (IS("rmdir")) return answer_number(rmdir(text(1)));
  if (IS("unlink")) return answer_number(unlink(text(1)));
  if (IS("rename")) return answer_number(renameat2(AT_FDCWD, text(1), AT_FDCWD, text(2), (unsigned)number(3)));
  if (IS("link")) return answer_number(link(text(1), text(2)));
  if (IS("linkopen")) {
    char open_file[64];
    snprintf(open_file, sizeof open_file, "/proc/self/fd/%d", (int)number(1));
    return answer_number(linkat(AT_FDCWD, open_file, AT_FDCWD, text(2), AT_SYMLINK_FOLLOW));
  }
  if (IS("bind")) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", text(1));
    return answer_number(bind(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), (struct sockaddr *)&address, sizeof address));
  }
  if (IS("setflags")) {
    int flags = (int)number(2);
    return answer_number(ioctl((int)number(1), FS_IOC_SETFLAGS, &flags));
  }
  if (IS("getflags")) {
    int flags = 0;
    return answer_number(ioctl((int)number(1), FS_IOC_GETFLAGS, &flags) < 0 ? -1 : flags);
  }
  if (IS("symlink")) return answer_number(symlink(text(1), text(2)));
  if (IS("readlink")) {
    char target[8192];
    ssize_t n = readlink(text(1), target, sizeof target);
    return answer_bytes(n, target);
  }
  if (IS("chmod")) return answer_number(chmod(text(1), (mode_t)number(2)));
  if (IS("fchmod")) return answer_number(fchmod((int)number(1), (mode_t)number(2)));
  if (IS("chown")) return answer_number(lchown(text(1), (uid_t)number(2), (gid_t)number(3)));
  if (IS("utimens") || IS("lutimens")) {
    struct timespec times[2] = {moment(2), moment(3)};
    return answer_number(utimensat(AT_FDCWD, text(1), times, IS("lutimens") ? AT_SYMLINK_NOFOLLOW : 0));
  }
  if (IS("futimens")) {
    struct timespec times[2] = {moment(2), moment(3)};
    return answer_number(futimens((int)number(1), times));
  }
  if (IS("setxattr")) {
    void *value = bytes(3, &length);
    return answer_number(lsetxattr(text(1), text(2), value, length, (int)number(4)));
  }
  if (IS("getxattr")) {
    size_t capacity = (size_t)number(3);
    void *value = malloc(capacity + 1);
    ssize_t n = lgetxattr(text(1), text(2), capacity == 0 ? NULL : value, capacity);
    if (capacity == 0) answer_number(n); /* the length alone was asked for */
    else answer_bytes(n, value);
    return free(value);
  }
  if (IS("listxattr")) {
    char names[65536];
    ssize_t n = llistxattr(text(1), names, sizeof names);
    return answer_bytes(n, names);
  }
  if (IS("removexattr")) return answer_number(lremovexattr(text(1), text(2)));
  if (IS("umask")) return answer_number(umask((mode_t)number(1)));
  if (IS("mmap")) {
    int slot = free_slot_of_maps();
    if (slot < 0) return answer_errno();
    void *at = mmap(NULL, (size_t)number(3), (int)number(4), (int)number(5), (int)number(1), (off_t)number(2));
    if (at == MAP_FAILED) return answer_errno();
    maps[slot].at = at;
    maps[slot].length = (size_t)number(3);
    return answer_number(slot);
  }
  if (IS("peek")) return answer_bytes((ssize_t)number(3), maps[number(1)].at + number(2));
  if (IS("poke")) {
    void *data = bytes(3, &length);
    memcpy(maps[number(1)].at + number(2), data, length);
    return answer_number((long long)length);
  }
  if (IS("msync")) return answer_number(msync(maps[number(1)].at, maps[number(1)].length, MS_SYNC));
  if (IS("munmap")) {
    int r = munmap(maps[number(1)].at, maps[number(1)].length);
    maps[number(1)].at = NULL;
    return answer_number(r);
  }
  if (IS("opendir") || IS("opendirat")) {
    int slot = free_slot_of_streams();
    int folder = IS("opendir") ? open(text(1), O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                               : openat((int)number(1), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = slot < 0 || folder < 0 ? NULL : fdopendir(folder);
    if (stream == NULL) return answer_errno();
    streams[slot] = stream;
    return answer_number(slot);
  }
  if (IS("readdir")) return answer_entries(streams[number(1)], number(2));
  if (IS("telldir")) return answer_number(telldir(streams[number(1)]));
  if (IS("seekdir")) { seekdir(streams[number(1)], (long)number(2)); return answer_number(0); }
  if (IS("rewinddir")) { rewinddir(streams[number(1)]); return answer_number(0); }
  if (IS("closedir")) {
    int r = closedir(streams[number(1)]);
    streams[number(1)] = NULL;
    return answer_number(r);
  }
  errno = ENOSYS;
  answer_errno();
}

int main(int argc, char **argv) {
  if (argc < 2 || chdir(argv[1]) < 0) {
    perror(argc < 2 ? "usage: syscalls DIR [UID GID]" : argv[1]);
    return 1;
  }
  if (argc >= 4) {
    gid_t gid = (gid_t)atoi(argv[3]);
    if (setgroups(0, NULL) < 0 || setgid(gid) < 0 || setuid((uid_t)atoi(argv[2])) < 0) {
      perror("syscalls: cannot become another user");
      return 1;
    }
  }
  umask(022);
  char *line = NULL;
  size_t capacity = 0;
  while (getline(&line, &capacity, stdin) > 0) {
    line[strcspn(line, "\n")] = 0;
    word_count = 0;
    for (char *word = strtok(line, " "); word != NULL && word_count < WORDS_MAX; word = strtok(NULL, " ")) words[word_count++] = word;
    if (word_count > 0) perform();
    fflush(stdout);
  }
  return 0;
}
