/*
 * Sends one message to a socket type that Node lacks: unix(7), SOCK_DGRAM. A service reports its readiness to systemd this way
 * (sd_notify(3)). Returns a negative errno instead of throwing; src/base/native.ts turns it into an error.
 */
#include "fuse-kernel.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MESSAGE_BYTES_MAX 4096

/* sendDatagram(path, text): a leading '@' stands for the abstract namespace. */
static napi_value send_datagram(napi_env env, napi_callback_info info) {
  napi_value argv[2];
  size_t argc = 2, path_length, text_length;
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  char path[sizeof(address.sun_path) + 1], text[MESSAGE_BYTES_MAX];
  TRY_NAPI(napi_get_cb_info(env, info, &argc, argv, NULL, NULL));
  if (argc < 2) return number_of(env, -EINVAL);
  TRY_NAPI(napi_get_value_string_utf8(env, argv[0], path, sizeof(path), &path_length));
  TRY_NAPI(napi_get_value_string_utf8(env, argv[1], text, sizeof(text), &text_length));
  if (path_length == 0 || path_length >= sizeof(address.sun_path)) return number_of(env, -ENAMETOOLONG);
  if (text_length + 1 >= sizeof(text)) return number_of(env, -EMSGSIZE);

  memcpy(address.sun_path, path, path_length);
  socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + path_length);
  if (path[0] == '@') address.sun_path[0] = '\0';
  else length++; /* with its final NUL */

  int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return number_of(env, -errno);
  ssize_t sent = sendto(fd, text, text_length, MSG_NOSIGNAL, (struct sockaddr *)&address, length);
  int result = sent < 0 ? -errno : 0;
  close(fd);
  return number_of(env, result);
}

bool datagram_register(napi_env env, napi_value exports) {
  return define_function(env, exports, "sendDatagram", send_datagram, NULL);
}
