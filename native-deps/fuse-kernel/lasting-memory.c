/*
 * Memory that lasts as long as its thread. V8 counts the bytes of each ArrayBuffer, and collects all garbage when the count has grown. That frees
 * nothing of a buffer that is never garbage, and costs a start two collections (ADR 28).
 *
 * At the end of a thread V8 subtracts the bytes all the same. Its count may then be below 0, which ends the process from Node 24 on.
 */
#include "fuse-kernel.h"

#define NODE_THAT_CHECKS 24u

size_t lasting_memory_keep(napi_env env, napi_value buffer) {
  size_t length;
  int64_t counted;
  napi_ref kept;
  const napi_node_version *node;
  if (napi_get_node_version(env, &node) != napi_ok || node->major >= NODE_THAT_CHECKS) return 0;
  if (napi_get_arraybuffer_info(env, buffer, NULL, &length) != napi_ok) return 0;
  if (napi_adjust_external_memory(env, 0, &counted) != napi_ok || counted < (int64_t)length) return 0;
  if (napi_create_reference(env, buffer, 1, &kept) != napi_ok) return 0;
  (void)napi_adjust_external_memory(env, -(int64_t)length, &counted);
  return length;
}

/* keepUncounted(buffer): keeps an ArrayBuffer until the thread ends, and takes its bytes out of the count. Returns the bytes; 0: V8 counts as before. */
static napi_value keep_uncounted(napi_env env, napi_callback_info info) {
  napi_value argv[1];
  size_t argc = 1;
  TRY_NAPI(napi_get_cb_info(env, info, &argc, argv, NULL, NULL));
  return number_of(env, (double)lasting_memory_keep(env, argv[0]));
}

bool lasting_memory_register(napi_env env, napi_value exports) {
  return define_function(env, exports, "keepUncounted", keep_uncounted, NULL);
}
