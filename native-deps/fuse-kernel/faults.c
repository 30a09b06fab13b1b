/*
 * Deliberate faults that prove `npm run test:native-asan` finds them: compiled only with -DCFS_FAULTY
 * (`build-native.mjs --sanitize --faulty`), never into a released addon.
 */
#include "fuse-kernel.h"

#ifdef CFS_FAULTY
#include <stdlib.h>

static int32_t number_given(napi_env env, napi_callback_info info) {
  napi_value argv[1];
  size_t argc = 1;
  int32_t number = 0;
  napi_get_cb_info(env, info, &argc, argv, NULL, NULL);
  napi_get_value_int32(env, argv[0], &number);
  return number;
}

/* Not inlined: with a known block size, the other sanitizer reports first. */
__attribute__((noinline)) static void store(volatile char *at) { *at = 1; }

/* writeAt(place): past the end of a block of 16 bytes from place 16 on */
static napi_value write_at(napi_env env, napi_callback_info info) {
  char *block = malloc(16);
  store(block + number_given(env, info));
  free(block);
  return number_of(env, 0);
}

/* leak(): drops the only pointer to a block */
static napi_value leak(napi_env env, napi_callback_info info) {
  (void)info;
  for (int i = 0; i < 16; i++) *(volatile char *)malloc(1000) = 1;
  return number_of(env, 0);
}

/* successor(number): undefined by the C standard for the largest number */
static napi_value successor(napi_env env, napi_callback_info info) {
  return number_of(env, number_given(env, info) + 1);
}

bool faults_register(napi_env env, napi_value exports) {
  return define_function(env, exports, "writeAt", write_at, NULL) &&
         define_function(env, exports, "leak", leak, NULL) && define_function(env, exports, "successor", successor, NULL);
}
#endif
