/*
 * Memory that lasts as long as its thread. V8 counts the bytes of each ArrayBuffer, and collects all garbage when the count has grown. That frees
 * nothing of a buffer that is never garbage, and costs a start two collections (ADR 28).
 */
#include "fuse-kernel.h"

#include <stdlib.h>

struct lasting {
  napi_env env;
  int64_t length;
};

/* V8 subtracts the bytes when the heap ends: they must be counted then. From Node 24 on, a count below 0 ends the process. */
static void environment_ends(void *argument) {
  struct lasting *lasting = argument;
  int64_t counted;
  (void)napi_adjust_external_memory(lasting->env, lasting->length, &counted);
  free(lasting);
}

size_t lasting_memory_keep(napi_env env, napi_value buffer) {
  size_t length;
  int64_t counted;
  napi_ref kept;
  if (napi_get_arraybuffer_info(env, buffer, NULL, &length) != napi_ok) return 0;
  if (napi_adjust_external_memory(env, 0, &counted) != napi_ok || counted < (int64_t)length) return 0;
  struct lasting *lasting = malloc(sizeof *lasting);
  if (lasting == NULL) return 0;
  *lasting = (struct lasting){.env = env, .length = (int64_t)length};
  if (napi_create_reference(env, buffer, 1, &kept) != napi_ok) {
    free(lasting);
    return 0;
  }
  if (napi_add_env_cleanup_hook(env, environment_ends, lasting) != napi_ok) {
    napi_delete_reference(env, kept);
    free(lasting);
    return 0;
  }
  (void)napi_adjust_external_memory(env, -lasting->length, &counted);
  return length;
}

/* keepUncounted(buffer): keeps an ArrayBuffer until the thread ends, and takes its bytes out of the count. Returns the bytes; 0: V8 did not count them. */
static napi_value keep_uncounted(napi_env env, napi_callback_info info) {
  napi_value argv[1];
  size_t argc = 1;
  TRY_NAPI(napi_get_cb_info(env, info, &argc, argv, NULL, NULL));
  return number_of(env, (double)lasting_memory_keep(env, argv[0]));
}

bool lasting_memory_register(napi_env env, napi_value exports) {
  return define_function(env, exports, "keepUncounted", keep_uncounted, NULL);
}
