/*
 * cfs-keeper PROGRAM [ARGUMENT...]: starts the mounting process and keeps what must outlive it. That is the connection to the kernel, and
 * a memfd with the handover state (../fuse-kernel/handover.h). When the thread that answers the kernel ends, the keeper starts PROGRAM again, which
 * continues on the same connection. Programs in the mount wait meanwhile.
 *
 * It knows nothing of FUSE. It ends with the exit code of the mounting process. After more than DEATHS_MAX deaths in a minute it lets go:
 * the kernel then ends the connection, as without a keeper.
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
#define HIGH 10    /* descriptors of the keeper: above all that the mounting process inherits */

static char **command;
static struct handover_page *page;
static int memory, device = -1, channel = -1, ownerless;
static pid_t child;
static unsigned generation;
static bool let_go, is_serving, is_ready;
static uint64_t serves, ends; /* how many mounting processes have held the mutex, and how many of them have released it */
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

/* Starts the mounting process. `predecessor`: the process before it, whose lock of the store is void, and the wall clock at its end. */
static void start(pid_t predecessor, long long died_ms) {
  int ends[2];
  if (channel >= 0) close(channel);
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) fail("socketpair");
  channel = high(ends[0], "socketpair");
  int theirs = high(ends[1], "socketpair");
  is_serving = is_ready = false;
  child = fork();
  if (child < 0) fail("fork");
  if (child == 0) {
    char text[96];
    snprintf(text, sizeof text, "%u %d %lld", generation, (int)predecessor, died_ms);
    setenv("CFS_KEEPER", text, 1);
    if (generation > 0) unsetenv("CFS_MOUNT_READY_FD");
    if (dup2(theirs, KEEPER_SOCKET) < 0 || dup2(memory, KEEPER_MEMORY) < 0) _exit(126);
    if (generation > 0 && dup2(device, KEEPER_DEVICE) < 0) _exit(126);
    sigprocmask(SIG_SETMASK, &mask_before, NULL);
    execvp(command[0], command);
    fprintf(stderr, "cfs-keeper: %s: %s\n", command[0], strerror(errno));
    _exit(127);
  }
  close(theirs);
  close(READY_FD);
}

static void drop_device(void) {
  if (device >= 0) close(device);
  device = -1;
}

/* The serving thread of `child` has ended. */
static void restart(void) {
  long long now = ms_of(CLOCK_MONOTONIC);
  pid_t predecessor = child;
  memmove(deaths, deaths + 1, DEATHS_MAX * sizeof *deaths);
  deaths[DEATHS_MAX] = now;
  bool is_limited = getenv("CFS_TEST_KEEPER_UNLIMITED") == NULL; /* tests kill it hundreds of times */
  if (is_limited && deaths[0] != 0 && now - deaths[0] < DEATHS_MS) {
    fprintf(stderr, "cfs-keeper: the mount process ended %d times in a minute: it is not started again\n", DEATHS_MAX + 1);
    exit(1); /* the descriptor of the connection goes with this process */
  }
  generation++;
  fprintf(stderr, "cfs-keeper: the mount process %d has ended: generation %u\n", (int)predecessor, generation);
  start(predecessor, ms_of(CLOCK_REALTIME));
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
    if (pid == child) ended(status);
  }
}

/* The messages that have arrived. */
static void receive(void) {
  for (;;) {
    char byte;
    union {
      struct cmsghdr header;
      char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    memset(&control, 0, sizeof control);
    struct iovec iov = {&byte, 1};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t n = recvmsg(channel, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) {
      close(channel); /* the process ends: it is reaped, or its thread has ended */
      channel = -1;
    }
    if (n <= 0) return;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header != NULL && header->cmsg_type == SCM_RIGHTS) {
      int fd;
      memcpy(&fd, CMSG_DATA(header), sizeof fd);
      drop_device();
      device = high(fd, "device");
    }
    if (byte == KEEPER_SERVES) {
      is_serving = true;
      serves++;
      sem_post(&served);
    } else if (byte == KEEPER_READY) {
      is_ready = true;
      if (stop_signal != 0) kill(child, stop_signal);
    } else if (byte == KEEPER_LETS_GO) {
      let_go = true;
      drop_device();
    }
  }
}

static void on_signal(int number) {
  if (number == SIGCHLD) {
    if (channel >= 0) receive(); /* it may have let go as its last act */
    reap();
    return;
  }
  stop_signal = number;
  if (is_ready || let_go) kill(child, number);
  else if (device < 0) kill(child, SIGKILL); /* it has not mounted yet */
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: cfs-keeper PROGRAM [ARGUMENT...]; cfs-mount --continuity starts it\n");
    return 2;
  }
  command = argv + 1;
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
  start(0, 0);
  for (;;) {
    struct pollfd polled[3] = {{signals, POLLIN, 0}, {ownerless, POLLIN, 0}, {channel, POLLIN, 0}};
    if (poll(polled, 3, -1) < 0) continue;
    if (channel >= 0 && polled[2].revents != 0) receive();
    if (polled[1].revents != 0) {
      uint64_t count;
      if (read(ownerless, &count, sizeof count) < 0) continue;
      ends += count;
      if (channel >= 0) receive();
      if (let_go || !is_serving || ends < serves) continue; /* an earlier process, which was reaped meanwhile */
      kill(child, SIGKILL);
      restart();
      continue;
    }
    if (polled[0].revents != 0) {
      struct signalfd_siginfo information;
      if (read(signals, &information, sizeof information) == sizeof information) on_signal((int)information.ssi_signo);
    }
  }
}
