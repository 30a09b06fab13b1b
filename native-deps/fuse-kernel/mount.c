/*
 * The system calls around mounting. Each returns a negative errno instead of throwing. src/kernel/mounting.ts chooses the
 * mount point, the options and the error messages.
 */
#include "fuse-kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

static char *text(napi_env env, napi_value value) {
  size_t length;
  if (napi_get_value_string_utf8(env, value, NULL, 0, &length) != napi_ok) return NULL;
  char *copy = malloc(length + 1);
  if (copy != NULL && napi_get_value_string_utf8(env, value, copy, length + 1, &length) != napi_ok) {
    free(copy);
    return NULL;
  }
  return copy;
}

/* openDevice(): a non-blocking descriptor of /dev/fuse. */
static napi_value open_device(napi_env env, napi_callback_info info) {
  (void)info;
  int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK);
  return number_of(env, fd < 0 ? -errno : fd);
}

/* mount(source, directory, type, flags, data): mount(2), for root. */
static napi_value mount_device(napi_env env, napi_callback_info info) {
  napi_value argv[5];
  size_t argc = 5;
  double flags;
  TRY_NAPI(napi_get_cb_info(env, info, &argc, argv, NULL, NULL));
  char *source = text(env, argv[0]), *target = text(env, argv[1]), *type = text(env, argv[2]), *data = text(env, argv[4]);
  int result = -EINVAL;
  if (source && target && type && data && napi_get_value_double(env, argv[3], &flags) == napi_ok) {
    result = mount(source, target, type, (unsigned long)flags, data) == 0 ? 0 : -errno;
  }
  free(source);
  free(target);
  free(type);
  free(data);
  return number_of(env, result);
}

/* unmount(directory, flags): umount2(2); never follows a symlink. */
static napi_value unmount_directory(napi_env env, napi_callback_info info) {
  napi_value argv[2];
  size_t argc = 2;
  int32_t flags;
  TRY_NAPI(napi_get_cb_info(env, info, &argc, argv, NULL, NULL));
  char *target = text(env, argv[0]);
  int result = -EINVAL;
  if (target != NULL && napi_get_value_int32(env, argv[1], &flags) == napi_ok) {
    result = umount2(target, flags | UMOUNT_NOFOLLOW) == 0 ? 0 : -errno;
  }
  free(target);
  return number_of(env, result);
}

/* socketPair(): the two ends over which fusermount3 sends its descriptor (_FUSE_COMMFD); [] if none can be created. */
static napi_value socket_pair(napi_env env, napi_callback_info info) {
  (void)info;
  int ends[2];
  napi_value result;
  TRY_NAPI(napi_create_array(env, &result));
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return result;
  for (uint32_t i = 0; i < 2; i++) {
    napi_value end = number_of(env, ends[i]);
    if (end == NULL || napi_set_element(env, result, i, end) != napi_ok) return NULL;
  }
  return result;
}

/* Closes the descriptors of a message in an unexpected form. */
static void close_received(struct msghdr *message) {
  for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL; header = CMSG_NXTHDR(message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = 0; CMSG_LEN(at + sizeof(int)) <= header->cmsg_len; at += sizeof(int)) {
      int fd;
      memcpy(&fd, CMSG_DATA(header) + at, sizeof fd);
      close(fd);
    }
  }
}

/*
 * receiveDescriptor(socket): waits for the descriptor from fusermount3, and makes it non-blocking. -ENOTCONN for a message without exactly
 * one descriptor: CMSG_SPACE rounds up, so that there is room for two.
 */
static napi_value receive_descriptor(napi_env env, napi_callback_info info) {
  napi_value argv[1];
  size_t argc = 1;
  int32_t socket;
  TRY_NAPI(napi_get_cb_info(env, info, &argc, argv, NULL, NULL));
  TRY_NAPI(napi_get_value_int32(env, argv[0], &socket));
  char byte;
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
  } control;
  memset(&control, 0, sizeof control);
  struct iovec iov = {&byte, 1};
  struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  ssize_t n;
  do {
    n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return number_of(env, -errno);
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  if (n == 0 || header == NULL || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS ||
      header->cmsg_len != CMSG_LEN(sizeof(int))) {
    close_received(&message);
    return number_of(env, -ENOTCONN);
  }
  int fd;
  memcpy(&fd, CMSG_DATA(header), sizeof fd);
  int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    int failure = -errno;
    close(fd);
    return number_of(env, failure);
  }
  return number_of(env, fd);
}

/* sendMessage(socket, byte, fd): one byte to the keeper, with a descriptor unless `fd` is -1. */
static napi_value send_message(napi_env env, napi_callback_info info) {
  napi_value argv[3];
  size_t argc = 3;
  int32_t socket, code, fd;
  TRY_NAPI(napi_get_cb_info(env, info, &argc, argv, NULL, NULL));
  TRY_NAPI(napi_get_value_int32(env, argv[0], &socket));
  TRY_NAPI(napi_get_value_int32(env, argv[1], &code));
  TRY_NAPI(napi_get_value_int32(env, argv[2], &fd));
  char byte = (char)code;
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
  } control;
  memset(&control, 0, sizeof control);
  struct iovec iov = {&byte, 1};
  struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
  if (fd >= 0) {
    message.msg_control = &control;
    message.msg_controllen = sizeof control.bytes;
    control.header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
  }
  fcntl(socket, F_SETFD, FD_CLOEXEC);
  ssize_t n;
  do {
    n = sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  return number_of(env, n < 0 ? -errno : 0);
}

/* closeDescriptor(fd): close(2), also for descriptors that Node did not open. */
static napi_value close_descriptor(napi_env env, napi_callback_info info) {
  napi_value argv[1];
  size_t argc = 1;
  int32_t fd;
  TRY_NAPI(napi_get_cb_info(env, info, &argc, argv, NULL, NULL));
  TRY_NAPI(napi_get_value_int32(env, argv[0], &fd));
  return number_of(env, close(fd) == 0 ? 0 : -errno);
}

/*
 * abandonDescriptor(fd): replaces a connection whose own thread no longer responds by an unconnected socket, from another thread. The
 * kernel ends the connection with its last reference: every caller gets an error, none hangs.
 * Not close(2): the number could be reused while the dead thread still uses it. Not /dev/null: that thread may resume at this moment, and
 * libuv calls abort(3) if epoll rejects a descriptor. epoll accepts this socket, which hangs up immediately, and fails each read (EINVAL)
 * and each write (ENOTCONN, without a SIGPIPE): unix(7).
 */
static napi_value abandon_descriptor(napi_env env, napi_callback_info info) {
  napi_value argv[1];
  size_t argc = 1;
  int32_t fd;
  TRY_NAPI(napi_get_cb_info(env, info, &argc, argv, NULL, NULL));
  TRY_NAPI(napi_get_value_int32(env, argv[0], &fd));
  int unconnected = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (unconnected < 0) return number_of(env, -errno);
  int result = dup3(unconnected, fd, O_CLOEXEC) < 0 ? -errno : 0;
  close(unconnected);
  return number_of(env, result);
}

bool mount_register(napi_env env, napi_value exports) {
  return define_function(env, exports, "openDevice", open_device, NULL) &&
         define_function(env, exports, "mount", mount_device, NULL) &&
         define_function(env, exports, "unmount", unmount_directory, NULL) &&
         define_function(env, exports, "socketPair", socket_pair, NULL) &&
         define_function(env, exports, "receiveDescriptor", receive_descriptor, NULL) &&
         define_function(env, exports, "sendMessage", send_message, NULL) &&
         define_function(env, exports, "closeDescriptor", close_descriptor, NULL) &&
         define_function(env, exports, "abandonDescriptor", abandon_descriptor, NULL);
}
