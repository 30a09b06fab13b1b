/*
 * Threads of their own write notifications (FUSE_NOTIFY_INVAL_INODE and its kind). During that write the kernel takes inode and page locks
 * (fuse_reverse_inval_entry, invalidate_inode_pages2_range) that a pending request may hold until its reply. The thread that replies must
 * therefore never write one. There are several threads, so that a blocked one does not delay the others; src/kernel/invalidate.ts
 * holds back notifications that would surely block.
 */
#include "fuse-kernel.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS_MAX 4

struct message {
  struct message *next;
  uint64_t *row;
  size_t length;
  unsigned char bytes[];
};

struct notifier {
  int fd;
  pthread_mutex_t lock;
  pthread_cond_t filled;
  struct message *first, **last;
  uint32_t waiting; /* in the queue */
  uint32_t writing; /* taken from it, and not written yet */
  uint32_t threads, idle;
  bool closed;
  struct notifier_counts counts;
  void (*after)(void *);
  void *argument;
};

struct notifier *notifier_create(int fd) {
  struct notifier *n = calloc(1, sizeof *n);
  if (n == NULL) return NULL;
  n->fd = fd;
  n->last = &n->first;
  pthread_mutex_init(&n->lock, NULL);
  pthread_cond_init(&n->filled, NULL);
  return n;
}

static void destroy(struct notifier *n) {
  void (*after)(void *) = n->after;
  void *argument = n->argument;
  pthread_mutex_destroy(&n->lock);
  pthread_cond_destroy(&n->filled);
  free(n);
  after(argument);
}

static void *run(void *argument) {
  struct notifier *n = argument;
  pthread_mutex_lock(&n->lock);
  for (;;) {
    while (n->first == NULL && !n->closed) {
      n->idle++;
      pthread_cond_wait(&n->filled, &n->lock);
      n->idle--;
    }
    if (n->closed) break;
    struct message *message = n->first;
    n->first = message->next;
    if (n->first == NULL) n->last = &n->first;
    n->waiting--;
    n->writing++;
    pthread_mutex_unlock(&n->lock);

    ssize_t result;
    do {
      result = write(n->fd, message->bytes, message->length);
    } while (result < 0 && errno == EINTR);
    int failure = result < 0 ? errno : 0;
    if (message->row != NULL) *(volatile uint64_t *)message->row = 0; /* a successor need not send it */
    free(message);

    pthread_mutex_lock(&n->lock);
    n->writing--;
    if (failure == 0) n->counts.written++;
    else if (failure == ENOENT) n->counts.unknown++;
    else n->counts.failed++;
  }
  bool last = --n->threads == 0;
  pthread_mutex_unlock(&n->lock);
  if (last) destroy(n);
  return NULL;
}

bool notifier_push(struct notifier *n, const void *bytes, size_t length, uint32_t queue_max, uint64_t *row) {
  struct message *message = malloc(sizeof *message + length);
  if (message == NULL) return false;
  message->next = NULL;
  message->row = row;
  message->length = length;
  memcpy(message->bytes, bytes, length);

  pthread_mutex_lock(&n->lock);
  if (n->closed || n->waiting >= queue_max) {
    pthread_mutex_unlock(&n->lock);
    free(message);
    return false;
  }
  *n->last = message;
  n->last = &message->next;
  n->waiting++;
  if (n->waiting > n->idle && n->threads < THREADS_MAX) {
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &attributes, run, n) == 0) n->threads++;
    pthread_attr_destroy(&attributes);
  }
  bool accepted = n->threads > 0;
  pthread_cond_signal(&n->filled);
  pthread_mutex_unlock(&n->lock);
  return accepted;
}

struct notifier_counts notifier_counts(struct notifier *n) {
  pthread_mutex_lock(&n->lock);
  struct notifier_counts counts = n->counts;
  counts.waiting = n->waiting + n->writing;
  pthread_mutex_unlock(&n->lock);
  return counts;
}

void notifier_close(struct notifier *n, void (*after)(void *), void *argument) {
  pthread_mutex_lock(&n->lock);
  n->closed = true;
  n->after = after;
  n->argument = argument;
  while (n->first != NULL) {
    struct message *message = n->first;
    n->first = message->next;
    free(message);
  }
  n->waiting = 0;
  bool none = n->threads == 0;
  pthread_cond_broadcast(&n->filled);
  pthread_mutex_unlock(&n->lock);
  if (none) destroy(n);
}
