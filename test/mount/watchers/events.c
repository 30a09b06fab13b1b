/*
 * events inotify PATH...: prints `ready`, then a line for each event of inotify(7): number of the path, events, name.
 * events fanotify PATH: the same by fanotify(7), for the mount of the path: events only.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <unistd.h>

static const struct { uint32_t bit; const char *name; } NAMES[] = {
  {IN_CREATE, "CREATE"}, {IN_DELETE, "DELETE"}, {IN_MODIFY, "MODIFY"}, {IN_ATTRIB, "ATTRIB"},
  {IN_MOVED_FROM, "MOVED_FROM"}, {IN_MOVED_TO, "MOVED_TO"}, {IN_CLOSE_WRITE, "CLOSE_WRITE"},
  {IN_OPEN, "OPEN"}, {IN_DELETE_SELF, "DELETE_SELF"}, {IN_MOVE_SELF, "MOVE_SELF"}, {IN_ISDIR, "ISDIR"}, {IN_Q_OVERFLOW, "OVERFLOW"},
};
/* Not the opening and reading of folders, which `ls` does too. */
#define WATCHED (IN_CREATE | IN_DELETE | IN_MODIFY | IN_ATTRIB | IN_MOVE | IN_CLOSE_WRITE | IN_DELETE_SELF | IN_MOVE_SELF)

static char buffer[1 << 16] __attribute__((aligned(8)));

static int by_inotify(int count, char **paths) {
  int watches[64], fd = inotify_init1(IN_CLOEXEC);
  for (int i = 0; i < count; i++)
    if ((watches[i] = inotify_add_watch(fd, paths[i], WATCHED)) < 0) return perror(paths[i]), 1;
  printf("ready\n");
  for (ssize_t length; (length = read(fd, buffer, sizeof buffer)) > 0; fflush(stdout))
    for (char *at = buffer; at < buffer + length;) {
      struct inotify_event *event = (struct inotify_event *)at;
      at += sizeof *event + event->len;
      if (event->mask & IN_IGNORED) continue;
      int which = 0;
      while (which < count && watches[which] != event->wd) which++;
      printf("%d", which);
      for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (event->mask & NAMES[i].bit) printf(" %s", NAMES[i].name);
      printf(" %s\n", event->len > 0 ? event->name : ".");
    }
  return 1;
}

static int by_fanotify(const char *path) {
  int fd = fanotify_init(FAN_CLASS_NOTIF | FAN_CLOEXEC, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || fanotify_mark(fd, FAN_MARK_ADD | FAN_MARK_MOUNT, FAN_OPEN | FAN_ACCESS | FAN_MODIFY | FAN_CLOSE_WRITE, AT_FDCWD, path) < 0)
    return perror("fanotify"), 1;
  printf("ready\n");
  for (ssize_t length; (length = read(fd, buffer, sizeof buffer)) > 0; fflush(stdout)) {
    struct fanotify_event_metadata *event = (struct fanotify_event_metadata *)buffer;
    for (; FAN_EVENT_OK(event, length); event = FAN_EVENT_NEXT(event, length)) {
      printf("0 %s%s%s%s\n", event->mask & FAN_OPEN ? "OPEN " : "", event->mask & FAN_ACCESS ? "ACCESS " : "",
             event->mask & FAN_MODIFY ? "MODIFY " : "", event->mask & FAN_CLOSE_WRITE ? "CLOSE_WRITE" : "");
      if (event->fd >= 0) close(event->fd);
    }
  }
  return 1;
}

int main(int argc, char **argv) {
  setlinebuf(stdout);
  if (argc > 2 && strcmp(argv[1], "inotify") == 0) return by_inotify(argc - 2, argv + 2);
  if (argc == 3 && strcmp(argv[1], "fanotify") == 0) return by_fanotify(argv[2]);
  return 2;
}
