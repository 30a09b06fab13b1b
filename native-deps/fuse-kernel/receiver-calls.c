/* The receiver's interface to JavaScript: the functions that src/remote/http/receiver.ts calls, and the callback for its messages. */
#include "receiver.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

/* A receiver as an object of JavaScript. It lives until both its object and the callback are gone. */
struct held {
  struct receiver receiver;
  napi_threadsafe_function callback;
  int holders;
  bool is_hooked;
};

static struct held *held_of(struct receiver *r) { return (struct held *)((char *)r - offsetof(struct held, receiver)); }

static void on_news(struct receiver *r) { napi_call_threadsafe_function(held_of(r)->callback, NULL, napi_tsfn_nonblocking); }

/* One message about a line: phase, position of its body in the file, and the head or the new checksums. */
struct message {
  uint32_t line;
  enum phase phase;
  uint64_t at;
  size_t length;
  void *bytes;
};

static bool deliver(napi_env env, napi_value function, const struct message *message) {
  napi_value undefined, bytes;
  void *copy;
  if (napi_get_undefined(env, &undefined) != napi_ok) return false;
  if (napi_create_buffer_copy(env, message->length, message->bytes, &copy, &bytes) != napi_ok) return false;
  napi_value arguments[] = {number_of(env, message->line), number_of(env, message->phase), number_of(env, (double)message->at), bytes};
  return napi_call_function(env, undefined, function, 4, arguments, NULL) == napi_ok;
}

/* With the lock. @returns false without memory, or without a further message */
static bool next_message(struct receiver *r, struct message *message) {
  struct line *line = r->news;
  if (line == NULL) return false;
  bool is_head = line->phase == HEAD_READ;
  message->line = line->id;
  message->phase = line->phase;
  message->at = line->at;
  message->length = is_head ? line->head_length : line->checksums_have * sizeof *line->checksums;
  message->bytes = malloc(message->length + 1);
  if (message->bytes == NULL) return false;
  receiver_take_news(r);
  if (message->length > 0) memcpy(message->bytes, is_head ? (void *)line->early : (void *)line->checksums, message->length);
  if (!is_head) line->checksums_have = 0;
  line->posted_to = line->at;
  if (line->phase == GONE) receiver_forget(r, line);
  return true;
}

static void call_javascript(napi_env env, napi_value function, void *context, void *data) {
  (void)data;
  struct receiver *r = context;
  if (env == NULL) return; /* The receiver may be freed already. */
  bool has_more = true;
  while (has_more && !r->is_closed) {
    struct message message = {.bytes = NULL};
    pthread_mutex_lock(&r->lock);
    has_more = next_message(r, &message);
    pthread_mutex_unlock(&r->lock);
    has_more = has_more && deliver(env, function, &message);
    free(message.bytes);
  }
  if (r->is_closed) return;
  pthread_mutex_lock(&r->lock);
  /* JavaScript threw, of which Node only warns, or memory ran out: another call delivers the rest. */
  r->is_posting = r->news != NULL;
  if (r->is_posting) r->on_news(r);
  pthread_mutex_unlock(&r->lock);
}

static void let_go(struct held *held) {
  if (--held->holders == 0) free(held);
}

/* The environment ends: the thread must not outlive its callback. */
static void environment_ends(void *argument) {
  struct held *held = argument;
  held->is_hooked = false;
  receiver_close(&held->receiver);
}

static void callback_gone(napi_env env, void *data, void *hint) {
  (void)data;
  struct held *held = held_of(hint);
  if (held->is_hooked) napi_remove_env_cleanup_hook(env, environment_ends, held);
  let_go(held);
}

static void end(struct held *held) {
  if (held->receiver.is_closed) return;
  receiver_close(&held->receiver);
  napi_release_threadsafe_function(held->callback, napi_tsfn_abort);
}

static void object_gone(napi_env env, void *data, void *hint) {
  (void)env;
  (void)hint;
  end(data);
  let_go(data);
}

#define ARGUMENTS_MAX 4

struct call {
  struct held *held;
  struct receiver *receiver;
  struct line *line;
  napi_value values[ARGUMENTS_MAX];
  int64_t numbers[ARGUMENTS_MAX]; /* the arguments as numbers; -1 for one that is not a number, or too large */
};

/* Fills the call and takes the lock. @returns false after the receiver was closed, without the lock */
static bool called(napi_env env, napi_callback_info info, size_t count, struct call *call) {
  napi_value self;
  size_t argc = ARGUMENTS_MAX;
  if (napi_get_cb_info(env, info, &argc, call->values, &self, NULL) != napi_ok || argc < count) return false;
  if (napi_unwrap(env, self, (void **)&call->held) != napi_ok || call->held->receiver.is_closed) return false;
  for (size_t i = 0; i < ARGUMENTS_MAX; i++) {
    if (i >= count || napi_get_value_int64(env, call->values[i], &call->numbers[i]) != napi_ok) call->numbers[i] = -1;
  }
  call->receiver = &call->held->receiver;
  pthread_mutex_lock(&call->receiver->lock);
  bool is_line = call->numbers[0] > 0 && call->numbers[0] <= UINT32_MAX;
  call->line = is_line ? receiver_line(call->receiver, (uint32_t)call->numbers[0]) : NULL;
  return true;
}

static napi_value answered(napi_env env, struct call *call, double result) {
  pthread_mutex_unlock(&call->receiver->lock);
  return number_of(env, result);
}

static int fd_of(int64_t number) { return number < 0 || number > INT_MAX ? -1 : (int)number; }

/* @returns NULL with errno; the argument errors are EINVAL */
static struct records *records_of(napi_env env, const struct call *call) {
  void *keys, *early;
  size_t keys_length, early_length;
  errno = EINVAL;
  if (napi_get_typedarray_info(env, call->values[2], NULL, &keys_length, &keys, NULL, NULL) != napi_ok) return NULL;
  if (napi_get_typedarray_info(env, call->values[3], NULL, &early_length, &early, NULL, NULL) != napi_ok) return NULL;
  if (call->numbers[1] < 0 || call->numbers[1] > INT_MAX) return NULL;
  return records_new((int)call->numbers[1], keys, keys_length, early, early_length);
}

/*
 * adopt(fd, suite, keys, early): duplicates and serves a connected socket; without TLS `keys` is null. `keys` and `early` as in records.h.
 * @returns the line's number, or a negative errno
 */
static napi_value adopt(napi_env env, napi_callback_info info) {
  struct call call;
  if (!called(env, info, 4, &call)) return number_of(env, -EBADF);
  napi_valuetype type;
  bool is_plain = napi_typeof(env, call.values[2], &type) == napi_ok && type == napi_null;
  struct records *records = is_plain ? NULL : records_of(env, &call);
  struct line *line = is_plain || records != NULL ? receiver_adopt(call.receiver, fd_of(call.numbers[0]), records) : NULL;
  int failure = errno;
  if (line == NULL) records_free(records);
  return answered(env, &call, line == NULL ? -failure : (double)line->id);
}

/* ask(line, request): sends it on an idle line. @returns 0, or a negative errno */
static napi_value ask(napi_env env, napi_callback_info info) {
  struct call call;
  void *request;
  size_t length;
  if (!called(env, info, 2, &call)) return number_of(env, -EBADF);
  bool is_sent = call.line != NULL && napi_get_typedarray_info(env, call.values[1], NULL, &length, &request, NULL, NULL) == napi_ok;
  return answered(env, &call, is_sent ? receiver_ask(call.receiver, call.line, request, length) : -EBADF);
}

/* land(line, fd, position, length): writes that part of a body to the file. @returns 0, or a negative errno */
static napi_value land(napi_env env, napi_callback_info info) {
  struct call call;
  if (!called(env, info, 4, &call)) return number_of(env, -EBADF);
  int64_t position = call.numbers[2], length = call.numbers[3];
  if (call.line == NULL || position < 0 || length < 1 || length > INT64_MAX - position) return answered(env, &call, -EBADF);
  return answered(env, &call, receiver_land(call.receiver, call.line, fd_of(call.numbers[1]), (uint64_t)position, (uint64_t)length));
}

/* received(line): bytes since its adoption, including those in the socket's buffer; -1 for a line that no longer exists. */
static napi_value received(napi_env env, napi_callback_info info) {
  struct call call;
  int waiting;
  if (!called(env, info, 1, &call)) return number_of(env, -1);
  bool is_there = call.line != NULL && ioctl(call.line->fd, FIONREAD, &waiting) == 0;
  return answered(env, &call, is_there ? (double)call.line->received + waiting : -1);
}

/* drop(line): closes it in any phase; a message follows when it is gone. */
static napi_value drop(napi_env env, napi_callback_info info) {
  struct call call;
  if (!called(env, info, 1, &call)) return number_of(env, -EBADF);
  if (call.line != NULL) receiver_drop(call.receiver, call.line);
  return answered(env, &call, 0);
}

/* hold(isHeld): whether pending messages keep the environment's loop alive. */
static napi_value hold(napi_env env, napi_callback_info info) {
  struct call call;
  if (!called(env, info, 1, &call)) return number_of(env, -EBADF);
  napi_status done = call.numbers[0] > 0 ? napi_ref_threadsafe_function(env, call.held->callback) : napi_unref_threadsafe_function(env, call.held->callback);
  return answered(env, &call, done == napi_ok ? 0 : -EINVAL);
}

/* close(): closes all lines; no write and no message follows its return. */
static napi_value close_all(napi_env env, napi_callback_info info) {
  struct call call;
  if (!called(env, info, 0, &call)) return number_of(env, 0);
  pthread_mutex_unlock(&call.receiver->lock);
  end(call.held);
  return number_of(env, 0);
}

/*
 * openReceiver(onNews): onNews(line, phase, at, bytes) receives the messages. @returns the receiver, or a negative errno. `isTls`: whether it can
 * decrypt
 */
static napi_value open_receiver(napi_env env, napi_callback_info info) {
  napi_value argv[1], object, name, is_tls;
  size_t argc = 1;
  TRY_NAPI(napi_get_cb_info(env, info, &argc, argv, NULL, NULL));
  TRY_NAPI(napi_create_object(env, &object));
  TRY_NAPI(napi_get_boolean(env, records_are_supported(), &is_tls));
  TRY_NAPI(napi_set_named_property(env, object, "isTls", is_tls));
  TRY_NAPI(napi_create_string_utf8(env, "receiver", NAPI_AUTO_LENGTH, &name));
  struct held *held = calloc(1, sizeof *held);
  if (held == NULL) return number_of(env, -ENOMEM);
  struct receiver *r = &held->receiver;
  held->holders = 2;
  r->on_news = on_news;
  if (receiver_open(r) == NULL) {
    int failure = errno;
    free(held);
    return number_of(env, -failure);
  }
  if (napi_create_threadsafe_function(env, argv[0], NULL, name, 0, 1, r, callback_gone, r, call_javascript, &held->callback) != napi_ok) {
    receiver_close(r);
    free(held);
    return NULL;
  }
  napi_unref_threadsafe_function(env, held->callback);
  held->is_hooked = napi_add_env_cleanup_hook(env, environment_ends, held) == napi_ok;
  if (napi_wrap(env, object, held, object_gone, NULL, NULL) != napi_ok) return NULL;
  const struct { const char *name; napi_callback callback; } methods[] = {
      {"adopt", adopt}, {"ask", ask}, {"land", land}, {"received", received}, {"drop", drop}, {"hold", hold}, {"close", close_all}};
  for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
    if (!define_function(env, object, methods[i].name, methods[i].callback, NULL)) return NULL;
  }
  return object;
}

/* Only with a fast checksum.c: otherwise the checksums would cost more than the receiver saves. */
bool receiver_register(napi_env env, napi_value exports) {
  return !checksum_is_fast() || define_function(env, exports, "openReceiver", open_receiver, NULL);
}
