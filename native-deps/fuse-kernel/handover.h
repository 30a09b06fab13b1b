/*
 * The first page of the memory that outlives the mounting process: a memfd of the keeper (native-deps/keeper). Behind it lies the region of
 * the connection (connection.c), and behind that the handover state that src/kernel/handover-state.ts describes.
 */
#ifndef CFS_HANDOVER_H
#define CFS_HANDOVER_H

#include <pthread.h>
#include <stdint.h>

#define HANDOVER_PAGE 4096u
#define IDENTITY_BYTES 65u /* a SHA-256 sum in hexadecimal digits */

struct handover_page {
  /*
   * Held by the thread that answers the kernel, for as long as it does. It is robust: the keeper learns of the end of that thread, even if
   * the process cannot be waited for. Another thread of it may be in an uninterruptible system call.
   */
  pthread_mutex_t serving;
  /* For a keeper that follows this one: the mount, and the place of the process that serves it. */
  char identity[IDENTITY_BYTES];
  uint32_t generation, upgrades;
  int32_t pid;
};

/* Messages of the mounting process to the keeper, one byte each. */
#define KEEPER_SERVES 'S'  /* it holds `serving`; the first one carries the descriptor of the connection */
#define KEEPER_READY 'R'   /* it accepts signals */
#define KEEPER_LETS_GO 'E' /* the mount ends: its process is not restarted, and the keeper closes the connection */
#define KEEPER_PREPARE 'P' /* start a standby; the length of its command follows (uint32, 0: the same command), and the command */
#define KEEPER_WAITS 'W'   /* a standby: it has loaded the program */
#define KEEPER_HANDS_OVER 'H' /* it ends in favour of its standby: that is no death */

/* Descriptors of the mounting process. */
#define KEEPER_SOCKET 4
#define KEEPER_MEMORY 5
#define KEEPER_DEVICE 6
#define KEEPER_LINE 7 /* the same socket: the keeper's answers are read from it, a line each */

#endif
