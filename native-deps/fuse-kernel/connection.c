/*
 * One /dev/fuse descriptor, served in the loop of the thread that opened it.
 *
 * Requests are read until EAGAIN, directly into slots of one region that JavaScript sees as an ArrayBuffer. One call passes a batch to
 * JavaScript, which encodes small replies in the reply area; they are written when the call returns. Other replies go out by `send`
 * (encoded in the scratch area) and `sendPieces` (gathered from buffers and files). The layout of the region is in README.md, "The
 * region", and in src/kernel/kernel-addon.ts.
 *
 * INVARIANT: the `unique` of a small slot is 0 unless the slot has a request without a reply, or the replies of its batch are being written.
 * With a keeper, the region outlives this process: `inherit` finds these requests again. The kernel refuses a second reply, and a batch that
 * is served again ends in the same state.
 */
#include "fuse-kernel.h"
#include "fuse-protocol.h"
#include "handover.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096u
#define PAYLOAD_MAX (1024u * 1024u) /* max_write, and the longest read */
#define SMALL_BYTES 8192u
#define BATCH_MAX 32u
#define TURN_NS 500000u /* a turn of the loop ends after this long */
#define SINGLES_IN_A_ROW 8u
#define PIECES_MAX 1000u /* below UIO_MAXIOV (1024), with room for the header */

/* Control words of one request of a batch; the control area holds BATCH_MAX of them, at the start of the region. */
enum {
  ITEM_REQUEST,    /* start of the request */
  ITEM_DATA,       /* start of the part after the first FUSE_WRITE_HEADER_BYTES */
  ITEM_SLOT,       /* number of the small slot */
  ITEM_LARGE,      /* number of the large slot + 1; 0: none */
  ITEM_OUT,        /* where the reply starts */
  ITEM_REPLY,      /* set by JavaScript: length of the reply, or TAKEN */
  ITEM_HELD,       /* set by JavaScript: 1 keeps the slots until `release` */
  ITEM_ERRNO,      /* set for onUnsent: why the reply was not accepted */
  ITEM_INHERITED,  /* 1: an earlier process has read the request, and perhaps answered it */
  ITEM_WORDS
};
#define TAKEN 0xffffffffu /* no reply, or JavaScript sends it */

struct connection {
  int fd;
  atomic_uint descriptor_refs; /* poll handle, notifier, jobs: the descriptor is closed after the last */
  atomic_uint refs;            /* descriptor, ArrayBuffer: the memory is freed after the last */

  int memory;                /* the keeper's memfd; -1 without a keeper */
  struct handover_page *page; /* its first page; NULL without a keeper */
  unsigned char *region;
  size_t region_length;
  size_t records_start, records_length; /* the handover state, at the end of the region */
  uint32_t *control;
  unsigned char *scratch; /* a page for the header, then PAYLOAD_MAX */
  uint32_t *rests; /* by small slot: the large slot + 1 with the rest of its request; 0: the small slot has all of it */
  size_t out_start, small_start, large_start;
  uint32_t small_count, large_count;
  uint32_t *small_free, small_free_count;
  uint32_t *large_free, large_free_count;
  bool *touched;  /* by small slot, then by large slot, with a keeper: its pages are mapped */
  uint32_t *held; /* by small slot: ITEM_LARGE + 1 of the request that holds it; 0: no request does */

  napi_env env;
  napi_ref on_batch, on_unsent, on_ended, resource;
  napi_async_context async;
  napi_async_cleanup_hook_handle hook;
  uv_poll_t *poll;
  struct notifier *notifier;
  bool paused;  /* no free slot: not read until one is released */
  bool closed;
  bool ended;
  bool doubted;      /* a read failed: one more follows before the connection ends */
  uint32_t burst;    /* size of the last batch that was not limited to one request */
  uint32_t singles;  /* batches so far: every SINGLES_IN_A_ROWth is not limited to one request */
  uint64_t answered; /* time of the last batch, monotonic nanoseconds */
  int32_t trust;     /* above 0: busy-wait for the next request */
  uint64_t slow_reply_ns; /* a long reply that took this long is slow */
  uint32_t pool_run;      /* length of the current run of long replies in the pool; 0: the last long reply sent here was not slow */
  uint32_t pool_left;     /* long replies left in the run */
  uint64_t pool_replies;  /* long replies given to the pool because of slow ones */
};

/* ---- lifetime ---- */

static void unref(struct connection *c) {
  if (atomic_fetch_sub(&c->refs, 1) != 1) return;
  if (c->page != NULL) munmap(c->page, HANDOVER_PAGE + c->region_length);
  else munmap(c->region, c->region_length);
  free(c->touched);
  free(c->small_free);
  free(c->large_free);
  free(c->held);
  free(c->poll);
  free(c);
}

static void descriptor_unref(void *argument) {
  struct connection *c = argument;
  if (atomic_fetch_sub(&c->descriptor_refs, 1) != 1) return;
  close(c->fd);
  unref(c);
}

static void region_finalized(napi_env env, void *data, void *hint) {
  (void)env;
  (void)data;
  unref(hint);
}

static void poll_closed(uv_handle_t *handle) {
  struct connection *c = uv_handle_get_data(handle);
  napi_async_cleanup_hook_handle hook = c->hook;
  c->hook = NULL;
  napi_delete_reference(c->env, c->on_batch);
  napi_delete_reference(c->env, c->on_unsent);
  napi_delete_reference(c->env, c->on_ended);
  napi_delete_reference(c->env, c->resource);
  napi_async_destroy(c->env, c->async);
  descriptor_unref(c);
  if (hook != NULL) napi_remove_async_cleanup_hook(hook);
}

static void shut(struct connection *c) {
  if (c->closed) return;
  c->closed = true;
  /* Before the page is unmapped: the list of robust mutexes of this thread leads through it. */
  if (c->page != NULL) pthread_mutex_unlock(&c->page->serving);
  uv_poll_stop(c->poll);
  notifier_close(c->notifier, descriptor_unref, c);
  c->notifier = NULL;
  uv_close((uv_handle_t *)c->poll, poll_closed);
}

/* The environment ends (a Worker's exit): an open uv handle would make Node abort the process. */
static void environment_ends(napi_async_cleanup_hook_handle handle, void *argument) {
  struct connection *c = argument;
  c->hook = handle;
  if (!c->closed) shut(c);
  /* closed, but poll_closed has not run yet: it removes the hook */
}

static double item_offset(struct connection *c, const void *pointer) {
  return (double)((const unsigned char *)pointer - c->region);
}

/* ---- reading ---- */

static unsigned char *small_slot(struct connection *c, uint32_t slot) {
  return c->region + c->small_start + (size_t)slot * SMALL_BYTES;
}

/* The bytes of a large slot; the page before them has room for a request's first bytes. */
static unsigned char *large_slot(struct connection *c, uint32_t slot) {
  return c->region + c->large_start + (size_t)slot * (PAGE + PAYLOAD_MAX) + PAGE;
}

/*
 * Maps the pages of a slot before the kernel copies into it. A process that is being killed gets no new pages: a request that is being
 * copied then would end with EIO, and would not be sent again.
 */
static void touch(struct connection *c, uint32_t index, unsigned char *from, size_t length) {
  if (c->page == NULL || c->touched[index]) return;
  c->touched[index] = true;
  for (volatile unsigned char *at = from; at < from + length; at += PAGE) *at = *at; /* an inherited request stays */
}

/* Stores in program order: they are what a successor finds after SIGKILL. */
static void mark(struct connection *c, uint32_t slot, uint32_t rest) { *(volatile uint32_t *)&c->rests[slot] = rest; }

/* The slot's request has its reply, or none is due. */
static void mark_answered(struct connection *c, uint32_t slot) {
  *(volatile uint64_t *)(small_slot(c, slot) + offsetof(struct fuse_request_header, unique)) = 0;
}

/*
 * Describes a request whose first 80 bytes are in a small slot, and whose rest is in `large`. A short rest is moved into the small slot, so
 * that only long ones use up large slots; there the bytes of a WRITE begin on a page boundary. Also for an inherited request, which may
 * have been moved before.
 */
static bool place(struct connection *c, uint32_t slot, uint32_t large, uint32_t *item) {
  unsigned char *head = small_slot(c, slot), *rest = large_slot(c, large);
  const struct fuse_request_header *header = (const struct fuse_request_header *)head;
  unsigned char *request = head, *data = head + FUSE_WRITE_HEADER_BYTES;
  bool uses_large = header->length > SMALL_BYTES;
  if (uses_large && header->opcode == FUSE_OP_WRITE) {
    data = rest;
  } else if (uses_large) {
    request = rest - FUSE_WRITE_HEADER_BYTES;
    memcpy(request, head, FUSE_WRITE_HEADER_BYTES);
    data = rest;
  } else if (c->rests[slot] != 0) {
    if (header->length > FUSE_WRITE_HEADER_BYTES) memcpy(data, rest, header->length - FUSE_WRITE_HEADER_BYTES);
    atomic_signal_fence(memory_order_seq_cst);
    mark(c, slot, 0);
  }
  item[ITEM_REQUEST] = (uint32_t)item_offset(c, request);
  item[ITEM_DATA] = (uint32_t)item_offset(c, data);
  item[ITEM_SLOT] = slot;
  item[ITEM_LARGE] = uses_large ? large + 1 : 0;
  item[ITEM_OUT] = (uint32_t)(c->out_start + (size_t)(item - c->control) / ITEM_WORDS * SMALL_BYTES);
  item[ITEM_REPLY] = 0;
  item[ITEM_HELD] = 0;
  item[ITEM_ERRNO] = 0;
  item[ITEM_INHERITED] = 0;
  return uses_large;
}

/*
 * Reads one request. The first 80 bytes (the header of a WRITE) go to a small slot, the rest to a large one, because the kernel insists on
 * room for the largest request (fuse_dev_do_read).
 * Returns 1, or a negative errno; -ENOBUFS when a slot must be released first.
 */
static int read_request(struct connection *c, uint32_t *item) {
  if (c->small_free_count == 0 || c->large_free_count == 0) return -ENOBUFS;
  uint32_t slot = c->small_free[c->small_free_count - 1], large = c->large_free[c->large_free_count - 1];
  unsigned char *head = small_slot(c, slot), *rest = large_slot(c, large);
  touch(c, slot, head, SMALL_BYTES);
  touch(c, c->small_count + large, rest - PAGE, PAGE + PAYLOAD_MAX);
  mark(c, slot, large + 1);
  struct iovec iov[2] = {{head, FUSE_WRITE_HEADER_BYTES}, {rest, PAYLOAD_MAX}};
  ssize_t n = readv(c->fd, iov, 2);
  if (n < 0) return -errno; /* nothing was copied, or the connection has ended */
  if ((size_t)n < sizeof(struct fuse_request_header)) return -EIO;
  if (place(c, slot, large, item)) c->large_free_count--;
  c->small_free_count--;
  return 1;
}

static void free_slots(struct connection *c, uint32_t slot, uint32_t large) {
  mark_answered(c, slot);
  c->small_free[c->small_free_count++] = slot;
  if (large != 0) c->large_free[c->large_free_count++] = large - 1;
}

static int write_reply(struct connection *c, const void *reply, size_t length) {
  ssize_t n;
  do {
    n = write(c->fd, reply, length);
  } while (n < 0 && errno == EINTR);
  return n < 0 ? errno : 0;
}

/* Calls a JavaScript function with one number. An exception is dropped: the caller finds the unfinished work. */
static void call(struct connection *c, napi_ref function_ref, double argument) {
  napi_value function, receiver, number, result;
  if (napi_get_reference_value(c->env, function_ref, &function) == napi_ok &&
      napi_get_undefined(c->env, &receiver) == napi_ok && napi_create_double(c->env, argument, &number) == napi_ok) {
    napi_call_function(c->env, receiver, function, 1, &number, &result);
  }
  bool pending = false;
  if (napi_is_exception_pending(c->env, &pending) == napi_ok && pending) {
    napi_value exception;
    napi_get_and_clear_last_exception(c->env, &exception);
  }
}

static bool takes_reply(uint32_t opcode) {
  return opcode != FUSE_OP_FORGET && opcode != FUSE_OP_BATCH_FORGET && opcode != FUSE_OP_INTERRUPT;
}

/* Passes a batch to JavaScript, writes the replies in the slots, and frees the slots that are not held. */
static void answer_batch(struct connection *c, uint32_t count) {
  napi_handle_scope scope;
  napi_callback_scope callback_scope;
  napi_value resource;
  if (napi_open_handle_scope(c->env, &scope) != napi_ok) return;
  bool entered = napi_get_reference_value(c->env, c->resource, &resource) == napi_ok &&
                 napi_open_callback_scope(c->env, resource, c->async, &callback_scope) == napi_ok;
  if (entered) call(c, c->on_batch, (double)count);

  uint32_t unsent = 0;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t *item = c->control + i * ITEM_WORDS;
    unsigned char *reply = c->region + item[ITEM_OUT];
    if (item[ITEM_REPLY] == 0) {
      /* No reply: a bug in the caller, or the environment is going away. The requesting process must not hang. */
      const struct fuse_request_header *request = (const struct fuse_request_header *)(c->region + item[ITEM_REQUEST]);
      if (!takes_reply(request->opcode)) continue;
      struct fuse_reply_header failure = {sizeof failure, -EIO, request->unique};
      memcpy(reply, &failure, sizeof failure);
      item[ITEM_REPLY] = sizeof failure;
    }
    if (item[ITEM_REPLY] == TAKEN || c->closed) continue;
    item[ITEM_ERRNO] = (uint32_t)write_reply(c, reply, item[ITEM_REPLY]);
    if (item[ITEM_ERRNO] != 0) unsent++;
  }
  if (unsent > 0 && entered) call(c, c->on_unsent, (double)count);
  for (uint32_t i = 0; i < count; i++) {
    uint32_t *item = c->control + i * ITEM_WORDS;
    if (item[ITEM_HELD] == 0) free_slots(c, item[ITEM_SLOT], item[ITEM_LARGE]);
    else c->held[item[ITEM_SLOT]] = item[ITEM_LARGE] + 1;
  }
  if (entered) napi_close_callback_scope(c->env, callback_scope); /* runs microtasks, which may call any function here */
  napi_close_handle_scope(c->env, scope);
}

static void end(struct connection *c, int failure) {
  if (c->ended || c->closed) return;
  c->ended = true;
  uv_poll_stop(c->poll);
  napi_handle_scope scope;
  napi_callback_scope callback_scope;
  napi_value resource;
  if (napi_open_handle_scope(c->env, &scope) != napi_ok) return;
  if (napi_get_reference_value(c->env, c->resource, &resource) == napi_ok &&
      napi_open_callback_scope(c->env, resource, c->async, &callback_scope) == napi_ok) {
    call(c, c->on_ended, (double)failure);
    napi_close_callback_scope(c->env, callback_scope);
  }
  napi_close_handle_scope(c->env, scope);
}

static uint64_t monotonic_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/*
 * Busy-waits for the next request. A sequential caller returns a few microseconds after its reply; waking a sleeping thread would cost
 * more than the reply, on both sides (measured on two CPUs that halt when idle: getattr 48 µs with 21 µs of own CPU, awake 19 and 21).
 * Busy-waiting pays only while it succeeds: a request within AWAKE_NS earns trust, a wait in vain costs four times as much. Yielding in
 * between lets a caller on the same CPU run.
 */
#define AWAKE_NS 50000u
#define TRUST_MAX 16
#define TRUST_LOST 4

static int read_awake(struct connection *c, uint32_t *item) {
  int result = read_request(c, item);
  if (result != -EAGAIN || c->trust <= 0) return result;
  while (result == -EAGAIN && monotonic_ns() - c->answered < AWAKE_NS) {
    sched_yield();
    result = read_request(c, item);
  }
  if (result == -EAGAIN) c->trust -= TRUST_LOST;
  else if (c->trust < TRUST_MAX) c->trust++;
  return result;
}

static void readable(uv_poll_t *handle, int status, int events) {
  /* An error status (EPOLLERR: the connection is gone) needs no branch: the read returns the error. */
  (void)status;
  (void)events;
  struct connection *c = uv_handle_get_data((uv_handle_t *)handle);
  uint64_t started = monotonic_ns();
  if (c->trust <= 0) c->trust = started - c->answered < AWAKE_NS ? c->trust + 1 : 0;
  for (bool first = true; !c->closed && !c->ended; first = false) {
    /* A single caller gets its reply before the next read; many callers share one call into JavaScript. */
    uint32_t limit = c->burst <= 1 && c->singles % SINGLES_IN_A_ROW != 0 ? 1 : BATCH_MAX, count = 0;
    int result = 1;
    while (count < limit) {
      uint32_t *item = c->control + count * ITEM_WORDS;
      result = count > 0 || first ? read_request(c, item) : read_awake(c, item);
      if (result > 0) count++;
      else if (result != -EINTR && result != -ENOENT) break; /* ENOENT: that request was interrupted before we had it */
    }
    c->singles++;
    if (limit > 1) c->burst = count;
    if (count > 0) {
      answer_batch(c, count);
      c->answered = monotonic_ns();
      c->doubted = false;
    }
    if (c->closed || c->ended) return;
    if (result == -ENOBUFS) {
      if (c->small_free_count > 0 && c->large_free_count > 0) continue; /* this batch has just freed slots */
      c->paused = true;
      uv_poll_stop(c->poll);
      return;
    }
    if (result < 0 && result != -EAGAIN) {
      if (result == -ENODEV || c->doubted) {
        end(c, -result);
        return;
      }
      /*
       * A read during the end of the connection may return ECONNABORTED even after an orderly unmount (fpq->connected in fuse_dev_do_read): the
       * read after it returns the true reason. The poll error has stopped the polling.
       */
      c->doubted = true;
      uv_poll_start(c->poll, UV_POLL_READABLE, readable);
      return;
    }
    if (count == 0 || c->trust <= 0 || c->answered - started > TURN_NS) return; /* level-triggered: the next turn continues */
  }
}

/* ---- functions for JavaScript; `data` of each one is its connection ---- */

static struct connection *arguments_of(napi_env env, napi_callback_info info, size_t count, napi_value *argv) {
  size_t argc = count;
  void *data;
  if (napi_get_cb_info(env, info, &argc, argv, NULL, &data) != napi_ok || argc < count) return NULL;
  struct connection *c = data;
  return c->closed ? NULL : c;
}

/* send(offset, length): writes the reply in the region; a negative errno when the kernel does not accept it. */
static napi_value connection_send(napi_env env, napi_callback_info info) {
  napi_value argv[2];
  uint32_t offset, length;
  struct connection *c = arguments_of(env, info, 2, argv);
  if (c == NULL) return number_of(env, -EBADF);
  if (napi_get_value_uint32(env, argv[0], &offset) != napi_ok || napi_get_value_uint32(env, argv[1], &length) != napi_ok ||
      (size_t)offset + length > c->region_length) {
    return number_of(env, -EINVAL);
  }
  return number_of(env, -write_reply(c, c->region + offset, length));
}

/*
 * release(slot, large): frees the slots of a held request. Any other pair is ignored: a slot that is freed twice would serve two requests
 * at a time, and overrun the lists of free slots.
 */
static napi_value connection_release(napi_env env, napi_callback_info info) {
  napi_value argv[2];
  uint32_t slot, large;
  struct connection *c = arguments_of(env, info, 2, argv);
  if (c == NULL) return NULL;
  if (napi_get_value_uint32(env, argv[0], &slot) != napi_ok || napi_get_value_uint32(env, argv[1], &large) != napi_ok ||
      slot >= c->small_count || c->held[slot] == 0 || c->held[slot] - 1 != large) {
    return NULL;
  }
  c->held[slot] = 0;
  free_slots(c, slot, large);
  if (c->paused && c->small_free_count > 0 && c->large_free_count > 0 && !c->ended) {
    c->paused = false;
    uv_poll_start(c->poll, UV_POLL_READABLE, readable);
  }
  return NULL;
}

/* answered(slot): the request of a held slot has its reply. The slot still has its bytes. */
static napi_value connection_answered(napi_env env, napi_callback_info info) {
  napi_value argv[1];
  uint32_t slot;
  struct connection *c = arguments_of(env, info, 1, argv);
  if (c != NULL && napi_get_value_uint32(env, argv[0], &slot) == napi_ok && slot < c->small_count) mark_answered(c, slot);
  return NULL;
}

/* A READ reply with bytes outside the page cache: a thread of the pool reads and writes it. */
struct job {
  struct connection *c;
  napi_async_work work;
  napi_ref done;
  int failure;
  unsigned char *reply;
  size_t length;
  uint32_t slices;
  struct slice {
    int fd;
    off_t position;
    size_t length;
    unsigned char *target;
  } slice[];
};

static void job_run(napi_env env, void *data) {
  (void)env;
  struct job *job = data;
  for (uint32_t i = 0; i < job->slices && job->failure == 0; i++) {
    struct slice *slice = &job->slice[i];
    for (size_t have = 0; have < slice->length;) {
      ssize_t n = pread(slice->fd, slice->target + have, slice->length - have, slice->position + (off_t)have);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        job->failure = n < 0 ? errno : EIO; /* the file is shorter than its owner stated */
        break;
      }
      have += (size_t)n;
    }
  }
  struct fuse_reply_header *header = (struct fuse_reply_header *)job->reply;
  if (job->failure != 0) {
    header->length = sizeof *header;
    header->error = -EIO;
  }
  write_reply(job->c, job->reply, header->length);
}

static void job_free(struct job *job) {
  for (uint32_t i = 0; i < job->slices; i++) close(job->slice[i].fd);
  descriptor_unref(job->c);
  free(job->reply);
  free(job);
}

static void job_done(napi_env env, napi_status status, void *data) {
  struct job *job = data;
  napi_value function, receiver, failure, result;
  if (status == napi_ok && napi_get_reference_value(env, job->done, &function) == napi_ok &&
      napi_get_undefined(env, &receiver) == napi_ok && napi_create_int32(env, job->failure, &failure) == napi_ok) {
    napi_call_function(env, receiver, function, 1, &failure, &result);
  }
  napi_delete_reference(env, job->done);
  napi_delete_async_work(env, job->work);
  job_free(job);
}

struct piece {
  unsigned char *bytes; /* NULL: a slice of a file */
  size_t length;
  int fd;
  off_t position;
};

/* Whether a cast to an integer type of the range 0 to `max` is defined. NaN fails every comparison. */
static bool is_within(double number, double max) { return number >= 0 && number <= max; }

#define POSITION_MAX 9007199254740991.0 /* 2^53 - 1: the largest exact double */

static bool piece_of(napi_env env, napi_value value, struct piece *piece) {
  napi_typedarray_type type;
  void *data;
  size_t length;
  if (napi_get_typedarray_info(env, value, &type, &length, &data, NULL, NULL) != napi_ok) return false;
  if (type == napi_float64_array) {
    const double *numbers = data; /* descriptor, position, length */
    if (length < 3 || !is_within(numbers[0], INT32_MAX) || !is_within(numbers[1], POSITION_MAX) ||
        !is_within(numbers[2], PAYLOAD_MAX)) {
      return false;
    }
    *piece = (struct piece){NULL, (size_t)numbers[2], (int)numbers[0], (off_t)numbers[1]};
  } else {
    *piece = (struct piece){data, length, -1, 0};
  }
  return true;
}

/* Passes a reply to the pool. Descriptors are duplicated: their owner may close them meanwhile. */
static int start_job(napi_env env, struct connection *c, uint64_t unique, const struct piece *pieces, uint32_t count,
                     size_t total, napi_value done) {
  struct job *job = calloc(1, sizeof *job + count * sizeof(struct slice));
  if (job == NULL) return ENOMEM;
  job->c = c;
  job->length = sizeof(struct fuse_reply_header) + total;
  job->reply = malloc(job->length);
  atomic_fetch_add(&c->descriptor_refs, 1);
  if (job->reply == NULL) {
    job_free(job);
    return ENOMEM;
  }
  struct fuse_reply_header header = {(uint32_t)job->length, 0, unique};
  memcpy(job->reply, &header, sizeof header);
  unsigned char *target = job->reply + sizeof header;
  for (uint32_t i = 0; i < count; target += pieces[i].length, i++) {
    if (pieces[i].bytes != NULL) {
      memcpy(target, pieces[i].bytes, pieces[i].length);
      continue;
    }
    int fd = fcntl(pieces[i].fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) {
      int failure = errno;
      job_free(job);
      return failure;
    }
    job->slice[job->slices++] = (struct slice){fd, pieces[i].position, pieces[i].length, target};
  }
  napi_value name;
  if (napi_create_string_utf8(env, "fuse-kernel read", NAPI_AUTO_LENGTH, &name) == napi_ok &&
      napi_create_reference(env, done, 1, &job->done) == napi_ok) {
    if (napi_create_async_work(env, NULL, name, job_run, job_done, job, &job->work) == napi_ok) {
      if (napi_queue_async_work(env, job->work) == napi_ok) return 0;
      napi_delete_async_work(env, job->work);
    }
    napi_delete_reference(env, job->done);
  }
  job_free(job);
  return ENOMEM;
}

/*
 * A long reply takes 0.1 to 0.2 ms for 1 MiB, but 3 ms where a host must first map each new page of the reader's page cache, and blocks
 * all other requests. After a slow one the pool sends the next ones. Its runs get longer as long as the reply between two runs is slow again.
 */
#define LONG_REPLY (128u * 1024u)
#define POOL_RUN_FIRST 16u
#define POOL_RUN_MAX 1024u

static void note_long_reply(struct connection *c, uint64_t took_ns) {
  if (took_ns < c->slow_reply_ns) c->pool_run = 0;
  else if (c->pool_run == 0) c->pool_run = POOL_RUN_FIRST;
  else if (c->pool_run < POOL_RUN_MAX) c->pool_run *= 2;
  c->pool_left = c->pool_run;
}

/*
 * sendPieces(uniqueLow, uniqueHigh, pieces, done): a READ reply gathered from Uint8Arrays and from slices of files
 * (Float64Array: descriptor, position, length). 0: sent; 1: a slice was not in the page cache, or long replies are slow: `done(errno)` is
 * called when the pool has sent it (the reply to an errno was EIO); negative errno: nothing was sent.
 */
static napi_value connection_send_pieces(napi_env env, napi_callback_info info) {
  napi_value argv[4], element;
  uint32_t low, high, count;
  struct connection *c = arguments_of(env, info, 4, argv);
  if (c == NULL) return number_of(env, -EBADF);
  if (napi_get_value_uint32(env, argv[0], &low) != napi_ok || napi_get_value_uint32(env, argv[1], &high) != napi_ok ||
      napi_get_array_length(env, argv[2], &count) != napi_ok || count > PIECES_MAX) {
    return number_of(env, -EINVAL);
  }
  struct piece pieces[PIECES_MAX];
  struct iovec iov[PIECES_MAX + 1];
  size_t total = 0;
  for (uint32_t i = 0; i < count; i++) {
    if (napi_get_element(env, argv[2], i, &element) != napi_ok || !piece_of(env, element, &pieces[i])) {
      return number_of(env, -EINVAL);
    }
    total += pieces[i].length;
  }
  if (total > PAYLOAD_MAX) return number_of(env, -EINVAL);
  uint64_t unique = (uint64_t)high << 32 | low;

  bool has_slices = false;
  for (uint32_t i = 0; i < count; i++) has_slices |= pieces[i].bytes == NULL;
  bool is_long = has_slices && total >= LONG_REPLY, ready = true;
  if (is_long && c->pool_left > 0) {
    c->pool_left--;
    c->pool_replies++;
    ready = false;
  }
  uint64_t started = is_long ? monotonic_ns() : 0;
  size_t used = 0; /* of the scratch area */
  for (uint32_t i = 0; ready && i < count; i++) {
    iov[i + 1] = (struct iovec){pieces[i].bytes, pieces[i].length};
    if (pieces[i].bytes != NULL || pieces[i].length == 0) continue;
    struct iovec target = {c->scratch + PAGE + used, pieces[i].length};
    ssize_t n = preadv2(pieces[i].fd, &target, 1, pieces[i].position, RWF_NOWAIT);
    ready = n == (ssize_t)pieces[i].length;
    used += pieces[i].length;
    iov[i + 1] = target;
  }
  if (!ready) {
    int failure = start_job(env, c, unique, pieces, count, total, argv[3]);
    return number_of(env, failure == 0 ? 1 : -failure);
  }
  struct fuse_reply_header header = {(uint32_t)(sizeof header + total), 0, unique};
  iov[0] = (struct iovec){&header, sizeof header};
  ssize_t n;
  do {
    n = writev(c->fd, iov, (int)count + 1);
  } while (n < 0 && errno == EINTR);
  int failure = n < 0 ? errno : 0;
  if (is_long) note_long_reply(c, monotonic_ns() - started);
  return number_of(env, -failure);
}

/*
 * notify(offset, length, queueMax, row): 1 when queued, 0 when the queue is full. `row`: a double of the region that becomes 0 as soon as the
 * message is written; 0: none.
 */
static napi_value connection_notify(napi_env env, napi_callback_info info) {
  napi_value argv[4];
  uint32_t offset, length, queue_max, row;
  struct connection *c = arguments_of(env, info, 4, argv);
  if (c == NULL) return number_of(env, 1); /* unmounted: no caches are left to invalidate */
  if (napi_get_value_uint32(env, argv[0], &offset) != napi_ok || napi_get_value_uint32(env, argv[1], &length) != napi_ok ||
      napi_get_value_uint32(env, argv[2], &queue_max) != napi_ok || napi_get_value_uint32(env, argv[3], &row) != napi_ok ||
      (size_t)offset + length > c->region_length || row % sizeof(uint64_t) != 0 ||
      (size_t)row + sizeof(uint64_t) > c->region_length) {
    return number_of(env, 0);
  }
  /* The region lives until the notifier has ended: it holds the descriptor. */
  uint64_t *cell = row == 0 ? NULL : (uint64_t *)(c->region + row);
  return number_of(env, notifier_push(c->notifier, c->region + offset, length, queue_max, cell) ? 1 : 0);
}

/* counts(): [notifications written, unknown to the kernel, failed, waiting, free small slots, free large slots, pool_replies] */
static napi_value connection_counts(napi_env env, napi_callback_info info) {
  napi_value result, argv[1];
  struct connection *c = arguments_of(env, info, 0, argv);
  TRY_NAPI(napi_create_array(env, &result));
  if (c == NULL) return result;
  struct notifier_counts n = notifier_counts(c->notifier);
  double values[] = {(double)n.written, (double)n.unknown,           (double)n.failed,
                     (double)n.waiting, (double)c->small_free_count, (double)c->large_free_count,
                     (double)c->pool_replies};
  for (uint32_t i = 0; i < sizeof values / sizeof *values; i++) {
    TRY_NAPI(napi_set_element(env, result, i, number_of(env, values[i])));
  }
  return result;
}

/*
 * resend(): the kernel sends all requests again that an earlier process has read and not answered (FUSE_NOTIFY_RESEND), with bit 63 of
 * their `unique` set. @returns a negative errno where the kernel does not know the message (EINVAL before Linux 6.9)
 */
static napi_value connection_resend(napi_env env, napi_callback_info info) {
  napi_value argv[1];
  struct connection *c = arguments_of(env, info, 0, argv);
  if (c == NULL) return number_of(env, -EBADF);
  struct fuse_reply_header message = {sizeof message, FUSE_NOTIFY_CODE_RESEND, 0};
  return number_of(env, -write_reply(c, &message, sizeof message));
}

static uint64_t unique_of(struct connection *c, uint32_t slot) {
  return ((const struct fuse_request_header *)small_slot(c, slot))->unique;
}

/* A free list without the numbers that are in use. */
static uint32_t list_free(uint32_t *list, uint32_t count, const bool *used) {
  uint32_t free_count = 0;
  for (uint32_t i = count; i-- > 0;) {
    if (!used[i]) list[free_count++] = i;
  }
  return free_count;
}

/*
 * inherit(isResent): passes the requests without a reply of an earlier process to `onBatch`, in the order in which the kernel sent them. Before
 * the first read. `isResent`: only those that take no reply, because the kernel sends the others again.
 */
static napi_value connection_inherit(napi_env env, napi_callback_info info) {
  napi_value argv[1];
  bool is_resent = false;
  struct connection *c = arguments_of(env, info, 1, argv);
  if (c == NULL || napi_get_value_bool(env, argv[0], &is_resent) != napi_ok) return NULL;
  uint32_t *slots = calloc(c->small_count, sizeof(uint32_t)), count = 0;
  bool *used = calloc(c->small_count + c->large_count, sizeof(bool));
  for (uint32_t slot = 0; slots != NULL && used != NULL && slot < c->small_count; slot++) {
    const struct fuse_request_header *header = (const struct fuse_request_header *)small_slot(c, slot);
    if (header->unique == 0) continue;
    /* The session looks at the callers itself, instead of interrupts. */
    if (header->opcode == FUSE_OP_INTERRUPT || (is_resent && takes_reply(header->opcode))) {
      mark_answered(c, slot);
      continue;
    }
    uint32_t at = count++;
    for (; at > 0 && unique_of(c, slots[at - 1]) > unique_of(c, slot); at--) slots[at] = slots[at - 1];
    slots[at] = slot;
    used[slot] = true;
    if (header->length > SMALL_BYTES) used[c->small_count + c->rests[slot] - 1] = true;
  }
  if (slots != NULL && used != NULL) {
    c->small_free_count = list_free(c->small_free, c->small_count, used);
    c->large_free_count = list_free(c->large_free, c->large_count, used + c->small_count);
  }
  for (uint32_t done = 0, batch = 0; done < count; done += batch) {
    for (batch = 0; batch < BATCH_MAX && done + batch < count; batch++) {
      uint32_t *item = c->control + batch * ITEM_WORDS, slot = slots[done + batch];
      place(c, slot, c->rests[slot] == 0 ? 0 : c->rests[slot] - 1, item);
      item[ITEM_INHERITED] = 1;
    }
    answer_batch(c, batch);
  }
  free(slots);
  free(used);
  return number_of(env, count);
}

/* close(): stops serving; the descriptor is closed as soon as no thread uses it. Idempotent. */
static napi_value connection_close(napi_env env, napi_callback_info info) {
  napi_value argv[1];
  struct connection *c = arguments_of(env, info, 0, argv);
  if (c == NULL) return NULL;
  shut(c);
  return NULL;
}

/* Maps the keeper's memory, which the first process makes as long as it needs it. */
static bool map_memory(struct connection *c) {
  struct stat st;
  size_t length = HANDOVER_PAGE + c->region_length;
  if (fstat(c->memory, &st) != 0) return false;
  if (st.st_size == HANDOVER_PAGE && ftruncate(c->memory, (off_t)length) != 0) return false;
  if (st.st_size != HANDOVER_PAGE && (size_t)st.st_size != length) return false; /* of another version */
  void *map = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, c->memory, 0);
  c->touched = calloc(c->small_count + c->large_count, sizeof(bool));
  if (map == MAP_FAILED || c->touched == NULL) return false;
  c->page = map;
  c->region = (unsigned char *)map + HANDOVER_PAGE;
  return true;
}

/* Becomes the thread that answers. The keeper starts a successor only when the mutex has no owner any more. */
#define SERVING_SECONDS_MAX 5
static bool take_serving(struct connection *c) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += SERVING_SECONDS_MAX;
  int failure = pthread_mutex_timedlock(&c->page->serving, &until);
  if (failure == EOWNERDEAD) failure = pthread_mutex_consistent(&c->page->serving);
  return failure == 0;
}

static bool allocate_region(struct connection *c) {
  size_t scratch_start = PAGE;
  size_t rests_start = scratch_start + PAGE + PAYLOAD_MAX;
  c->out_start = rests_start + (c->small_count * sizeof(uint32_t) + PAGE - 1) / PAGE * PAGE;
  c->small_start = c->out_start + BATCH_MAX * SMALL_BYTES;
  c->large_start = c->small_start + (size_t)c->small_count * SMALL_BYTES;
  c->records_start = c->large_start + (size_t)c->large_count * (PAGE + PAYLOAD_MAX);
  c->region_length = c->records_start + c->records_length;
  if (c->memory >= 0) {
    if (!map_memory(c)) return false;
  } else {
    c->region = mmap(NULL, c->region_length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (c->region == MAP_FAILED) return false;
  }
  c->control = (uint32_t *)c->region;
  c->scratch = c->region + scratch_start;
  c->rests = (uint32_t *)(c->region + rests_start);
  c->small_free = calloc(c->small_count, sizeof(uint32_t));
  c->large_free = calloc(c->large_count, sizeof(uint32_t));
  c->held = calloc(c->small_count, sizeof(uint32_t));
  if (c->small_free == NULL || c->large_free == NULL || c->held == NULL) return false;
  for (uint32_t i = c->small_count; i-- > 0;) c->small_free[c->small_free_count++] = i;
  for (uint32_t i = c->large_count; i-- > 0;) c->large_free[c->large_free_count++] = i;
  return true;
}

static bool reference(napi_env env, napi_value value, napi_ref *ref) {
  return napi_create_reference(env, value, 1, ref) == napi_ok;
}

/*
 * openConnection(fd, smallSlots, largeSlots, slowReplyNs, onBatch, onUnsent, onEnded, memory?, recordsBytes?): serves `fd` from now on and
 * owns it. `memory`: the keeper's memfd, which holds the region and after it `recordsBytes` of handover state.
 * Returns an object of the functions above and the region, or a negative errno: the caller still owns `fd` then.
 */
napi_value connection_open(napi_env env, napi_callback_info info) {
  napi_value argv[9], result, buffer, resource, name;
  size_t argc = 9;
  int32_t fd, memory = -1;
  uint32_t records_length = 0;
  uint32_t small_count, large_count, slow_reply_ns;
  uv_loop_t *loop;
  TRY_NAPI(napi_get_cb_info(env, info, &argc, argv, NULL, NULL));
  if (argc < 7 || napi_get_value_int32(env, argv[0], &fd) != napi_ok ||
      napi_get_value_uint32(env, argv[1], &small_count) != napi_ok ||
      napi_get_value_uint32(env, argv[2], &large_count) != napi_ok ||
      napi_get_value_uint32(env, argv[3], &slow_reply_ns) != napi_ok || small_count < BATCH_MAX || large_count < 2 ||
      (argc >= 9 && (napi_get_value_int32(env, argv[7], &memory) != napi_ok ||
                     napi_get_value_uint32(env, argv[8], &records_length) != napi_ok))) {
    return number_of(env, -EINVAL);
  }
  TRY_NAPI(napi_get_uv_event_loop(env, (struct uv_loop_s **)&loop));
  struct connection *c = calloc(1, sizeof *c);
  if (c == NULL) return number_of(env, -ENOMEM);
  *c = (struct connection){.fd = fd, .env = env, .small_count = small_count, .large_count = large_count,
                           .slow_reply_ns = slow_reply_ns, .memory = memory, .records_length = records_length};
  c->poll = calloc(1, uv_handle_size(UV_HANDLE_TYPE_POLL));
  c->notifier = notifier_create(fd);
  if (c->poll == NULL || c->notifier == NULL || !allocate_region(c)) return number_of(env, -ENOMEM); /* ends the start */
  if (c->page != NULL) {
    /* Inherited from the keeper, and not for the programs that this process starts. */
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 || fcntl(memory, F_SETFD, FD_CLOEXEC) != 0) return number_of(env, -errno);
    if (!take_serving(c)) return number_of(env, -ETIMEDOUT);
  }
  int failure = uv_poll_init(loop, c->poll, fd);
  if (failure != 0) return number_of(env, failure);
  uv_handle_set_data((uv_handle_t *)c->poll, c);
  atomic_init(&c->descriptor_refs, 2); /* poll handle, notifier */
  atomic_init(&c->refs, 2);            /* descriptor, ArrayBuffer */

  bool ok = napi_create_object(env, &result) == napi_ok && napi_create_object(env, &resource) == napi_ok &&
            napi_create_string_utf8(env, "FUSE", NAPI_AUTO_LENGTH, &name) == napi_ok &&
            napi_async_init(env, resource, name, &c->async) == napi_ok && reference(env, resource, &c->resource) &&
            reference(env, argv[4], &c->on_batch) && reference(env, argv[5], &c->on_unsent) &&
            reference(env, argv[6], &c->on_ended) &&
            napi_create_external_arraybuffer(env, c->region, c->region_length, region_finalized, c, &buffer) == napi_ok;
  /* Immediately: V8 starts to collect when it allocates something while it counts the region. A thread has one connection. */
  if (ok) lasting_memory_keep(env, buffer);
  ok = ok && napi_set_named_property(env, result, "region", buffer) == napi_ok &&
       napi_set_named_property(env, result, "scratchStart", number_of(env, item_offset(c, c->scratch))) == napi_ok &&
       napi_set_named_property(env, result, "recordsStart", number_of(env, (double)c->records_start)) == napi_ok &&
       define_function(env, result, "send", connection_send, c) &&
       define_function(env, result, "sendPieces", connection_send_pieces, c) &&
       define_function(env, result, "release", connection_release, c) &&
       define_function(env, result, "notify", connection_notify, c) &&
       define_function(env, result, "counts", connection_counts, c) &&
       define_function(env, result, "resend", connection_resend, c) &&
       define_function(env, result, "inherit", connection_inherit, c) &&
       define_function(env, result, "answered", connection_answered, c) &&
       define_function(env, result, "close", connection_close, c) &&
       napi_add_async_cleanup_hook(env, environment_ends, c, &c->hook) == napi_ok;
  if (!ok || uv_poll_start(c->poll, UV_POLL_READABLE, readable) != 0) {
    shut(c);
    c->fd = -1; /* owned by the caller: when the handle is closed, the number may be in use again */
    return number_of(env, -ENOMEM);
  }
  return result;
}
