/*
 * cfs-announcer PARENT: repeats in a mount what other machines did, one call at a time, so that the kernel reports it to inotify(7). The
 * mount answers each call as already done (src/mount/watchers).
 *
 * A call comes from standard input: its length (uint32), then texts that end with NUL: operation, device (MAJOR:MINOR), path and inode of a
 * folder, a name, path and inode of a second folder, a second name, and a time (SECONDS.NANOSECONDS). The reply is an errno (int32).
 *
 * A call is made relative to a folder that is known to be the right one: by its device and inode. A path may meanwhile lead elsewhere, for
 * example below the mount after an unmount. Between two calls nothing of the mount is in use, so that it can be unmounted. No file is opened.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

enum { OPERATION, DEVICE, FOLDER, INODE, NAME, FOLDER2, INODE2, NAME2, TIME, FIELDS };

#define CALL_BYTES_MAX (64 * 1024)

static bool read_all(void *bytes, size_t length) {
  for (size_t done = 0; done < length;) {
    ssize_t count = read(STDIN_FILENO, (char *)bytes + done, length - done);
    if (count > 0) done += (size_t)count;
    else if (count == 0 || errno != EINTR) return false;
  }
  return true;
}

/* Whether this is the folder with that inode, on that device. */
static bool is_folder(const struct stat *found, const char *device, const char *inode) {
  char own[32];
  snprintf(own, sizeof own, "%u:%u", major(found->st_dev), minor(found->st_dev));
  return strcmp(own, device) == 0 && found->st_ino == strtoull(inode, NULL, 10) && S_ISDIR(found->st_mode);
}

static int move(char *const *field) {
  /* Of a second folder there is no working directory. O_PATH opens nothing. */
  int folder = open(field[FOLDER2], O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return errno;
  struct stat found;
  int result = ESTALE;
  if (fstat(folder, &found) == 0 && is_folder(&found, field[DEVICE], field[INODE2]))
    result = renameat2(AT_FDCWD, field[NAME], folder, field[NAME2], RENAME_NOREPLACE) < 0 ? errno : 0;
  close(folder);
  return result;
}

/* Only the modification time: an IN_MODIFY, and no write access, with which the start of a program fails (ETXTBSY). */
static int touch(char *const *field) {
  char *rest;
  struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = strtoll(field[TIME], &rest, 10)}};
  times[1].tv_nsec = *rest == '.' ? strtol(rest + 1, NULL, 10) : 0;
  return utimensat(AT_FDCWD, field[NAME], times, AT_SYMLINK_NOFOLLOW) < 0 ? errno : 0;
}

static int perform(char *const *field) {
  const char *operation = field[OPERATION], *name = field[NAME];
  struct stat found;
  if (chdir(field[FOLDER]) < 0 || stat(".", &found) < 0) return errno;
  if (!is_folder(&found, field[DEVICE], field[INODE])) return ESTALE;
  if (strcmp(operation, "look") == 0) return lstat(name, &found) < 0 ? errno : 0;
  if (strcmp(operation, "mknod") == 0) return mknod(name, S_IFREG | 0600, 0) < 0 ? errno : 0;
  if (strcmp(operation, "mkdir") == 0) return mkdir(name, 0700) < 0 ? errno : 0;
  if (strcmp(operation, "unlink") == 0) return unlink(name) < 0 ? errno : 0;
  if (strcmp(operation, "rmdir") == 0) return rmdir(name) < 0 ? errno : 0;
  if (strcmp(operation, "touch") == 0) return touch(field);
  if (strcmp(operation, "rename") == 0 && strcmp(field[FOLDER], field[FOLDER2]) != 0) return move(field);
  if (strcmp(operation, "rename") == 0)
    return renameat2(AT_FDCWD, name, AT_FDCWD, field[NAME2], RENAME_NOREPLACE) < 0 ? errno : 0;
  return ENOSYS;
}

int main(int argc, char **argv) {
  /* The calls belong to the thread that answers them: never to a later mount in the same place. */
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (argc != 2 || getppid() != atoi(argv[1])) return 1;
  syscall(SYS_close_range, 3, ~0U, 0);
  umask(0);
  static char call[CALL_BYTES_MAX + 1];
  for (;;) {
    if (chdir("/") < 0) return 1;
    uint32_t length;
    if (!read_all(&length, sizeof length)) return 0;
    if (length > CALL_BYTES_MAX || !read_all(call, length)) return 1;
    call[length] = '\0';
    char *field[FIELDS], *at = call;
    for (int i = 0; i < FIELDS; i++) {
      if (at >= call + length) return 1;
      field[i] = at;
      at += strlen(at) + 1;
    }
    int32_t result = perform(field);
    if (chdir("/") < 0) return 1; /* before the reply: then nothing of the mount is in use */
    if (write(STDOUT_FILENO, &result, sizeof result) != sizeof result) return 1;
  }
}
