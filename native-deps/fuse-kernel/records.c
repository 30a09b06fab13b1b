/*
 * Decrypts what a peer sends after the handshake, with the OpenSSL that Node brings or is linked to: the functions are looked up in the process,
 * so the addon has no OpenSSL of its own and needs no headers (ADR 55). Node does the handshake, and verifies the certificate.
 *
 * A message after the handshake that needs more than to be skipped (a new key) is a failure: JavaScript drops the line and asks again.
 */
#include "records.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define HEADER_BYTES 5
#define TAG_BYTES 16
#define IV_BYTES 12
#define KEY_BYTES_MAX 32
#define PLAIN_BYTES_MAX 16384
/* Header, tag, and the type behind the plain bytes. */
#define EXTRA_BYTES (HEADER_BYTES + TAG_BYTES + 1)
/* RFC 8446, 5.2: a sealed record has at most 256 bytes more than its plain bytes. */
#define SEALED_BYTES_MAX (PLAIN_BYTES_MAX + 256)
/* One step of receiver.c with what its records add, and one record more. */
#define BUFFER_BYTES (256 * 1024 + 17 * EXTRA_BYTES + HEADER_BYTES + SEALED_BYTES_MAX)

/* RFC 8446, B.1 and B.3. */
enum { ALERT = 21, HANDSHAKE = 22, DATA = 23 };
enum { NEW_SESSION_TICKET = 4 };

/* openssl/evp.h: the same in OpenSSL 1.1.1 and 3. */
enum { GET_TAG = 0x10, SET_TAG = 0x11 };
typedef struct evp_cipher_ctx_st context;
typedef struct evp_cipher_st cipher;

static struct {
  context *(*new)(void);
  void (*free)(context *);
  int (*init)(context *, const cipher *, void *engine, const unsigned char *key, const unsigned char *iv, int is_sealing);
  int (*update)(context *, unsigned char *out, int *out_length, const unsigned char *in, int in_length);
  int (*final)(context *, unsigned char *out, int *out_length);
  int (*ctrl)(context *, int type, int argument, void *pointer);
} evp;

static const struct suite {
  const char *cipher;
  size_t key_bytes;
} SUITES[] = {{"EVP_aes_128_gcm", 16}, {"EVP_aes_256_gcm", 32}, {"EVP_chacha20_poly1305", 32}};
#define SUITES_COUNT ((int)(sizeof SUITES / sizeof *SUITES))

static bool is_supported;
static const cipher *ciphers[SUITES_COUNT];

/* One direction. */
struct half {
  context *context;
  unsigned char iv[IV_BYTES];
  uint64_t sequence;
};

/* INVARIANT: after `records_recv`, `sealed` has no complete record with data. */
struct records {
  struct half in, out;
  bool is_ended, is_broken;
  uint64_t received;
  size_t at, have; /* of `sealed`: the next record, and the end of what was received */
  size_t plain_at, plain_have;
  unsigned char plain[SEALED_BYTES_MAX]; /* decrypted bytes for which there was no room */
  unsigned char sealed[BUFFER_BYTES];
};

static void look_up(void) {
  const struct { const char *name; void *function; } wanted[] = {
      {"EVP_CIPHER_CTX_new", &evp.new}, {"EVP_CIPHER_CTX_free", &evp.free}, {"EVP_CipherInit_ex", &evp.init},
      {"EVP_CipherUpdate", &evp.update}, {"EVP_CipherFinal_ex", &evp.final}, {"EVP_CIPHER_CTX_ctrl", &evp.ctrl}};
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    void *found = dlsym(RTLD_DEFAULT, wanted[i].name);
    if (found == NULL) return;
    memcpy(wanted[i].function, &found, sizeof found);
  }
  for (int i = 0; i < SUITES_COUNT; i++) {
    const cipher *(*of)(void);
    void *found = dlsym(RTLD_DEFAULT, SUITES[i].cipher);
    if (found == NULL) return;
    memcpy(&of, &found, sizeof found);
    ciphers[i] = of();
    if (ciphers[i] == NULL) return;
  }
  is_supported = true;
}

bool records_are_supported(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, look_up);
  return is_supported;
}

static bool begin(struct half *half, int suite, const unsigned char *key_and_iv, int is_sealing) {
  memcpy(half->iv, key_and_iv + SUITES[suite].key_bytes, IV_BYTES);
  half->context = evp.new();
  return half->context != NULL && evp.init(half->context, ciphers[suite], NULL, key_and_iv, NULL, is_sealing) == 1;
}

struct records *records_new(int suite, const unsigned char *keys, size_t keys_length, const unsigned char *early, size_t early_length) {
  bool is_known = records_are_supported() && suite >= 0 && suite < SUITES_COUNT;
  if (!is_known || keys_length != 2 * (SUITES[suite].key_bytes + IV_BYTES) || early_length > BUFFER_BYTES) {
    errno = EINVAL;
    return NULL;
  }
  struct records *records = malloc(sizeof *records); /* not zeroed: the buffers stay untouched */
  if (records == NULL) return NULL;
  memset(records, 0, offsetof(struct records, plain));
  if (early_length > 0) memcpy(records->sealed, early, early_length);
  records->have = early_length;
  if (begin(&records->in, suite, keys, 0) && begin(&records->out, suite, keys + keys_length / 2, 1)) return records;
  records_free(records);
  errno = ENOMEM;
  return NULL;
}

void records_free(struct records *records) {
  if (records == NULL) return;
  /* OpenSSL wipes the keys. */
  if (records->in.context != NULL) evp.free(records->in.context);
  if (records->out.context != NULL) evp.free(records->out.context);
  free(records);
}

/* RFC 8446, 5.3: each record has a nonce of its own; the header is authenticated with it. */
static bool start_record(struct half *half, const unsigned char *header) {
  unsigned char nonce[IV_BYTES];
  int n;
  memcpy(nonce, half->iv, IV_BYTES);
  for (int i = 0; i < 8; i++) nonce[IV_BYTES - 1 - i] ^= (unsigned char)(half->sequence >> (8 * i));
  half->sequence++;
  return evp.init(half->context, NULL, NULL, NULL, nonce, -1) == 1 && evp.update(half->context, NULL, &n, header, HEADER_BYTES) == 1;
}

/* @returns the length behind the header; SIZE_MAX without a whole header */
static size_t length_of_next(const struct records *records) {
  const unsigned char *header = records->sealed + records->at;
  return records->have - records->at < HEADER_BYTES ? SIZE_MAX : (size_t)header[3] << 8 | header[4];
}

static bool has_record(const struct records *records) {
  size_t length = length_of_next(records);
  return length != SIZE_MAX && records->have - records->at >= HEADER_BYTES + length;
}

/* Several tickets may share a record. */
static bool is_only_tickets(const unsigned char *bytes, size_t length) {
  while (length >= 4 && bytes[0] == NEW_SESSION_TICKET) {
    size_t message = 4 + ((size_t)bytes[1] << 16 | (size_t)bytes[2] << 8 | bytes[3]);
    if (message > length) return false;
    bytes += message;
    length -= message;
  }
  return length == 0;
}

/* Decrypts the next record to `out`, which has room for its sealed bytes. @returns the length of its data; -1 if the connection is unusable */
static ssize_t open_record(struct records *records, unsigned char *out) {
  unsigned char *header = records->sealed + records->at, *bytes = header + HEADER_BYTES;
  size_t length = length_of_next(records);
  records->at += HEADER_BYTES + length;
  if (header[0] != DATA || length < TAG_BYTES + 1 || length > SEALED_BYTES_MAX) return -1;
  length -= TAG_BYTES;
  context *context = records->in.context;
  int n, rest;
  if (!start_record(&records->in, header) || evp.update(context, out, &n, bytes, (int)length) != 1) return -1;
  if (evp.ctrl(context, SET_TAG, TAG_BYTES, bytes + length) != 1 || evp.final(context, out + n, &rest) != 1) return -1;
  while (length > 0 && out[length - 1] == 0) length--; /* padding */
  if (length == 0) return -1;
  unsigned char type = out[--length];
  if (length > PLAIN_BYTES_MAX) return -1;
  if (type == DATA) return (ssize_t)length;
  if (type == ALERT) records->is_ended = true;
  return type == ALERT || (type == HANDSHAKE && length > 0 && is_only_tickets(out, length)) ? 0 : -1;
}

static size_t sealed_size(uint64_t length) {
  return (size_t)(length + (length + PLAIN_BYTES_MAX - 1) / PLAIN_BYTES_MAX * EXTRA_BYTES);
}

/* Receives what `room` more bytes need at least, or the rest of a record: so hardly anything has to be kept. As recv(2). */
static ssize_t receive(struct records *records, int fd, size_t room) {
  size_t have = records->have - records->at, length = length_of_next(records), wanted = sealed_size(room);
  if (length != SIZE_MAX && wanted < HEADER_BYTES + length) wanted = HEADER_BYTES + length;
  if (wanted <= have) wanted = have + 1; /* records without data before */
  memmove(records->sealed, records->sealed + records->at, have);
  records->at = 0;
  records->have = have;
  if (wanted > BUFFER_BYTES) wanted = BUFFER_BYTES;
  ssize_t n = recv(fd, records->sealed + have, wanted - have, MSG_DONTWAIT);
  if (n <= 0) return n;
  records->have += (size_t)n;
  records->received += (uint64_t)n;
  return n;
}

ssize_t records_recv(struct records *records, int fd, void *to, size_t room) {
  unsigned char *out = to;
  size_t got = 0;
  ssize_t n = 1;
  while (got < room && n > 0 && !records->is_broken) {
    size_t left = room - got, kept = records->plain_have - records->plain_at;
    if (kept > 0) {
      size_t part = kept < left ? kept : left;
      memcpy(out + got, records->plain + records->plain_at, part);
      records->plain_at += part;
      got += part;
    } else if (records->is_ended) {
      n = 0;
    } else if (!has_record(records)) {
      if (length_of_next(records) != SIZE_MAX && length_of_next(records) > SEALED_BYTES_MAX) records->is_broken = true;
      else n = receive(records, fd, left);
    } else {
      bool has_room = length_of_next(records) - TAG_BYTES <= left && length_of_next(records) >= TAG_BYTES;
      ssize_t length = length_of_next(records) > SEALED_BYTES_MAX ? -1 : open_record(records, has_room ? out + got : records->plain);
      if (length < 0) {
        records->is_broken = true;
      } else if (has_room) {
        got += (size_t)length;
      } else {
        records->plain_at = 0;
        records->plain_have = (size_t)length;
      }
    }
  }
  if (got > 0) return (ssize_t)got;
  if (!records->is_broken) return n;
  errno = EBADMSG;
  return -1;
}

ssize_t records_send(struct records *records, int fd, const void *bytes, size_t length) {
  if (length == 0 || length > PLAIN_BYTES_MAX) {
    errno = EMSGSIZE;
    return -1;
  }
  unsigned char record[PLAIN_BYTES_MAX + EXTRA_BYTES], type = DATA, *out = record + HEADER_BYTES;
  size_t sealed = length + 1 + TAG_BYTES;
  const unsigned char header[HEADER_BYTES] = {DATA, 3, 3, (unsigned char)(sealed >> 8), (unsigned char)sealed};
  memcpy(record, header, HEADER_BYTES);
  context *context = records->out.context;
  int n, rest;
  bool is_sealed = start_record(&records->out, header) && evp.update(context, out, &n, bytes, (int)length) == 1 &&
                   evp.update(context, out + length, &n, &type, 1) == 1 && evp.final(context, out + length + 1, &rest) == 1 &&
                   evp.ctrl(context, GET_TAG, TAG_BYTES, out + length + 1) == 1;
  if (!is_sealed) {
    errno = EINVAL;
    return -1;
  }
  ssize_t sent = send(fd, record, HEADER_BYTES + sealed, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) return -1;
  return sent == (ssize_t)(HEADER_BYTES + sealed) ? (ssize_t)length : 0;
}

size_t records_missing(const struct records *records, size_t length, uint64_t whole) {
  size_t kept = records->plain_have - records->plain_at, have = records->have - records->at;
  if (records->is_ended || records->is_broken || length <= kept) return 0;
  /* A record may end behind `length`. */
  size_t wanted = sealed_size(length - kept) + PLAIN_BYTES_MAX + EXTRA_BYTES, all = sealed_size(whole - kept);
  if (wanted > all) wanted = all;
  return wanted > have ? wanted - have : 1;
}

uint64_t records_received(const struct records *records) { return records->received; }
