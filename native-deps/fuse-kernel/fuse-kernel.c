/*
 * Node-API entry of the addon. May be loaded in several threads of one process: all state belongs to a connection
 * (connection.c), none to the module.
 */
#include "fuse-kernel.h"

#include <unistd.h>

napi_value number_of(napi_env env, double value) {
  napi_value result;
  return napi_create_double(env, value, &result) == napi_ok ? result : NULL;
}

bool define_function(napi_env env, napi_value object, const char *name, napi_callback callback, void *data) {
  napi_value function;
  return napi_create_function(env, name, NAPI_AUTO_LENGTH, callback, data, &function) == napi_ok &&
         napi_set_named_property(env, object, name, function) == napi_ok;
}

/* exitNow(code): _exit(2). exit(3) first joins libuv's pool threads, and one in getaddrinfo(3) cannot be interrupted. */
static napi_value exit_now(napi_env env, napi_callback_info info) {
  napi_value argv[1];
  size_t argc = 1;
  int32_t code;
  TRY_NAPI(napi_get_cb_info(env, info, &argc, argv, NULL, NULL));
  TRY_NAPI(napi_get_value_int32(env, argv[0], &code));
  _exit(code);
}

NAPI_MODULE_INIT() {
  if (!define_function(env, exports, "openConnection", connection_open, NULL)) return NULL;
  if (!files_register(env, exports) || !mount_register(env, exports)) return NULL;
  if (!datagram_register(env, exports) || !checksum_register(env, exports)) return NULL;
  if (!receiver_register(env, exports) || !stream_socket_register(env, exports)) return NULL;
  if (!lasting_memory_register(env, exports)) return NULL;
  if (!define_function(env, exports, "exitNow", exit_now, NULL)) return NULL;
#ifdef CFS_FAULTY
  if (!faults_register(env, exports)) return NULL;
#endif
  return exports;
}
