/* TLS 1.3 records of one connection after its handshake (RFC 8446, section 5), for receiver.c. */
#ifndef CFS_RECORDS_H
#define CFS_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct records;

/* Whether Node's OpenSSL has the ciphers. */
bool records_are_supported(void);
/*
 * `suite` as in src/remote/http/handshake.ts. `keys`: key and iv of the peer, then our own. `early`: bytes that were already read from the
 * socket. @returns NULL with errno: ENOMEM, or EINVAL for lengths that do not fit the suite
 */
struct records *records_new(int suite, const unsigned char *keys, size_t keys_length, const unsigned char *early, size_t early_length);
void records_free(struct records *records);
/*
 * As recv(2) with MSG_DONTWAIT, of decrypted bytes: 0 after a close_notify too, EAGAIN for less than a record, EBADMSG for a record that is
 * not authentic or not expected. Reads ahead by less than one record.
 */
ssize_t records_recv(struct records *records, int fd, void *to, size_t room);
/* As send(2) with MSG_DONTWAIT, of one record. */
ssize_t records_send(struct records *records, int fd, const void *bytes, size_t length);
/*
 * How many bytes the socket must bring for `length` more decrypted bytes, of `whole` that follow; 0 if records_recv needs none. Never more
 * than will come.
 */
size_t records_missing(const struct records *records, size_t length, uint64_t whole);
/* Bytes received from the socket. */
uint64_t records_received(const struct records *records);

#endif
