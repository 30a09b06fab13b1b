/*
 * Calls that Node's fs module lacks: fallocate(2) for the content store, flock(2), and reads that only use the page cache.
 * Every function returns a negative errno instead of throwing; src/base/native.ts turns it into an error.
 */
#include "fuse-kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <sys/uio.h>

#define MODE_KEEP_SIZE 1  /* FALLOC_FL_KEEP_SIZE */
#define MODE_PUNCH_HOLE 2 /* FALLOC_FL_PUNCH_HOLE */

static bool numbers(napi_env env, napi_callback_info info, size_t count, double *out) {
  napi_value argv[4];
  size_t argc = 4;
  if (napi_get_cb_info(env, info, &argc, argv, NULL, NULL) != napi_ok || argc < count) return false;
  for (size_t i = 0; i < count; i++) {
    if (napi_get_value_double(env, argv[i], &out[i]) != napi_ok) return false;
  }
  return true;
}

static int allocate(int fd, int mode, double offset, double length) {
  int result;
  do {
    result = fallocate(fd, mode, (off_t)offset, (off_t)length);
  } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : -errno;
}

/* punchHole(fd, offset, length) */
static napi_value punch_hole(napi_env env, napi_callback_info info) {
  double a[3];
  if (!numbers(env, info, 3, a)) return number_of(env, -EINVAL);
  return number_of(env, allocate((int)a[0], MODE_PUNCH_HOLE | MODE_KEEP_SIZE, a[1], a[2]));
}

/* allocate(fd, offset, length, keepSize as 0 or 1) */
static napi_value allocate_range(napi_env env, napi_callback_info info) {
  double a[4];
  if (!numbers(env, info, 4, a)) return number_of(env, -EINVAL);
  return number_of(env, allocate((int)a[0], a[3] != 0 ? MODE_KEEP_SIZE : 0, a[1], a[2]));
}

/* allocatedBytes(fd): the file's size on disk, without holes. */
static napi_value allocated_bytes(napi_env env, napi_callback_info info) {
  double a[1];
  struct stat st;
  if (!numbers(env, info, 1, a)) return number_of(env, -EINVAL);
  if (fstat((int)a[0], &st) != 0) return number_of(env, -errno);
  return number_of(env, (double)st.st_blocks * 512.0);
}

/* duplicate(fd, onto): dup2(2): `onto` becomes another descriptor of the same open file. */
static napi_value duplicate(napi_env env, napi_callback_info info) {
  double a[2];
  int result;
  if (!numbers(env, info, 2, a)) return number_of(env, -EINVAL);
  do {
    result = dup2((int)a[0], (int)a[1]);
  } while (result < 0 && errno == EINTR);
  return number_of(env, result < 0 ? -errno : 0);
}

/* lock(fd, exclusive as 0 or 1): flock(2) without waiting; -EWOULDBLOCK when the lock is held elsewhere. */
static napi_value lock_file(napi_env env, napi_callback_info info) {
  double a[2];
  int result;
  if (!numbers(env, info, 2, a)) return number_of(env, -EINVAL);
  do {
    result = flock((int)a[0], (a[1] != 0 ? LOCK_EX : LOCK_SH) | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  return number_of(env, result == 0 ? 0 : -errno);
}

/* preadNowait(fd, bytes, position): fills `bytes` as far as the page cache reaches; -EAGAIN if the first byte is not cached. */
static napi_value pread_nowait(napi_env env, napi_callback_info info) {
  napi_value argv[3];
  size_t argc = 3, length;
  int32_t fd;
  double position;
  void *data;
  TRY_NAPI(napi_get_cb_info(env, info, &argc, argv, NULL, NULL));
  if (napi_get_value_int32(env, argv[0], &fd) != napi_ok || napi_get_value_double(env, argv[2], &position) != napi_ok ||
      napi_get_typedarray_info(env, argv[1], NULL, &length, &data, NULL, NULL) != napi_ok) {
    return number_of(env, -EINVAL);
  }
  struct iovec iov = {data, length};
  ssize_t n = preadv2(fd, &iov, 1, (off_t)position, RWF_NOWAIT);
  if (n < 0) return number_of(env, errno == EOPNOTSUPP ? -EAGAIN : -errno);
  return number_of(env, (double)n);
}

bool files_register(napi_env env, napi_value exports) {
  return define_function(env, exports, "punchHole", punch_hole, NULL) &&
         define_function(env, exports, "allocate", allocate_range, NULL) &&
         define_function(env, exports, "allocatedBytes", allocated_bytes, NULL) &&
         define_function(env, exports, "duplicate", duplicate, NULL) &&
         define_function(env, exports, "lock", lock_file, NULL) &&
         define_function(env, exports, "preadNowait", pread_nowait, NULL);
}
