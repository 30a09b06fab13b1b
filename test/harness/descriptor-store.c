/*
 * descriptor-store SOCKET PROGRAM [ARGUMENT...]: a service manager with a descriptor store, as systemd.service(5) describes it for KillMode=mixed
 * and Restart=on-failure. It starts PROGRAM, keeps the descriptors that its processes send to SOCKET, and starts it again after a failure,
 * with the descriptors (sd_listen_fds(3)). It reports on standard output: "stored NAME", "removed NAME", "started PID COUNT".
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define STORED_MAX 4
#define HIGH 20

static struct stored {
  char name[64];
  int fd;
} stored[STORED_MAX];
static int count;

static void remove_stored(const char *name) {
  for (int i = 0; i < count; i++) {
    if (strcmp(stored[i].name, name) != 0) continue;
    close(stored[i].fd);
    stored[i--] = stored[--count];
    printf("removed %s\n", name);
  }
}

static void receive(int notices) {
  char text[512] = "";
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
  } control;
  struct iovec iov = {text, sizeof text - 1};
  struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  if (recvmsg(notices, &message, MSG_CMSG_CLOEXEC) < 0) return;
  int fd = -1;
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  if (header != NULL && header->cmsg_type == SCM_RIGHTS) memcpy(&fd, CMSG_DATA(header), sizeof fd);
  char *name = strstr(text, "FDNAME=");
  if (name == NULL) {
    if (fd >= 0) close(fd);
    return;
  }
  name += strlen("FDNAME=");
  name[strcspn(name, "\n")] = 0;
  if (strncmp(text, "FDSTOREREMOVE=1", 15) == 0) {
    remove_stored(name);
  } else if (strncmp(text, "FDSTORE=1", 9) == 0 && fd >= 0 && count < STORED_MAX) {
    stored[count].fd = fcntl(fd, F_DUPFD_CLOEXEC, HIGH);
    snprintf(stored[count++].name, sizeof stored->name, "%s", name);
    close(fd);
    printf("stored %s\n", name);
  }
}

static pid_t start(char **command) {
  printf("starting with %d\n", count);
  pid_t pid = fork();
  if (pid != 0) return pid;
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  char text[STORED_MAX * 65] = "", number[16];
  for (int i = 0; i < count; i++) {
    dup2(stored[i].fd, 3 + i);
    if (i > 0) strcat(text, ":");
    strcat(text, stored[i].name);
  }
  if (count > 0) {
    snprintf(number, sizeof number, "%d", (int)getpid());
    setenv("LISTEN_PID", number, 1);
    snprintf(number, sizeof number, "%d", count);
    setenv("LISTEN_FDS", number, 1);
    setenv("LISTEN_FDNAMES", text, 1);
  }
  execvp(command[0], command);
  _exit(127);
}

/* Kills whatever is left of the service: as subreaper, this process is the parent of all. */
static void kill_rest(void) {
  char path[64], line[4096];
  snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
  for (;;) {
    FILE *children = fopen(path, "r");
    if (children == NULL || fgets(line, sizeof line, children) == NULL) line[0] = 0;
    if (children != NULL) fclose(children);
    if (line[0] == 0) return;
    for (char *pid = strtok(line, " "); pid != NULL; pid = strtok(NULL, " ")) kill(atoi(pid), SIGKILL);
    while (waitpid(-1, NULL, WNOHANG) > 0) continue;
    usleep(1000); /* the children of those become ours */
  }
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  setvbuf(stdout, NULL, _IOLBF, 0);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGCHLD);
  sigaddset(&mask, SIGTERM);
  sigprocmask(SIG_BLOCK, &mask, NULL);
  int signals = fcntl(signalfd(-1, &mask, SFD_CLOEXEC), F_DUPFD_CLOEXEC, HIGH);
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s", argv[1]);
  int notices = fcntl(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), F_DUPFD_CLOEXEC, HIGH);
  if (bind(notices, (struct sockaddr *)&address, sizeof address) != 0) return 1;
  setenv("NOTIFY_SOCKET", argv[1], 1);
  pid_t service = start(argv + 2);
  for (;;) {
    struct pollfd polled[2] = {{notices, POLLIN, 0}, {signals, POLLIN, 0}};
    if (poll(polled, 2, -1) < 0) continue;
    if (polled[0].revents != 0) {
      receive(notices);
      continue; /* all messages before the end of their sender */
    }
    struct signalfd_siginfo information;
    if (read(signals, &information, sizeof information) != sizeof information) continue;
    if (information.ssi_signo == SIGTERM) {
      kill(service, SIGTERM);
      continue;
    }
    int status, ended = -1;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      if (pid == service) ended = status;
    }
    if (ended == -1) continue;
    kill_rest();
    if (WIFEXITED(ended) && WEXITSTATUS(ended) == 0) return 0;
    service = start(argv + 2);
  }
}
