/* Shared by receiver.c (the thread) and receiver-calls.c (the interface to JavaScript). */
#ifndef CFS_RECEIVER_H
#define CFS_RECEIVER_H

#include "fuse-kernel.h"
#include "records.h"

#include <pthread.h>

#define BLOCK_BYTES (128 * 1024) /* src/base/vocabulary.ts: each has one checksum */
#define HEAD_BYTES_MAX (16 * 1024)

/* Numbers repeated in src/remote/http/receiver.ts. */
enum phase {
  IDLE = 0, /* no request is pending */
  HEAD = 1, /* a request was sent, the head of its response is pending */
  HEAD_READ = 2, /* the head was received: JavaScript assigns a file to the body, or drops the line */
  BODY = 3, /* the body goes into a file */
  OVER = 4, /* closed by the peer, or failed; JavaScript drops the line */
  GONE = 5, /* closed here: no write follows */
};

/* One connection. The thread handles it only after an armed event (EPOLLONESHOT), so never in HEAD_READ and OVER. */
struct line {
  struct line *next, *next_news;
  uint32_t id;
  int fd, file;
  struct records *records; /* NULL for a connection without TLS */
  enum phase phase;
  bool is_dropped, is_news;
  uint64_t received;     /* bytes since it was adopted */
  uint64_t start, at, end; /* of the body: position of its first and of its next byte, and its end */
  uint64_t posted_to;      /* position in the last message to JavaScript */
  uint64_t looked_at;    /* position at the last check */
  int low_water;         /* this many bytes wake the thread */
  uint32_t checksum;       /* checksum of the received part of the block */
  bool checksum_is_whole;  /* the block was received from its first byte on */
  uint32_t *checksums;     /* checksums of blocks completed since the last message */
  size_t checksums_have;
  size_t head_length, early_have;
  unsigned char early[HEAD_BYTES_MAX]; /* the head, and the bytes received with it */
};

/* INVARIANT: the lock protects everything except the body of one line in BODY, on which `receive_body` works. */
struct receiver {
  pthread_mutex_t lock;
  pthread_t thread;
  int epoll, wake;
  bool is_closed, is_posting;
  bool is_patient;   /* a line may wait for more bytes than the rest of its block */
  int64_t looked_ns; /* time of the last check of the lines */
  int64_t unposted_ns; /* time of the first byte in a file without a message to JavaScript; 0: none */
  uint32_t ids;
  struct line *lines, *news, **last_news;
  unsigned char *buffer; /* of one step */
  void (*on_news)(struct receiver *); /* called with the lock, once until `is_posting` is false again */
};

/* All except `receiver_open` and `receiver_close` are called with the lock. Results are 0, or a negative errno. */
struct receiver *receiver_open(struct receiver *zeroed);
/* Ends the thread, closes and frees all lines; no write follows. Only the first call has an effect. */
void receiver_close(struct receiver *r);
/* A line on a duplicate of `fd`. `records` become its own if it succeeds. @returns NULL, with errno */
struct line *receiver_adopt(struct receiver *r, int fd, struct records *records);
/* @returns NULL for a line that no longer exists, or is dropped */
struct line *receiver_line(struct receiver *r, uint32_t id);
/* Sends a request on an idle line. -EAGAIN if the socket did not take all of it; -ECONNRESET if it ended, or sent unrequested bytes. */
int receiver_ask(struct receiver *r, struct line *line, const void *request, size_t length);
/* Writes the `length` bytes after the head to `position` of a duplicate of `file`. */
int receiver_land(struct receiver *r, struct line *line, int file, uint64_t position, uint64_t length);
void receiver_drop(struct receiver *r, struct line *line);
/* Removes the first of `news`, the pending messages to JavaScript, from the queue. */
void receiver_take_news(struct receiver *r);
/* Frees a line that is gone. */
void receiver_forget(struct receiver *r, struct line *line);

#endif
