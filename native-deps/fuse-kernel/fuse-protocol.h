/*
 * The part of the kernel's FUSE protocol that the C side uses: message headers, the one request whose payload is placed separately, and
 * the requests without a reply. src/kernel/protocol.ts decodes everything else.
 *
 * Own constants, because a distribution's <linux/fuse.h> is as old as the distribution. Source: the kernel's
 * include/uapi/linux/fuse.h, protocol 7.x; numbers there are ABI and never change.
 */
#ifndef CFS_FUSE_PROTOCOL_H
#define CFS_FUSE_PROTOCOL_H

#include <stdint.h>

#define FUSE_OP_FORGET 2u
#define FUSE_OP_WRITE 16u
#define FUSE_OP_INTERRUPT 36u
#define FUSE_OP_BATCH_FORGET 42u

#define FUSE_NOTIFY_CODE_RESEND 7 /* enum fuse_notify_code */

/* struct fuse_in_header: starts every request. */
struct fuse_request_header {
  uint32_t length;
  uint32_t opcode;
  uint64_t unique;
  uint64_t nodeid;
  uint32_t uid;
  uint32_t gid;
  uint32_t pid;
  uint16_t extension_length;
  uint16_t padding;
};

/* struct fuse_out_header: starts every reply. `unique` has the same offset as in the request: a reply may overwrite its request. */
struct fuse_reply_header {
  uint32_t length;
  int32_t error;
  uint64_t unique;
};

/* sizeof(struct fuse_in_header) + sizeof(struct fuse_write_in): the part before the bytes of a WRITE. */
#define FUSE_WRITE_HEADER_BYTES 80u

#endif
