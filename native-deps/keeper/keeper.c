/*
 * cfs-keeper PROGRAM [ARGUMENT...]: starts the mounting process and keeps what must outlive it. That is the connection to the kernel, and
 * a memfd with the handover state (../fuse-kernel/handover.h). When the thread that answers the kernel ends, the keeper starts PROGRAM again, which
 * continues on the same connection. Programs in the mount wait meanwhile.
 *
 * A standby is a second process that has loaded the program and waits. It takes the place of the first one at its death, or as soon as
 * that hands over: an upgrade is a standby with another command. If that one ends before it answers the kernel, the former command is
 * started again.
 *
 * With a descriptor store of the service manager (systemd.service(5), FileDescriptorStoreMax=), the connection and the memory are there, too.
 * The next keeper of the service gets them, and continues after the death of this one.
 *
 * It knows nothing of FUSE. It ends with the exit code of the mounting process. After more than SHORT_LIVES_MAX processes in a row that served
 * for less than LIFE_MS each, it lets go: the kernel then ends the connection, as without a keeper. A standby ends when its socket does.
 */
#define _GNU_SOURCE
#include "../fuse-kernel/handover.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SHORT_LIVES_MAX 5
#define LIFE_MS 1000
/*
 * Descriptor 3 is where a mounting process answers the launcher (src/mount/launch.ts). Each of them inherits it: the first one may die before
 * its answer. It closes with the keeper.
 */
#define STORED_DEVICE 4 /* from the descriptor store, if CFS_KEEPER_STORED is set (src/mount/launch.ts) */
#define STORED_MEMORY 5
#define OWNER_SECONDS_MAX 10 /* for the death of the process that served under the keeper before this one */
#define COMMAND_MAX (1u << 20)
#define HIGH 10    /* descriptors of the keeper: above all that the mounting process inherits */

struct process {
  pid_t pid;      /* 0: none */
  int channel;    /* its messages; -1: none */
  char **command;
  bool is_waiting; /* a standby that has loaded the program */
  bool is_serving, is_ready, hands_over, has_ended;
  long long served_ms; /* monotonic: since when `is_serving` */
};

static struct process active = {.channel = -1}, standby = {.channel = -1};
static char **former; /* the command before an upgrade whose process is not ready yet; NULL: none */
static struct handover_page *page;
static int memory, device = -1, ownerless;
static unsigned generation, upgrades;
static bool let_go, is_stored;
static const char *manager = ""; /* where the service manager receives messages: sd_notify(3) */
static uint64_t serves, ends; /* how many mounting processes have held the mutex, and how many of them have released it */
static char **own_command;
static int stop_signal; /* SIGTERM and the like: also for a successor, because the mount is to end */
static unsigned short_lives; /* mounting processes in a row that served for less than LIFE_MS, or not at all */
static sem_t served; /* a mounting process holds the mutex */
static sigset_t mask, mask_before;

static void fail(const char *what) {
  fprintf(stderr, "cfs-keeper: %s: %s\n", what, strerror(errno));
  exit(1);
}

static int high(int fd, const char *what) {
  int copy = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, HIGH);
  if (copy < 0) fail(what);
  close(fd);
  return copy;
}

static long long ms_of(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* Sends a message to the service manager, with a descriptor unless `fd` is -1. Without a manager that listens, nothing is stored. */
static void notify(const char *text, int fd) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  size_t length = strlen(manager);
  if (length == 0 || length >= sizeof address.sun_path) return;
  memcpy(address.sun_path, manager, length);
  if (manager[0] == '@') address.sun_path[0] = 0;
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
  } control;
  memset(&control, 0, sizeof control);
  struct iovec iov = {(char *)text, strlen(text)};
  struct msghdr message = {.msg_name = &address, .msg_namelen = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length),
                           .msg_iov = &iov, .msg_iovlen = 1};
  if (fd >= 0) {
    message.msg_control = &control;
    message.msg_controllen = sizeof control.bytes;
    control.header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
  }
  int notifier = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (notifier >= 0 && sendmsg(notifier, &message, MSG_NOSIGNAL) < 0) perror("cfs-keeper: descriptor store");
  if (notifier >= 0) close(notifier);
}

static void store_descriptors(void) {
  if (is_stored) return;
  is_stored = true;
  notify("FDSTORE=1\nFDPOLL=0\nFDNAME=cfs-device", device);
  notify("FDSTORE=1\nFDPOLL=0\nFDNAME=cfs-memory", memory);
}

/* A connection in the store would outlive its mount: programs would wait permanently. */
static void forget_descriptors(void) {
  if (!is_stored) return;
  is_stored = false;
  notify("FDSTOREREMOVE=1\nFDNAME=cfs-device", -1);
  notify("FDSTOREREMOVE=1\nFDNAME=cfs-memory", -1);
}

static void leave(int code) {
  forget_descriptors();
  exit(code);
}

/* Waits for the end of each serving thread, whatever else its process still does. */
static void *watch(void *unused) {
  (void)unused;
  for (;;) {
    while (sem_wait(&served) != 0) continue;
    if (pthread_mutex_lock(&page->serving) == EOWNERDEAD) pthread_mutex_consistent(&page->serving);
    pthread_mutex_unlock(&page->serving);
    uint64_t one = 1;
    if (write(ownerless, &one, sizeof one) < 0) fail("eventfd");
  }
  return NULL;
}

/* Sends a line: to the process in service the outcome of its standby, to a standby its place. */
static void tell(struct process *process, const char *text) {
  if (process->channel >= 0) send(process->channel, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* The place of a process among those of its mount, for CFS_KEEPER or a line. `died_ms`: wall clock at the end of its predecessor. */
static void describe(char *text, size_t size, pid_t predecessor, long long died_ms) {
  snprintf(text, size, "%u %d %lld %u\n", generation, (int)predecessor, died_ms, upgrades);
}

/* Starts a mounting process. `place`: its place, or "standby". */
static struct process start(char **command, const char *place) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) fail("socketpair");
  struct process process = {.channel = high(ends[0], "socketpair"), .command = command};
  int theirs = high(ends[1], "socketpair");
  process.pid = fork();
  if (process.pid < 0) fail("fork");
  if (process.pid == 0) {
    setenv("CFS_KEEPER", place, 1);
    if (dup2(theirs, KEEPER_SOCKET) < 0 || dup2(theirs, KEEPER_LINE) < 0 || dup2(memory, KEEPER_MEMORY) < 0) _exit(126);
    if (device >= 0 && dup2(device, KEEPER_DEVICE) < 0) _exit(126);
    sigprocmask(SIG_SETMASK, &mask_before, NULL);
    execvp(command[0], command);
    fprintf(stderr, "cfs-keeper: %s: %s\n", command[0], strerror(errno));
    _exit(127);
  }
  close(theirs);
  return process;
}

static void drop_channel(struct process *process) {
  if (process->channel >= 0) close(process->channel);
  process->channel = -1;
}

/* The process that serves, or is to serve, from now on. */
static void take(struct process process) {
  active = process;
  page->generation = generation;
  page->upgrades = upgrades;
  page->pid = process.pid;
}

/* A copy is freed; the command of the keeper's own start lasts. */
static void free_command(char **command) {
  if (command == NULL || command == own_command) return;
  free(command[0]);
  free(command);
}

static void drop_standby(void) {
  if (standby.pid == 0) return;
  if (!standby.has_ended) kill(standby.pid, SIGKILL);
  drop_channel(&standby);
  if (standby.command != active.command) free_command(standby.command);
  standby = (struct process){.channel = -1};
}

static void drop_device(void) {
  if (device >= 0) close(device);
  device = -1;
}

/* The serving thread of the process in service has ended. */
static void restart(void) {
  pid_t predecessor = active.pid;
  if (active.hands_over) {
    upgrades++;
  } else {
    bool has_lived = active.is_serving && ms_of(CLOCK_MONOTONIC) - active.served_ms >= LIFE_MS;
    short_lives = has_lived ? 0 : short_lives + 1;
    bool is_limited = getenv("CFS_TEST_KEEPER_UNLIMITED") == NULL; /* tests kill it hundreds of times */
    if (is_limited && short_lives > SHORT_LIVES_MAX) {
      fprintf(stderr, "cfs-keeper: %u processes in a row ended within a second: no other is started\n", short_lives);
      leave(1); /* the descriptor of the connection goes with this process */
    }
  }
  generation++;
  fprintf(stderr, "cfs-keeper: the mount process %d has ended: generation %u\n", (int)predecessor, generation);
  char place[96];
  describe(place, sizeof place, predecessor, ms_of(CLOCK_REALTIME));
  drop_channel(&active);
  char **command = active.command;
  if (former != NULL) { /* the upgrade failed: not a process of the former version waits, but perhaps one of the failed one */
    drop_standby();
    free_command(command);
    command = former;
    former = NULL;
  }
  active.command = command;
  if (!standby.is_waiting) {
    drop_standby();
    take(start(command, place));
    return;
  }
  if (standby.command != command) former = command;
  take(standby);
  standby = (struct process){.channel = -1};
  tell(&active, place);
}

static void ended(int status) {
  int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (let_go || device < 0 || code == 0) leave(code);
  restart();
}

static void reap(void) {
  int status;
  pid_t pid;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
    if (pid == active.pid) {
      ended(status);
    } else if (pid == standby.pid) {
      standby.has_ended = true;
      drop_standby();
      tell(&active, "failed\n");
    }
  }
}

/* The command of a standby: its length, and as many bytes of strings with a zero byte each. NULL: none; the standby gets that of `active`. */
static char **read_command(int channel) {
  uint32_t length;
  if (recv(channel, &length, sizeof length, MSG_WAITALL) != sizeof length || length == 0 || length > COMMAND_MAX) return NULL;
  char *text = malloc(length);
  char **words = calloc(length + 1, sizeof *words); /* no word is shorter than its zero byte */
  if (text == NULL || words == NULL) fail("memory");
  if (recv(channel, text, length, MSG_WAITALL) != (ssize_t)length || text[length - 1] != 0) {
    free(text);
    free(words);
    return NULL;
  }
  for (uint32_t at = 0, count = 0; at < length; at += (uint32_t)strlen(text + at) + 1) words[count++] = text + at;
  return words;
}

static void prepare(void) {
  char **command = read_command(active.channel);
  drop_standby();
  standby = start(command != NULL ? command : active.command, "standby");
}

/* The messages of a process that have arrived. */
static void receive(struct process *process) {
  while (process->channel >= 0) {
    char byte;
    union {
      struct cmsghdr header;
      char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    memset(&control, 0, sizeof control);
    struct iovec iov = {&byte, 1};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t n = recvmsg(process->channel, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0 || (n < 0 && errno == ECONNRESET)) drop_channel(process); /* it ends: it is reaped, or its thread has ended */
    if (n <= 0) return;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header != NULL && header->cmsg_type == SCM_RIGHTS) {
      int fd;
      memcpy(&fd, CMSG_DATA(header), sizeof fd);
      drop_device();
      device = high(fd, "device");
      store_descriptors();
    }
    if (byte == KEEPER_SERVES) {
      process->is_serving = true;
      process->served_ms = ms_of(CLOCK_MONOTONIC);
      serves++;
      sem_post(&served);
    } else if (byte == KEEPER_READY) {
      process->is_ready = true;
      free_command(former);
      former = NULL;
      if (stop_signal != 0) kill(process->pid, stop_signal);
    } else if (byte == KEEPER_LETS_GO) {
      let_go = true;
      drop_device();
    } else if (byte == KEEPER_PREPARE && process == &active) {
      prepare();
    } else if (byte == KEEPER_WAITS && process == &standby) {
      standby.is_waiting = true;
      tell(&active, "waits\n");
    } else if (byte == KEEPER_HANDS_OVER) {
      process->hands_over = true;
    }
  }
}

static void on_signal(int number) {
  if (number == SIGCHLD) {
    receive(&active); /* it may have let go as its last act */
    reap();
    return;
  }
  stop_signal = number;
  if (active.is_ready || let_go) kill(active.pid, number);
  else if (device < 0) kill(active.pid, SIGKILL); /* it has not mounted yet */
}

static void map_page(void) {
  page = mmap(NULL, HANDOVER_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  if (page == MAP_FAILED) fail("mmap");
}

/* Continues with the connection and the memory of an earlier keeper. @returns false if they are those of another mount, or the mount is gone */
static bool adopt(const char *identity) {
  struct stat found;
  struct pollfd connection = {device, 0, 0};
  if (fstat(memory, &found) != 0 || found.st_size <= (off_t)HANDOVER_PAGE) return false;
  map_page();
  bool is_same = strncmp(page->identity, identity, IDENTITY_BYTES) == 0;
  if (!is_same || poll(&connection, 1, 0) < 0 || (connection.revents & (POLLERR | POLLNVAL)) != 0) {
    munmap(page, HANDOVER_PAGE);
    return false;
  }
  /* The manager kills the process of the earlier keeper, which may be in a system call. Two processes must not read one connection. */
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += OWNER_SECONDS_MAX;
  int failure = pthread_mutex_trylock(&page->serving);
  if (failure == EBUSY) failure = pthread_mutex_timedlock(&page->serving, &until);
  if (failure == EOWNERDEAD) failure = pthread_mutex_consistent(&page->serving);
  errno = failure;
  if (failure != 0) fail("an earlier process still serves the mount");
  pthread_mutex_unlock(&page->serving);
  generation = page->generation + 1;
  upgrades = page->upgrades;
  is_stored = true;
  return true;
}

static void create_memory(const char *identity) {
  memory = high(memfd_create("cfs-handover", MFD_CLOEXEC), "memfd_create");
  if (ftruncate(memory, HANDOVER_PAGE) != 0) fail("memfd");
  map_page();
  strncpy(page->identity, identity, IDENTITY_BYTES - 1);
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&page->serving, &attributes);
}

/* A variable for the keeper alone. */
static const char *own_variable(const char *name) {
  const char *value = getenv(name);
  const char *copy = value == NULL ? "" : strdup(value);
  unsetenv(name);
  return copy;
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: cfs-keeper PROGRAM [ARGUMENT...]; cfs-mount --continuity starts it\n");
    return 2;
  }
  own_command = argv + 1;
  sigemptyset(&mask);
  for (int *each = (int[]){SIGCHLD, SIGTERM, SIGINT, SIGHUP, 0}; *each != 0; each++) sigaddset(&mask, *each);
  sigprocmask(SIG_BLOCK, &mask, &mask_before);
  signal(SIGPIPE, SIG_IGN);
  const char *identity = own_variable("CFS_KEEPER_IDENTITY");
  manager = own_variable("CFS_KEEPER_MANAGER");
  bool has_stored = *own_variable("CFS_KEEPER_STORED") != 0;
  if (has_stored) {
    device = high(STORED_DEVICE, "device");
    memory = high(STORED_MEMORY, "memory");
  }
  if (has_stored && !adopt(identity)) {
    is_stored = true;
    forget_descriptors();
    drop_device();
    close(memory);
    has_stored = false;
  }
  if (!has_stored) create_memory(identity);
  int signals = high(signalfd(-1, &mask, SFD_CLOEXEC), "signalfd");
  ownerless = high(eventfd(0, EFD_CLOEXEC), "eventfd");
  pthread_t watcher;
  if (sem_init(&served, 0, 0) != 0 || pthread_create(&watcher, NULL, watch, NULL) != 0) fail("thread");
  char place[96];
  describe(place, sizeof place, has_stored ? page->pid : 0, has_stored ? ms_of(CLOCK_REALTIME) : 0);
  take(start(own_command, place));
  for (;;) {
    struct pollfd polled[4] = {{signals, POLLIN, 0}, {ownerless, POLLIN, 0}, {active.channel, POLLIN, 0}, {standby.channel, POLLIN, 0}};
    if (poll(polled, 4, -1) < 0) continue;
    if (polled[3].revents != 0) receive(&standby);
    if (polled[2].revents != 0) receive(&active);
    if (polled[1].revents != 0) {
      uint64_t count;
      if (read(ownerless, &count, sizeof count) < 0) continue;
      ends += count;
      receive(&active);
      if (let_go || !active.is_serving || ends < serves) continue; /* an earlier process, which was reaped meanwhile */
      kill(active.pid, SIGKILL);
      restart();
      continue;
    }
    if (polled[0].revents != 0) {
      struct signalfd_siginfo information;
      if (read(signals, &information, sizeof information) == sizeof information) on_signal((int)information.ssi_signo);
    }
  }
}
