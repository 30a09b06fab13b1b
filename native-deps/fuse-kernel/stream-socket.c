/*
 * Receives from a stream socket without the event loop: for the NFS server, whose client sends the next call a few microseconds after a reply.
 * Returns a negative errno instead of throwing; src/base/native.ts turns it into a number of bytes.
 */
#include "fuse-kernel.h"

#include <errno.h>
#include <sched.h>
#include <sys/socket.h>
#include <time.h>

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/*
 * receiveAwake(fd, bytes, waitNs): what has arrived; -EAGAIN if nothing arrives within waitNs, 0 at the end of the stream. Yields in between, so that a
 * client on the same CPU can run.
 */
static napi_value receive_awake(napi_env env, napi_callback_info info) {
  napi_value argv[3];
  size_t argc = 3, length;
  int32_t fd, wait_ns;
  void *data;
  TRY_NAPI(napi_get_cb_info(env, info, &argc, argv, NULL, NULL));
  if (napi_get_value_int32(env, argv[0], &fd) != napi_ok || napi_get_value_int32(env, argv[2], &wait_ns) != napi_ok ||
      napi_get_typedarray_info(env, argv[1], NULL, &length, &data, NULL, NULL) != napi_ok) {
    return number_of(env, -EINVAL);
  }
  ssize_t n = recv(fd, data, length, MSG_DONTWAIT);
  for (int64_t end = 0; n < 0 && errno == EAGAIN;) {
    int64_t now = now_ns();
    if (end == 0) end = now + wait_ns;
    if (now >= end) return number_of(env, -EAGAIN);
    sched_yield();
    n = recv(fd, data, length, MSG_DONTWAIT);
  }
  return number_of(env, n < 0 ? -errno : (double)n);
}

bool stream_socket_register(napi_env env, napi_value exports) {
  return define_function(env, exports, "receiveAwake", receive_awake, NULL);
}
