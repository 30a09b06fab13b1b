/*
 * Node-API entry of the addon. May be loaded in several threads of one process: all state belongs to a connection
 * (connection.c), none to the module.
 */
#include "fuse-kernel.h"

napi_value number_of(napi_env env, double value) {
  napi_value result;
  return napi_create_double(env, value, &result) == napi_ok ? result : NULL;
}

bool define_function(napi_env env, napi_value object, const char *name, napi_callback callback, void *data) {
  napi_value function;
  return napi_create_function(env, name, NAPI_AUTO_LENGTH, callback, data, &function) == napi_ok &&
         napi_set_named_property(env, object, name, function) == napi_ok;
}

NAPI_MODULE_INIT() {
  if (!define_function(env, exports, "openConnection", connection_open, NULL)) return NULL;
  if (!files_register(env, exports) || !mount_register(env, exports)) return NULL;
  if (!datagram_register(env, exports)) return NULL;
#ifdef CFS_FAULTY
  if (!faults_register(env, exports)) return NULL;
#endif
  return exports;
}
