/*
 * Bodies of HTTP responses, from their sockets into files without passing through V8 (ADR 20). One thread receives for all
 * connections ("lines"), two blocks at a time into one buffer, which stays in the CPU cache between recv, write and checksum. With TLS, it
 * decrypts them in between (records.c).
 *
 * Of HTTP it knows only the empty line that ends a head. It decides nothing: JavaScript sets deadlines, interprets responses and assigns
 * lines (src/remote/http/direct-downloads.ts).
 */
#include "receiver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* The read size for a head: slightly more than a typical one, because bytes beyond the head are copied once more. */
#define HEAD_READ_BYTES 2048
/* Received and written in one step, limited by the CPU's own cache: two blocks take a tenth less time than one. */
#define STEP_BYTES (2 * BLOCK_BYTES)
/*
 * JavaScript gets a message about a body after this many bytes or this much time, and immediately after its first block and at its end. Each
 * message costs two threads time: on a fast line the bytes decide, on a slow one the time.
 */
#define POST_BYTES (1024 * 1024)
#define POST_NS 4000000L
/* How long the thread waits while a message or an unfinished step is pending. */
#define WAIT_MS 1
/* How often, under load, the lines are checked for an unfinished step: fast lines take several meanwhile. */
#define LOOK_NS 10000000L
#define EVENTS_MAX 16

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static struct line *any_line(struct receiver *r, uint32_t id) {
  struct line *line = r->lines;
  while (line != NULL && line->id != id) line = line->next;
  return line;
}

struct line *receiver_line(struct receiver *r, uint32_t id) {
  struct line *line = any_line(r, id);
  return line == NULL || line->is_dropped ? NULL : line;
}

/* Waits for one event of the line; EPOLLOUT fires immediately unless the socket is full. */
static int arm(struct receiver *r, struct line *line, uint32_t events) {
  struct epoll_event event = {.events = events | EPOLLRDHUP | EPOLLONESHOT, .data.u32 = line->id};
  return epoll_ctl(r->epoll, EPOLL_CTL_MOD, line->fd, &event) == 0 ? 0 : -errno;
}

/* As recv(2), of decrypted bytes. */
static ssize_t receive(struct line *line, void *to, size_t room) {
  return line->records == NULL ? recv(line->fd, to, room, MSG_DONTWAIT) : records_recv(line->records, line->fd, to, room);
}

/* Whether `receive` would return without the socket. */
static bool is_decrypted(const struct line *line) { return line->records != NULL && records_missing(line->records, 1, 1) == 0; }

static void count_received(struct line *line, size_t bytes) {
  line->received = line->records == NULL ? line->received + bytes : records_received(line->records);
}

static void post(struct receiver *r, struct line *line) {
  if (r->is_closed) return;
  if (!line->is_news) {
    line->is_news = true;
    line->next_news = NULL;
    *r->last_news = line;
    r->last_news = &line->next_news;
  }
  if (r->is_posting) return;
  r->is_posting = true;
  r->on_news(r);
}

void receiver_take_news(struct receiver *r) {
  r->news->is_news = false;
  r->news = r->news->next_news;
  if (r->news == NULL) r->last_news = &r->news;
}

/* Closed by the peer, cut, or the disk is full: in each case JavaScript drops the line and retries in its own way. */
static void fail(struct receiver *r, struct line *line) {
  line->phase = OVER;
  post(r, line);
}

static void end_line(struct receiver *r, struct line *line) {
  epoll_ctl(r->epoll, EPOLL_CTL_DEL, line->fd, NULL);
  close(line->fd);
  if (line->file >= 0) close(line->file);
  line->phase = GONE;
  post(r, line);
}

void receiver_forget(struct receiver *r, struct line *line) {
  struct line **at = &r->lines;
  while (*at != line) at = &(*at)->next;
  *at = line->next;
  records_free(line->records);
  free(line->checksums);
  free(line);
}

struct line *receiver_adopt(struct receiver *r, int fd, struct records *records) {
  struct line *line = calloc(1, sizeof *line);
  if (line == NULL) return NULL;
  line->id = ++r->ids;
  line->file = -1;
  line->low_water = 1;
  line->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, .data.u32 = line->id};
  if (line->fd < 0 || epoll_ctl(r->epoll, EPOLL_CTL_ADD, line->fd, &event) != 0) {
    int failure = errno;
    if (line->fd >= 0) close(line->fd);
    free(line);
    errno = failure;
    return NULL;
  }
  line->records = records;
  line->next = r->lines;
  r->lines = line;
  return line;
}

void receiver_drop(struct receiver *r, struct line *line) {
  line->is_dropped = true;
  shutdown(line->fd, SHUT_RDWR); /* Forces an event: a full socket would never become writable. */
  arm(r, line, EPOLLIN);
}

/* Whether the line is usable: the peer has not closed it, and sent no unrequested bytes, which would be read as the next response. */
static bool is_quiet(struct line *line) {
  unsigned char byte;
  ssize_t n = receive(line, &byte, 1); /* The records of a line may be tickets for another session, without a byte. */
  return n < 0 && (errno == EAGAIN || errno == EINTR);
}

static void look_at_idle(struct receiver *r, struct line *line) {
  if (is_quiet(line)) arm(r, line, EPOLLIN);
  else fail(r, line);
}

int receiver_ask(struct receiver *r, struct line *line, const void *request, size_t length) {
  if (line->phase == OVER || (line->phase == IDLE && !is_quiet(line))) return -ECONNRESET;
  if (line->phase != IDLE) return -EBUSY;
  bool is_plain = line->records == NULL;
  ssize_t sent = is_plain ? send(line->fd, request, length, MSG_DONTWAIT | MSG_NOSIGNAL) : records_send(line->records, line->fd, request, length);
  if (sent != (ssize_t)length) return sent < 0 ? -errno : -EAGAIN;
  line->phase = HEAD;
  line->early_have = line->head_length = 0;
  line->at = line->posted_to = 0; /* Clears the previous body. */
  return arm(r, line, EPOLLIN);
}

static void receive_head(struct receiver *r, struct line *line) {
  size_t room = sizeof line->early - line->early_have;
  ssize_t n = receive(line, line->early + line->early_have, room < HEAD_READ_BYTES ? room : HEAD_READ_BYTES);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
    count_received(line, 0);
    arm(r, line, EPOLLIN);
    return;
  }
  if (n <= 0) {
    fail(r, line);
    return;
  }
  count_received(line, (size_t)n);
  line->early_have += (size_t)n;
  const unsigned char *end = memmem(line->early, line->early_have, "\r\n\r\n", 4);
  if (end != NULL) {
    line->head_length = (size_t)(end - line->early) + 4;
    line->phase = HEAD_READ;
    post(r, line);
  } else if (line->early_have == sizeof line->early) {
    fail(r, line);
  } else {
    /* The rest may be decrypted already. */
    arm(r, line, is_decrypted(line) ? EPOLLIN | EPOLLOUT : EPOLLIN);
  }
}

/* The bytes to the end of the next whole `unit`, or of the body. Whole blocks: a page written in two parts costs twice. */
static size_t left_of(const struct line *line, size_t unit) {
  uint64_t left = line->end - line->at, whole = unit - line->at % unit;
  return (size_t)(left < whole ? left : whole);
}

/*
 * Sets how many bytes of the body wake the thread. If that many have arrived when it is lowered, an event follows immediately.
 * @returns whether they were received and decrypted before: then the socket may bring no more, and no event
 */
static bool wait_for(struct line *line, size_t bytes) {
  size_t early = line->early_have - line->head_length, missing = bytes > early ? bytes - early : 0;
  if (missing > 0 && line->records != NULL) missing = records_missing(line->records, missing, line->end - line->at - early);
  int low = missing == 0 ? 1 : (int)missing;
  if (low != line->low_water && setsockopt(line->fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low) == 0) line->low_water = low;
  return missing == 0;
}

/* A partial step must not wait for its rest if no bytes arrive, on any line or on this one: a reader may be waiting for its block. */
static void hurry(struct receiver *r, bool is_quiet) {
  if (!r->is_patient || (!is_quiet && now_ns() - r->looked_ns < LOOK_NS)) return;
  r->is_patient = false;
  for (struct line *line = r->lines; line != NULL; line = line->next) {
    if (line->phase != BODY) continue;
    if (is_quiet || line->at == line->looked_at) wait_for(line, left_of(line, BLOCK_BYTES));
    else r->is_patient = true;
    line->looked_at = line->at;
  }
  r->looked_ns = now_ns();
}

int receiver_land(struct receiver *r, struct line *line, int file, uint64_t position, uint64_t length) {
  if (line->phase != HEAD_READ) return -EBUSY;
  free(line->checksums);
  line->checksums = malloc((length / BLOCK_BYTES + 2) * sizeof *line->checksums);
  if (line->checksums == NULL) return -ENOMEM;
  line->file = fcntl(file, F_DUPFD_CLOEXEC, 0);
  if (line->file < 0) return -errno;
  line->checksums_have = 0;
  line->checksum = 0;
  line->checksum_is_whole = position % BLOCK_BYTES == 0;
  line->start = line->at = line->looked_at = line->posted_to = position;
  line->end = position + length;
  line->phase = BODY;
  wait_for(line, left_of(line, BLOCK_BYTES));
  /* Immediately: bytes that came with the head wait for nothing. */
  return arm(r, line, EPOLLIN | EPOLLOUT);
}

static bool write_all(int fd, const unsigned char *bytes, size_t length, uint64_t position) {
  while (length > 0) {
    ssize_t n = pwrite(fd, bytes, length, (off_t)position);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes += n;
    length -= (size_t)n;
    position += (uint64_t)n;
  }
  return true;
}

/* With the lock, because JavaScript takes the checksums. A block is complete at its end, or at the end of the body, which ends the file. */
static void landed(struct line *line, const unsigned char *bytes, size_t length) {
  while (length > 0) {
    size_t left = BLOCK_BYTES - line->at % BLOCK_BYTES, part = length < left ? length : left;
    line->checksum = checksum_of(line->checksum, bytes, part);
    line->at += part;
    bytes += part;
    length -= part;
    if (line->at % BLOCK_BYTES != 0 && line->at != line->end) continue;
    if (line->checksum_is_whole) line->checksums[line->checksums_have++] = line->checksum;
    line->checksum_is_whole = true;
    line->checksum = 0;
  }
}

/* Up to one step, received and written without the lock. */
static void receive_body(struct receiver *r, struct line *line) {
  size_t room = left_of(line, STEP_BYTES), early = line->early_have - line->head_length, have = early < room ? early : room;
  int file = line->file;
  uint64_t at = line->at;
  memcpy(r->buffer, line->early + line->head_length, have);
  line->head_length += have;
  early = have;
  pthread_mutex_unlock(&r->lock);

  bool is_over = false;
  if (have < room) {
    ssize_t n = receive(line, r->buffer + have, room - have);
    if (n > 0) have += (size_t)n;
    else is_over = n == 0 || (errno != EAGAIN && errno != EINTR);
  }
  bool is_written = write_all(file, r->buffer, have, at);

  pthread_mutex_lock(&r->lock);
  count_received(line, have - early);
  if (is_written) landed(line, r->buffer, have);
  if (!is_written) {
    fail(r, line);
  } else if (line->at == line->end) {
    close(line->file);
    line->file = -1;
    wait_for(line, 1);
    line->phase = IDLE;
    post(r, line);
    /* More bytes than announced: the next response would not start where it should. */
    if (line->early_have > line->head_length || is_decrypted(line)) fail(r, line);
    else arm(r, line, EPOLLIN);
  } else if (is_over) {
    fail(r, line);
  } else {
    bool is_first = line->posted_to == line->start && line->checksums_have > 0;
    if (is_first || line->at - line->posted_to >= POST_BYTES) post(r, line);
    else if (r->unposted_ns == 0) r->unposted_ns = now_ns();
    bool is_here = wait_for(line, left_of(line, STEP_BYTES));
    r->is_patient = true;
    arm(r, line, is_here ? EPOLLIN | EPOLLOUT : EPOLLIN);
  }
}

static void tell_in_time(struct receiver *r) {
  if (r->unposted_ns == 0 || now_ns() - r->unposted_ns < POST_NS) return;
  r->unposted_ns = 0;
  for (struct line *line = r->lines; line != NULL; line = line->next) {
    if (line->phase == BODY && line->posted_to < line->at) post(r, line);
  }
}

static void *run(void *argument) {
  struct receiver *r = argument;
  pthread_setname_np(pthread_self(), "receiver");
  pthread_mutex_lock(&r->lock);
  while (!r->is_closed) {
    int timeout_ms = r->unposted_ns == 0 && !r->is_patient ? -1 : WAIT_MS;
    pthread_mutex_unlock(&r->lock);
    struct epoll_event events[EVENTS_MAX];
    int count = epoll_wait(r->epoll, events, EVENTS_MAX, timeout_ms);
    pthread_mutex_lock(&r->lock);
    for (int i = 0; i < count && !r->is_closed; i++) {
      struct line *line = any_line(r, events[i].data.u32);
      if (line == NULL || line->phase == GONE) continue;
      if (!line->is_dropped && line->phase == IDLE) look_at_idle(r, line);
      if (!line->is_dropped && line->phase == HEAD) receive_head(r, line);
      else if (!line->is_dropped && line->phase == BODY) receive_body(r, line);
      if (line->is_dropped) end_line(r, line);
    }
    tell_in_time(r);
    hurry(r, count == 0);
  }
  pthread_mutex_unlock(&r->lock);
  return NULL;
}

struct receiver *receiver_open(struct receiver *r) {
  r->last_news = &r->news;
  r->epoll = epoll_create1(EPOLL_CLOEXEC);
  r->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  struct epoll_event event = {.events = EPOLLIN, .data.u32 = 0}; /* no line has this number */
  bool is_open = r->epoll >= 0 && r->wake >= 0 && epoll_ctl(r->epoll, EPOLL_CTL_ADD, r->wake, &event) == 0;
  /* On a page boundary: copies from and to it are faster. */
  if (is_open && (errno = posix_memalign((void **)&r->buffer, 4096, STEP_BYTES)) == 0) {
    pthread_mutex_init(&r->lock, NULL);
    errno = pthread_create(&r->thread, NULL, run, r);
    if (errno == 0) return r;
    pthread_mutex_destroy(&r->lock);
  }
  int failure = errno;
  if (r->epoll >= 0) close(r->epoll);
  if (r->wake >= 0) close(r->wake);
  free(r->buffer);
  errno = failure;
  return NULL;
}

void receiver_close(struct receiver *r) {
  if (r->is_closed) return;
  pthread_mutex_lock(&r->lock);
  r->is_closed = true;
  pthread_mutex_unlock(&r->lock);
  uint64_t one = 1;
  while (write(r->wake, &one, sizeof one) < 0 && errno == EINTR) continue;
  pthread_join(r->thread, NULL);
  while (r->lines != NULL) {
    if (r->lines->phase != GONE) end_line(r, r->lines);
    receiver_forget(r, r->lines);
  }
  close(r->epoll);
  close(r->wake);
  free(r->buffer);
  pthread_mutex_destroy(&r->lock);
}
