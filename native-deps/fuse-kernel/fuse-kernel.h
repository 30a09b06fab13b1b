/* Declarations shared by the C files of this addon. */
#ifndef CFS_FUSE_KERNEL_H
#define CFS_FUSE_KERNEL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <node_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The few libuv functions in use, declared here because node-api-headers does not include uv.h. Every Node binary exports them, unchanged
 * since libuv 1.19; the size of a handle is queried at run time.
 */
typedef struct uv_loop_s uv_loop_t;
typedef struct uv_handle_s uv_handle_t;
typedef struct uv_poll_s uv_poll_t;
typedef void (*uv_poll_cb)(uv_poll_t *handle, int status, int events);
typedef void (*uv_close_cb)(uv_handle_t *handle);
#define UV_HANDLE_TYPE_POLL 8 /* UV_POLL in enum uv_handle_type */
#define UV_POLL_READABLE 1    /* UV_READABLE */
extern size_t uv_handle_size(int type);
extern int uv_poll_init(uv_loop_t *loop, uv_poll_t *handle, int fd);
extern int uv_poll_start(uv_poll_t *handle, int events, uv_poll_cb callback);
extern int uv_poll_stop(uv_poll_t *handle);
extern void uv_close(uv_handle_t *handle, uv_close_cb callback);
extern void uv_handle_set_data(uv_handle_t *handle, void *data);
extern void *uv_handle_get_data(const uv_handle_t *handle);

/* A failed call of Node-API here means that the environment is going away: the caller gets undefined and unwinds. */
#define TRY_NAPI(call)                \
  do {                                \
    if ((call) != napi_ok) return NULL; \
  } while (0)

napi_value number_of(napi_env env, double value);
bool define_function(napi_env env, napi_value object, const char *name, napi_callback callback, void *data);

/* connection.c: one /dev/fuse descriptor served in the loop of one thread. */
napi_value connection_open(napi_env env, napi_callback_info info);

/* files.c: hole punching and reads that do not block, also used by the store. */
bool files_register(napi_env env, napi_value exports);

/* lasting-memory.c: buffers that V8 does not count. Returns the bytes; 0: V8 counts as before. */
bool lasting_memory_register(napi_env env, napi_value exports);
size_t lasting_memory_keep(napi_env env, napi_value buffer);

/* checksum.c: crc32 with the CPU's own instructions. */
bool checksum_register(napi_env env, napi_value exports);
/* Whether the CPU has these instructions; `checksum_of`, the C form of crc32, needs them. */
bool checksum_is_fast(void);
uint32_t checksum_of(uint32_t before, const uint8_t *bytes, size_t length);

/* receiver-calls.c: response bodies, from their sockets into files. */
bool receiver_register(napi_env env, napi_value exports);

/* datagram.c: one message to a datagram socket. */
bool datagram_register(napi_env env, napi_value exports);

/* stream-socket.c: receiving without the event loop. */
bool stream_socket_register(napi_env env, napi_value exports);
#ifdef CFS_FAULTY
bool faults_register(napi_env env, napi_value exports);
#endif

/* mount.c: the system calls around mounting. */
bool mount_register(napi_env env, napi_value exports);

/* notifier.c: threads that write notifications, because that can block on locks that only replies release. */
struct notifier;
struct notifier_counts {
  uint64_t written;
  uint64_t unknown; /* the kernel did not know the inode or name: nothing was cached */
  uint64_t failed;
  uint32_t waiting; /* not written yet */
};
struct notifier *notifier_create(int fd);
/* Copies the message. `row` becomes 0 when it is written, unless NULL. False when `queue_max` already wait. */
bool notifier_push(struct notifier *notifier, const void *message, size_t length, uint32_t queue_max, uint64_t *row);
struct notifier_counts notifier_counts(struct notifier *notifier);
/* Drops waiting messages, wakes the threads, and frees everything when the last has ended; then `after` runs, on any thread. */
void notifier_close(struct notifier *notifier, void (*after)(void *), void *argument);

#endif
