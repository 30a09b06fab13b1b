/* send-descriptors COUNT FILE: sends one byte over descriptor 3, with COUNT descriptors of FILE in one message (0 to 2). */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  size_t count = (size_t)atoi(argv[1]);
  int fds[2];
  if (count > 2) return 2;
  for (size_t i = 0; i < count; i++) {
    fds[i] = open(argv[2], O_RDONLY);
    if (fds[i] < 0) return 1;
  }
  char byte = 0;
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof fds)];
  } control = {.header = {.cmsg_len = CMSG_LEN(count * sizeof *fds), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
  memcpy(CMSG_DATA(&control.header), fds, count * sizeof *fds);
  struct iovec iov = {&byte, 1};
  struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
  if (count > 0) {
    message.msg_control = &control;
    message.msg_controllen = CMSG_SPACE(count * sizeof *fds);
  }
  return sendmsg(3, &message, 0) == 1 ? 0 : 1;
}
