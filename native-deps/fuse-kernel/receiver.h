/* What receiver.c (the thread) and receiver-calls.c (what JavaScript calls and hears) share. */
#ifndef CFS_RECEIVER_H
#define CFS_RECEIVER_H

#include "fuse-kernel.h"

#include <pthread.h>

#define BLOCK_BYTES (128 * 1024) /* src/base/vocabulary.ts: what a mark is of */
#define HEAD_BYTES_MAX (16 * 1024)

/* Numbers that src/remote/receiver.ts knows, too. */
enum phase {
  IDLE = 0, /* nobody waits for anything */
  HEAD = 1, /* a request was sent, the head of its answer is awaited */
  TOLD = 2, /* the head came: JavaScript says where its body goes, or drops the line */
  BODY = 3, /* the body goes into a file */
  OVER = 4, /* ended over there, or failed; JavaScript drops the line */
  GONE = 5, /* closed here: nothing is written for it any more */
};

/* One connection. The thread looks at it when an event was armed (EPOLLONESHOT), so never in TOLD and OVER. */
struct line {
  struct line *next, *next_news;
  uint32_t id;
  int fd, file;
  enum phase phase;
  bool is_dropped, is_news;
  uint64_t received;     /* bytes since it was adopted */
  uint64_t at, end;      /* of the body: where its next byte goes, and where it ends */
  uint64_t told_to;      /* how far JavaScript knows */
  uint64_t looked_at;    /* where it was at the last look */
  int low_water;         /* so many bytes must have come before the thread is woken */
  uint32_t mark;         /* of what has come of the block */
  bool mark_is_whole;    /* it has come from its first byte on */
  uint32_t *marks;       /* of blocks that have become whole since JavaScript was told */
  size_t marks_have;
  size_t head_length, early_have;
  unsigned char early[HEAD_BYTES_MAX]; /* the head, and what came right behind it */
};

/* INVARIANT: everything is under the lock, but what `receive_body` works on: the body of one line in BODY. */
struct receiver {
  pthread_mutex_t lock;
  pthread_t thread;
  int epoll, wake;
  bool is_closed, is_telling;
  bool is_patient;   /* a line may wait for more than the rest of its block */
  int64_t looked_ns; /* when the lines were looked at last */
  int64_t untold_ns; /* since when there are bytes in files that JavaScript does not know of; 0: there are none */
  uint32_t ids;
  struct line *lines, *news, **last_news;
  unsigned char *buffer; /* of one step */
  void (*on_news)(struct receiver *); /* called with the lock, once until `is_telling` is false again */
};

/* All but `receiver_open` and `receiver_close` are called with the lock. Results are 0, or a negative errno. */
struct receiver *receiver_open(struct receiver *zeroed);
/* Ends the thread, closes and forgets all lines; then nothing is written any more. Only the first call does something. */
void receiver_close(struct receiver *r);
/* A line on a duplicate of `fd`. @returns NULL, with errno */
struct line *receiver_adopt(struct receiver *r, int fd);
/* @returns NULL for a line that is gone, or dropped */
struct line *receiver_line(struct receiver *r, uint32_t id);
/* Sends a request on an idle line. -EAGAIN where the socket did not take all of it; -ECONNRESET where it ended, or something came unasked. */
int receiver_ask(struct receiver *r, struct line *line, const void *request, size_t length);
/* The `length` bytes behind the head go to `position` of a duplicate of `file`. */
int receiver_land(struct receiver *r, struct line *line, int file, uint64_t position, uint64_t length);
void receiver_drop(struct receiver *r, struct line *line);
/* Takes the first of `news`, which JavaScript is to be told of, from the queue. */
void receiver_take_news(struct receiver *r);
/* Of a line that is gone. */
void receiver_forget(struct receiver *r, struct line *line);

#endif
