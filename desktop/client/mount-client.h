/*
 * The running mounts of this user, by their control sockets (docs/control-protocol.md). Everything happens in the main loop of the program, and
 * no function waits: a state is returned if it is known, asked for otherwise, and `news` is called when the answer differs.
 */
#pragma once

#include <gio/gio.h>

G_BEGIN_DECLS

typedef enum { CFS_SETTLED, CFS_LOCAL, CFS_PENDING, CFS_PARKED } CfsSync;
typedef enum { CFS_UNPINNED, CFS_PINNED_BY_FOLDER, CFS_PINNED } CfsPin;
typedef enum { CFS_HERE_UNKNOWN, CFS_HERE_NONE, CFS_HERE_PART, CFS_HERE_ALL } CfsHere;

/* The state of a path. All zero: nothing is known of it. */
typedef struct {
  gboolean is_known;
  gboolean is_folder;
  gboolean is_conflict; /* a conflicted copy, or the file of one */
  CfsSync sync;
  CfsPin pin;
  CfsHere here; /* unknown for a folder */
} CfsState;

typedef struct _CfsClient CfsClient;
struct _JsonObject; /* of json-glib */

/*
 * The state of the path was `was`, and is `is` now. Both NULL: a question.
 * Returns whether the program still shows the path; otherwise it is forgotten.
 */
typedef gboolean (*CfsNews)(const char *path, const CfsState *was, const CfsState *is, gpointer data);

/* `message`: why it failed, for a person; NULL if it succeeded. */
typedef void (*CfsDone)(const char *message, gpointer data);

/* `news`: NULL if the program asks for no states. */
CfsClient *cfs_client_new(CfsNews news, gpointer data);
void cfs_client_free(CfsClient *client);

/* Fields of the status of a mount that have other values now (docs/control-protocol.md): first all of them; NULL: the mount has ended. */
typedef void (*CfsStatus)(const char *socket, struct _JsonObject *changed, gpointer data);

/* Call it before the main loop runs. `data` is that of the client. */
void cfs_client_follow_status(CfsClient *client, CfsStatus status);

/* Looks for new mounts. Without this call a client looks at its start, and for paths outside of all mounts. */
void cfs_client_search(CfsClient *client);

/* What is known of a path, and asks for it. Nothing is known of a path outside of the mounts. */
CfsState cfs_client_state(CfsClient *client, const char *path);

/* Whether a path lies in a running mount. */
gboolean cfs_client_has(CfsClient *client, const char *path);

/*
 * Calls `method` (pin, unpin, evict, retry, discard, pause, resume) for a path in a mount, one call after the other. `done` is called later, once, unless the
 * client is freed before.
 */
void cfs_client_act(CfsClient *client, const char *path, const char *method, CfsDone done, gpointer data);

/* The states as the mount writes them. For tests. */
CfsState cfs_state_of(const char *state, const char *kind, const char *pinned, const char *here, gboolean is_conflict);

G_END_DECLS
