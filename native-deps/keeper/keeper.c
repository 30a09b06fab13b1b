/*
 * cfs-keeper PROGRAM [ARGUMENT...]: starts the mounting process and keeps what must outlive it. That is the connection to the kernel, and
 * a memfd with the handover state (../fuse-kernel/handover.h). When the thread that answers the kernel ends, the keeper starts PROGRAM again, which
 * continues on the same connection. Programs in the mount wait meanwhile.
 *
 * A standby is a second process that has loaded the program and waits. It takes the place of the first one at its death, or as soon as
 * that hands over: an upgrade is a standby with another command. If that one ends before it answers the kernel, the former command is
 * started again.
 *
 * It knows nothing of FUSE. It ends with the exit code of the mounting process. After more than DEATHS_MAX deaths in a minute it lets go:
 * the kernel then ends the connection, as without a keeper. A standby ends when its socket does.
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
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DEATHS_MAX 5
#define DEATHS_MS 60000
#define READY_FD 3 /* where the first mounting process answers the launcher (src/mount/launch.ts) */
#define COMMAND_MAX (1u << 20)
#define HIGH 10    /* descriptors of the keeper: above all that the mounting process inherits */

struct process {
  pid_t pid;      /* 0: none */
  int channel;    /* its messages; -1: none */
  char **command;
  bool is_waiting; /* a standby that has loaded the program */
  bool is_serving, is_ready, hands_over, has_ended;
};

static struct process active = {.channel = -1}, standby = {.channel = -1};
static char **former; /* the command before an upgrade whose process is not ready yet; NULL: none */
static struct handover_page *page;
static int memory, device = -1, ownerless;
static unsigned generation, upgrades;
static bool let_go;
static uint64_t serves, ends; /* how many mounting processes have held the mutex, and how many of them have released it */
static char **own_command;
static int stop_signal; /* SIGTERM and the like: also for a successor, because the mount is to end */
static long long deaths[DEATHS_MAX + 1];
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
    if (device >= 0) unsetenv("CFS_MOUNT_READY_FD");
    if (dup2(theirs, KEEPER_SOCKET) < 0 || dup2(theirs, KEEPER_LINE) < 0 || dup2(memory, KEEPER_MEMORY) < 0) _exit(126);
    if (device >= 0 && dup2(device, KEEPER_DEVICE) < 0) _exit(126);
    sigprocmask(SIG_SETMASK, &mask_before, NULL);
    execvp(command[0], command);
    fprintf(stderr, "cfs-keeper: %s: %s\n", command[0], strerror(errno));
    _exit(127);
  }
  close(theirs);
  close(READY_FD);
  return process;
}

static void drop_channel(struct process *process) {
  if (process->channel >= 0) close(process->channel);
  process->channel = -1;
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
  long long now = ms_of(CLOCK_MONOTONIC);
  pid_t predecessor = active.pid;
  if (active.hands_over) {
    upgrades++;
  } else {
    memmove(deaths, deaths + 1, DEATHS_MAX * sizeof *deaths);
    deaths[DEATHS_MAX] = now;
    bool is_limited = getenv("CFS_TEST_KEEPER_UNLIMITED") == NULL; /* tests kill it hundreds of times */
    if (is_limited && deaths[0] != 0 && now - deaths[0] < DEATHS_MS) {
      fprintf(stderr, "cfs-keeper: the mount process ended %d times in a minute: it is not started again\n", DEATHS_MAX + 1);
      exit(1); /* the descriptor of the connection goes with this process */
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
    active = start(command, place);
    return;
  }
  if (standby.command != command) former = command;
  active = standby;
  standby = (struct process){.channel = -1};
  tell(&active, place);
}

static void ended(int status) {
  int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (let_go || device < 0 || code == 0) exit(code);
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
    }
    if (byte == KEEPER_SERVES) {
      process->is_serving = true;
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
  int signals = high(signalfd(-1, &mask, SFD_CLOEXEC), "signalfd");
  ownerless = high(eventfd(0, EFD_CLOEXEC), "eventfd");
  memory = high(memfd_create("cfs-handover", MFD_CLOEXEC), "memfd_create");
  if (ftruncate(memory, HANDOVER_PAGE) != 0) fail("memfd");
  page = mmap(NULL, HANDOVER_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  if (page == MAP_FAILED) fail("mmap");
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&page->serving, &attributes);
  pthread_t watcher;
  if (sem_init(&served, 0, 0) != 0 || pthread_create(&watcher, NULL, watch, NULL) != 0) fail("thread");
  char place[96];
  describe(place, sizeof place, 0, 0);
  active = start(own_command, place);
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
