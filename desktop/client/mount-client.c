#include "mount-client.h"

#include <gio/gunixsocketaddress.h>
#include <json-glib/json-glib.h>
#include <string.h>

/* A mount that does not answer within this time is taken for hung: the connection is closed, and nothing is known of its files. */
#define ANSWER_MS_MAX 5000
/* Actions may ask the service. */
#define ACTION_SECONDS_MAX 60
/* Paths of one question (PATHS_MAX of the mount). */
#define PATHS_MAX 1000
/* Questions of one burst go together. */
#define GATHER_MS 20
/* Interval of questions about paths whose state may change without an event, while the program shows them. */
#define FOLLOW_MS 3000
/* The search for sockets: not more often than this. */
#define SEARCH_MS_MIN 3000
#define RETRY_MS_MIN 1000
#define RETRY_MS_MAX 64000
#define TRIES_MAX 8
#define LINE_BYTES_MAX (8 * 1024 * 1024)
#define ENTRIES_MAX 50000
#define READ_BYTES (64 * 1024)

typedef struct {
  CfsState state;
  gboolean is_queued;
  gint64 asked_us;
} Entry;

/* One control socket, connected or not. It lives until the client is freed. */
typedef struct {
  CfsClient *client;
  char *socket;
  gint64 retry_us; /* no connection before this time */
  guint retry_ms;
  guint retry;
  guint tries; /* since it was there */

  /* Of a connection. `calls` is NULL without one, and aborts what runs when it ends. */
  GCancellable *calls;
  GSocketConnection *connection;
  GByteArray *received;
  GString *unsent;
  gboolean is_sending;
  guint deadline;

  gboolean is_there;   /* it has answered on this connection */
  char *directory;     /* NULL: not known yet */
  GHashTable *entries; /* path below `directory` -> Entry */
  GPtrArray *queued;   /* paths to ask for */
  GPtrArray *asked;    /* those of the running question; NULL without one */
  guint gathering;
  guint following;
} Mount;

typedef struct {
  char *path;
  char *method;
  CfsDone done;
  gpointer data;
} Action;

struct _CfsClient {
  CfsNews news;
  CfsStatus status;
  gpointer data;
  GHashTable *mounts; /* socket -> Mount */
  GCancellable *ending; /* of searches and actions */
  gboolean is_searching;
  gint64 searched_us;
  GQueue actions;
  Action *action; /* the one that runs */
};

static void search(CfsClient *client);
static void next_action(CfsClient *client);

static gint64 now_us(void) { return g_get_monotonic_time(); }

static void clear_source(guint *source) {
  if (*source != 0) g_source_remove(*source);
  *source = 0;
}

/* ---- states ---- */

CfsState cfs_state_of(const char *state, const char *kind, const char *pinned, const char *here, gboolean is_conflict) {
  CfsState found = {.is_known = TRUE, .is_conflict = is_conflict};
  found.is_folder = g_strcmp0(kind, "folder") == 0;
  if (g_strcmp0(state, "pending") == 0 || g_strcmp0(state, "pushing") == 0) found.sync = CFS_PENDING;
  else if (state != NULL && g_str_has_prefix(state, "parked")) found.sync = CFS_PARKED;
  else if (g_strcmp0(state, "local") == 0) found.sync = CFS_LOCAL;
  if (g_strcmp0(pinned, "itself") == 0) found.pin = CFS_PINNED;
  else if (g_strcmp0(pinned, "folder") == 0) found.pin = CFS_PINNED_BY_FOLDER;
  if (g_strcmp0(here, "all") == 0) found.here = CFS_HERE_ALL;
  else if (g_strcmp0(here, "part") == 0) found.here = CFS_HERE_PART;
  else if (g_strcmp0(here, "none") == 0) found.here = CFS_HERE_NONE;
  return found;
}

static gboolean is_same(const CfsState *one, const CfsState *other) {
  return one->is_known == other->is_known && one->is_folder == other->is_folder &&
         one->is_conflict == other->is_conflict && one->sync == other->sync && one->pin == other->pin &&
         one->here == other->here;
}

/* Members of an object that another version of the mount may lack, or write with another type. */
static const char *text_of(JsonObject *object, const char *name) {
  JsonNode *node = json_object_get_member(object, name);
  return node != NULL && JSON_NODE_HOLDS_VALUE(node) && json_node_get_value_type(node) == G_TYPE_STRING
             ? json_node_get_string(node)
             : NULL;
}

static JsonObject *object_of(JsonObject *object, const char *name) {
  JsonNode *node = json_object_get_member(object, name);
  return node != NULL && JSON_NODE_HOLDS_OBJECT(node) ? json_node_get_object(node) : NULL;
}

static CfsState state_of(JsonNode *node) {
  if (!JSON_NODE_HOLDS_OBJECT(node)) return (CfsState){0};
  JsonObject *object = json_node_get_object(node);
  return cfs_state_of(text_of(object, "state"), text_of(object, "kind"), text_of(object, "pinned"),
                      text_of(object, "here"), text_of(object, "conflict") != NULL);
}

static char *path_in(Mount *mount, const char *below) {
  return *below == '\0' ? g_strdup(mount->directory) : g_build_filename(mount->directory, below, NULL);
}

static gboolean report(Mount *mount, const char *below, const CfsState *was, const CfsState *is) {
  g_autofree char *path = path_in(mount, below);
  return mount->client->news(path, was, is, mount->client->data);
}

/* ---- the connection ---- */

static void disconnect(Mount *mount) {
  mount->is_there = FALSE;
  clear_source(&mount->retry);
  if (mount->calls == NULL) return;
  g_cancellable_cancel(mount->calls);
  g_clear_object(&mount->calls);
  clear_source(&mount->deadline);
  clear_source(&mount->gathering);
  clear_source(&mount->following);
  if (mount->connection != NULL) {
    /* Closing a local socket does not wait. A running operation keeps the streams alive until it has ended. */
    g_socket_close(g_socket_connection_get_socket(mount->connection), NULL);
    g_clear_object(&mount->connection);
  }
  g_clear_pointer(&mount->received, g_byte_array_unref);
  if (mount->unsent != NULL) g_string_free(mount->unsent, TRUE);
  mount->unsent = NULL;
  mount->is_sending = FALSE;
  g_clear_pointer(&mount->asked, g_ptr_array_unref);
  g_ptr_array_set_size(mount->queued, 0);
}

static void open_connection(Mount *mount);

static gboolean on_retry(gpointer data) {
  Mount *mount = data;
  mount->retry = 0;
  open_connection(mount);
  return G_SOURCE_REMOVE;
}

/* The mount ended, or does not answer: nothing is known of its files any more. */
static void lose(Mount *mount) {
  const gboolean was_there = mount->is_there;
  CfsClient *client = mount->client;
  disconnect(mount);
  mount->retry_us = now_us() + (gint64)mount->retry_ms * 1000;
  /* A mount that was there may be restarted. All others wait for a question about a path outside of the known ones. */
  if (mount->directory != NULL && mount->tries++ < TRIES_MAX)
    mount->retry = g_timeout_add(mount->retry_ms, on_retry, mount);
  mount->retry_ms = MIN(mount->retry_ms * 2, RETRY_MS_MAX);
  if (client->status != NULL) client->status(mount->socket, NULL, client->data);
  if (!was_there) return;
  g_autoptr(GPtrArray) known = g_ptr_array_new_with_free_func(g_free);
  g_autoptr(GArray) states = g_array_new(FALSE, FALSE, sizeof(CfsState));
  GHashTableIter each;
  gpointer below, value;
  g_hash_table_iter_init(&each, mount->entries);
  while (g_hash_table_iter_next(&each, &below, &value)) {
    Entry *entry = value;
    entry->is_queued = FALSE;
    if (!entry->state.is_known) continue;
    g_ptr_array_add(known, g_strdup(below));
    g_array_append_val(states, entry->state);
    entry->state = (CfsState){0};
  }
  const CfsState nothing = {0};
  for (guint nth = 0; nth < known->len; nth++) report(mount, known->pdata[nth], &g_array_index(states, CfsState, nth), &nothing);
}

static gboolean on_deadline(gpointer data) {
  Mount *mount = data;
  mount->deadline = 0;
  lose(mount);
  return G_SOURCE_REMOVE;
}

static void expect_answer(Mount *mount) {
  clear_source(&mount->deadline);
  mount->deadline = g_timeout_add(ANSWER_MS_MAX, on_deadline, mount);
}

static void on_sent(GObject *stream, GAsyncResult *result, gpointer data);

static void flush(Mount *mount) {
  if (mount->is_sending || mount->unsent->len == 0) return;
  mount->is_sending = TRUE;
  GBytes *bytes = g_string_free_to_bytes(mount->unsent);
  mount->unsent = g_string_new(NULL);
  GOutputStream *stream = g_io_stream_get_output_stream(G_IO_STREAM(mount->connection));
  /* The bytes live as long as the operation. */
  g_object_set_data_full(G_OBJECT(stream), "sent", bytes, (GDestroyNotify)g_bytes_unref);
  g_output_stream_write_all_async(stream, g_bytes_get_data(bytes, NULL), g_bytes_get_size(bytes), G_PRIORITY_DEFAULT,
                                  mount->calls, on_sent, mount);
}

static void on_sent(GObject *stream, GAsyncResult *result, gpointer data) {
  g_autoptr(GError) error = NULL;
  const gboolean is_sent = g_output_stream_write_all_finish(G_OUTPUT_STREAM(stream), result, NULL, &error);
  if (g_error_matches(error, G_IO_ERROR, G_IO_ERROR_CANCELLED)) return; /* `data` may be freed */
  Mount *mount = data;
  mount->is_sending = FALSE;
  if (is_sent) flush(mount);
  else lose(mount);
}

/* Takes `params`. */
static void call(GString *unsent, gint64 id, const char *method, JsonNode *params) {
  g_autoptr(JsonBuilder) builder = json_builder_new_immutable();
  json_builder_begin_object(builder);
  json_builder_set_member_name(builder, "id");
  json_builder_add_int_value(builder, id);
  json_builder_set_member_name(builder, "method");
  json_builder_add_string_value(builder, method);
  json_builder_set_member_name(builder, "params");
  json_builder_add_value(builder, params);
  json_builder_end_object(builder);
  g_autoptr(JsonNode) request = json_builder_get_root(builder);
  g_autofree char *line = json_to_string(request, FALSE);
  g_string_append(unsent, line);
  g_string_append_c(unsent, '\n');
}

enum { STATES_ID = 1, WATCH_ID = 2 };

static void ask_states(Mount *mount) {
  JsonArray *paths = json_array_new();
  for (guint each = 0; each < mount->asked->len; each++) json_array_add_string_element(paths, mount->asked->pdata[each]);
  JsonNode *params = json_node_new(JSON_NODE_OBJECT);
  JsonObject *object = json_object_new();
  json_object_set_array_member(object, "paths", paths);
  json_node_take_object(params, object);
  call(mount->unsent, STATES_ID, "states", params);
  expect_answer(mount);
  flush(mount);
}

/* ---- questions ---- */

static gboolean on_gathered(gpointer data) {
  Mount *mount = data;
  mount->gathering = 0;
  if (mount->asked != NULL || mount->queued->len == 0) return G_SOURCE_REMOVE;
  mount->asked = g_ptr_array_new_with_free_func(g_free);
  const guint count = MIN(mount->queued->len, PATHS_MAX);
  for (guint each = 0; each < count; each++) {
    Entry *entry = g_hash_table_lookup(mount->entries, mount->queued->pdata[each]);
    if (entry != NULL) {
      entry->is_queued = FALSE;
      entry->asked_us = now_us();
    }
    g_ptr_array_add(mount->asked, g_strdup(mount->queued->pdata[each]));
  }
  g_ptr_array_remove_range(mount->queued, 0, count);
  ask_states(mount);
  return G_SOURCE_REMOVE;
}

static void queue(Mount *mount, const char *below) {
  Entry *entry = g_hash_table_lookup(mount->entries, below);
  if (entry == NULL || entry->is_queued) return;
  entry->is_queued = TRUE;
  g_ptr_array_add(mount->queued, g_strdup(below));
  if (mount->gathering == 0 && mount->asked == NULL) mount->gathering = g_timeout_add(GATHER_MS, on_gathered, mount);
}

static void queue_all(Mount *mount) {
  GHashTableIter each;
  gpointer below;
  g_hash_table_iter_init(&each, mount->entries);
  while (g_hash_table_iter_next(&each, &below, NULL)) queue(mount, below);
}

/* A state that an event need not announce: a folder follows its files, bytes come by reading. */
static gboolean may_change(const CfsState *state) {
  return state->is_folder || state->sync != CFS_SETTLED ||
         state->here == CFS_HERE_NONE || state->here == CFS_HERE_PART;
}

/* Asks again for what the program still shows, and forgets the rest. Of very many paths each is asked less often. */
static gboolean on_follow(gpointer data) {
  Mount *mount = data;
  GHashTableIter each;
  gpointer below, value;
  const gint64 age_us = FOLLOW_MS * G_GINT64_CONSTANT(1000) * (1 + g_hash_table_size(mount->entries) / PATHS_MAX);
  guint asked = 0;
  g_hash_table_iter_init(&each, mount->entries);
  while (asked < PATHS_MAX && g_hash_table_iter_next(&each, &below, &value)) {
    Entry *entry = value;
    if (entry->is_queued || now_us() - entry->asked_us < age_us) continue;
    asked++;
    if (!report(mount, below, NULL, NULL)) g_hash_table_iter_remove(&each);
    else if (may_change(&entry->state)) queue(mount, below);
    else entry->asked_us = now_us();
  }
  if (g_hash_table_size(mount->entries) > 0) return G_SOURCE_CONTINUE;
  mount->following = 0;
  return G_SOURCE_REMOVE;
}

static void on_states(Mount *mount, JsonObject *result) {
  const char *directory = text_of(result, "directory");
  JsonNode *list = json_object_get_member(result, "states");
  if (directory == NULL || list == NULL || !JSON_NODE_HOLDS_ARRAY(list)) {
    lose(mount);
    return;
  }
  clear_source(&mount->deadline);
  if (!mount->is_there) {
    mount->is_there = TRUE;
    mount->retry_ms = RETRY_MS_MIN;
    mount->tries = 0;
    if (g_strcmp0(mount->directory, directory) != 0) {
      g_hash_table_remove_all(mount->entries);
      g_free(mount->directory);
      mount->directory = g_strdup(directory);
    }
    queue_all(mount);
    if (g_hash_table_size(mount->entries) > 0) mount->following = g_timeout_add(FOLLOW_MS, on_follow, mount);
  }
  JsonArray *states = json_node_get_array(list);
  g_autoptr(GPtrArray) asked = g_steal_pointer(&mount->asked);
  for (guint each = 0; asked != NULL && each < asked->len && each < json_array_get_length(states); each++) {
    const char *below = asked->pdata[each];
    Entry *entry = g_hash_table_lookup(mount->entries, below);
    if (entry == NULL) continue;
    const CfsState state = state_of(json_array_get_element(states, each));
    if (is_same(&state, &entry->state)) continue;
    const CfsState was = entry->state;
    entry->state = state;
    if (!report(mount, below, &was, &state)) g_hash_table_remove(mount->entries, below);
    if (mount->calls == NULL) return;
  }
  if (mount->queued->len > 0 && mount->gathering == 0) mount->gathering = g_timeout_add(GATHER_MS, on_gathered, mount);
}

/* ---- events ---- */

/* A path of an event, and the folders above it. */
static void queue_upwards(Mount *mount, const char *below) {
  g_autofree char *at = g_strdup(below);
  for (;;) {
    queue(mount, at);
    if (*at == '\0') return;
    char *end = strrchr(at, '/');
    *(end == NULL ? at : end) = '\0';
  }
}

static void on_event(Mount *mount, JsonObject *event) {
  const char *type = text_of(event, "type");
  if (type == NULL || g_hash_table_size(mount->entries) == 0) return;
  static const char *const OF_MANY[] = {"pinned", "unpinned", "pin-complete", "evicted", "renamed-elsewhere", NULL};
  if (g_strv_contains(OF_MANY, type)) queue_all(mount);
  static const char *const PATHS[] = {"path", "from", "to", "copy", NULL};
  for (const char *const *name = PATHS; *name != NULL; name++) {
    const char *path = text_of(event, *name);
    if (path != NULL && g_strcmp0(type, "mounted") != 0) queue_upwards(mount, path);
  }
}

/* Returns whether the connection is still there. */
static gboolean on_line(Mount *mount, const char *line, gsize length) {
  g_autoptr(JsonParser) parser = json_parser_new_immutable();
  if (!json_parser_load_from_data(parser, line, length, NULL) || json_parser_get_root(parser) == NULL ||
      !JSON_NODE_HOLDS_OBJECT(json_parser_get_root(parser))) {
    lose(mount);
    return FALSE;
  }
  JsonObject *answer = json_node_get_object(json_parser_get_root(parser));
  const gint64 id = json_object_get_int_member_with_default(answer, "id", 0);
  JsonObject *result = object_of(answer, "result");
  JsonObject *progress = object_of(answer, "progress");
  if (id == STATES_ID && result != NULL) on_states(mount, result);
  else if (id == WATCH_ID && progress != NULL) {
    JsonObject *event = object_of(progress, "event");
    JsonObject *changed = object_of(progress, "changed");
    if (event != NULL) on_event(mount, event);
    else if (changed != NULL && mount->client->status != NULL)
      mount->client->status(mount->socket, changed, mount->client->data);
  } else lose(mount); /* an error, or the end of the events: the mount ends */
  return mount->calls != NULL;
}

static void on_received(GObject *stream, GAsyncResult *result, gpointer data);

static void receive(Mount *mount) {
  GInputStream *stream = g_io_stream_get_input_stream(G_IO_STREAM(mount->connection));
  g_input_stream_read_bytes_async(stream, READ_BYTES, G_PRIORITY_DEFAULT, mount->calls, on_received, mount);
}

static void on_received(GObject *stream, GAsyncResult *result, gpointer data) {
  g_autoptr(GError) error = NULL;
  g_autoptr(GBytes) bytes = g_input_stream_read_bytes_finish(G_INPUT_STREAM(stream), result, &error);
  if (g_error_matches(error, G_IO_ERROR, G_IO_ERROR_CANCELLED)) return; /* `data` may be freed */
  Mount *mount = data;
  if (bytes == NULL || g_bytes_get_size(bytes) == 0) {
    lose(mount);
    return;
  }
  guint searched = mount->received->len;
  g_byte_array_append(mount->received, g_bytes_get_data(bytes, NULL), g_bytes_get_size(bytes));
  guint start = 0;
  for (;;) {
    const guint8 *end = memchr(mount->received->data + searched, '\n', mount->received->len - searched);
    if (end == NULL) break;
    const guint length = end - mount->received->data - start;
    if (!on_line(mount, (const char *)mount->received->data + start, length)) return;
    searched = start = start + length + 1;
  }
  if (start > 0) g_byte_array_remove_range(mount->received, 0, start);
  if (mount->received->len > LINE_BYTES_MAX) lose(mount);
  else receive(mount);
}

static void on_connected(GObject *source, GAsyncResult *result, gpointer data) {
  g_autoptr(GError) error = NULL;
  g_autoptr(GSocketConnection) connection = g_socket_client_connect_finish(G_SOCKET_CLIENT(source), result, &error);
  if (g_error_matches(error, G_IO_ERROR, G_IO_ERROR_CANCELLED)) return; /* `data` may be freed */
  Mount *mount = data;
  if (connection == NULL) {
    lose(mount);
    return;
  }
  mount->connection = g_steal_pointer(&connection);
  mount->asked = g_ptr_array_new_with_free_func(g_free);
  JsonObject *params = json_object_new();
  json_object_set_boolean_member(params, "follow", TRUE);
  json_object_set_boolean_member(params, "status", mount->client->status != NULL);
  JsonNode *node = json_node_new(JSON_NODE_OBJECT);
  json_node_take_object(node, params);
  call(mount->unsent, WATCH_ID, "watch", node);
  ask_states(mount); /* of no path: the answer says where the mount is */
  receive(mount);
}

static GSocketConnectable *address_of(const char *socket) {
  return G_SOCKET_CONNECTABLE(g_unix_socket_address_new(socket));
}

static void open_connection(Mount *mount) {
  clear_source(&mount->retry);
  mount->calls = g_cancellable_new();
  mount->received = g_byte_array_new();
  mount->unsent = g_string_new(NULL);
  expect_answer(mount);
  g_autoptr(GSocketClient) connector = g_socket_client_new();
  g_socket_client_set_enable_proxy(connector, FALSE);
  g_autoptr(GSocketConnectable) address = address_of(mount->socket);
  g_socket_client_connect_async(connector, address, mount->calls, on_connected, mount);
}

/* ---- the search for sockets ---- */

static void find_below(const char *folder, const char *rest, GPtrArray *found) {
  g_autoptr(GDir) entries = g_dir_open(folder, 0, NULL);
  const char *name;
  while (entries != NULL && (name = g_dir_read_name(entries)) != NULL) {
    g_autofree char *path = g_build_filename(folder, name, rest, NULL);
    if (g_file_test(path, G_FILE_TEST_EXISTS)) g_ptr_array_add(found, g_steal_pointer(&path));
  }
}

/* In a thread: the home directory may be on a server. */
static void find_sockets(GTask *task, gpointer source, gpointer data, GCancellable *cancellable) {
  (void)source, (void)data, (void)cancellable;
  GPtrArray *found = g_ptr_array_new_with_free_func(g_free);
  g_autofree char *runtime = g_build_filename(g_get_user_runtime_dir(), "cfs", NULL);
  find_below(runtime, "control.sock", found);
  g_autofree char *accounts = g_build_filename(g_get_user_state_dir(), "cfs", "accounts", NULL);
  find_below(accounts, "run/control.sock", found);
  g_task_return_pointer(task, found, (GDestroyNotify)g_ptr_array_unref);
}

static void free_mount(gpointer data) {
  Mount *mount = data;
  disconnect(mount);
  g_hash_table_unref(mount->entries);
  g_ptr_array_unref(mount->queued);
  g_free(mount->directory);
  g_free(mount->socket);
  g_free(mount);
}

static Mount *new_mount(CfsClient *client, const char *socket) {
  Mount *mount = g_new0(Mount, 1);
  mount->client = client;
  mount->socket = g_strdup(socket);
  mount->retry_ms = RETRY_MS_MIN;
  mount->entries = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
  mount->queued = g_ptr_array_new_with_free_func(g_free);
  g_hash_table_insert(client->mounts, g_strdup(socket), mount);
  return mount;
}

static void on_found(GObject *source, GAsyncResult *result, gpointer data) {
  (void)source;
  g_autoptr(GError) error = NULL;
  g_autoptr(GPtrArray) found = g_task_propagate_pointer(G_TASK(result), &error);
  if (found == NULL) return; /* cancelled: `data` may be freed */
  CfsClient *client = data;
  client->is_searching = FALSE;
  client->searched_us = now_us();
  for (guint each = 0; each < found->len; each++) {
    const char *socket = found->pdata[each];
    Mount *mount = g_hash_table_lookup(client->mounts, socket);
    if (mount == NULL) mount = new_mount(client, socket);
    if (mount->calls == NULL && now_us() >= mount->retry_us) open_connection(mount);
  }
}

static void search(CfsClient *client) {
  if (client->is_searching || (client->searched_us != 0 && now_us() - client->searched_us < SEARCH_MS_MIN * 1000)) return;
  client->is_searching = TRUE;
  g_autoptr(GTask) task = g_task_new(NULL, client->ending, on_found, client);
  g_task_run_in_thread(task, find_sockets);
}

/* The mount of a path, and the rest of the path; NULL outside of all. */
static Mount *mount_of(CfsClient *client, const char *path, const char **below) {
  GHashTableIter each;
  gpointer value;
  g_hash_table_iter_init(&each, client->mounts);
  while (g_hash_table_iter_next(&each, NULL, &value)) {
    Mount *mount = value;
    if (!mount->is_there || !g_str_has_prefix(path, mount->directory)) continue;
    const char *rest = path + strlen(mount->directory);
    if (*rest != '\0' && *rest != '/') continue;
    *below = *rest == '/' ? rest + 1 : rest;
    return mount;
  }
  return NULL;
}

gboolean cfs_client_has(CfsClient *client, const char *path) {
  const char *below;
  return mount_of(client, path, &below) != NULL;
}

CfsState cfs_client_state(CfsClient *client, const char *path) {
  const char *below;
  Mount *mount = mount_of(client, path, &below);
  if (mount == NULL) search(client);
  if (mount == NULL || !g_utf8_validate(below, -1, NULL)) return (CfsState){0};
  Entry *entry = g_hash_table_lookup(mount->entries, below);
  if (entry == NULL) {
    if (g_hash_table_size(mount->entries) >= ENTRIES_MAX) return (CfsState){0};
    entry = g_new0(Entry, 1);
    g_hash_table_insert(mount->entries, g_strdup(below), entry);
    if (mount->following == 0) mount->following = g_timeout_add(FOLLOW_MS, on_follow, mount);
  }
  queue(mount, below);
  return entry->state;
}

/* ---- actions ---- */

/*
 * In a thread, which may wait; over a connection of its own. The first line of the answer is enough: a `pin` is set then, and the mount
 * continues it alone.
 */
static void run_action(GTask *task, gpointer source, gpointer data, GCancellable *cancellable) {
  (void)source;
  const char *const *words = data;
  GError *error = NULL;
  g_autoptr(GSocketClient) connector = g_socket_client_new();
  g_socket_client_set_enable_proxy(connector, FALSE);
  g_socket_client_set_timeout(connector, ACTION_SECONDS_MAX);
  g_autoptr(GSocketConnectable) address = address_of(words[0]);
  g_autoptr(GSocketConnection) connection = g_socket_client_connect(connector, address, cancellable, &error);
  if (connection != NULL) {
    GOutputStream *out = g_io_stream_get_output_stream(G_IO_STREAM(connection));
    g_autoptr(GDataInputStream) in = g_data_input_stream_new(g_io_stream_get_input_stream(G_IO_STREAM(connection)));
    g_autofree char *line = NULL;
    if (g_output_stream_write_all(out, words[1], strlen(words[1]), NULL, cancellable, &error))
      line = g_data_input_stream_read_line(in, NULL, cancellable, &error);
    if (error == NULL && line == NULL) error = g_error_new_literal(G_IO_ERROR, G_IO_ERROR_CLOSED, "the mount ended");
    if (error == NULL) {
      g_task_return_pointer(task, g_steal_pointer(&line), g_free);
      return;
    }
  }
  g_task_return_error(task, error);
}

static void free_action(gpointer data) {
  Action *action = data;
  g_free(action->path);
  g_free(action->method);
  g_free(action);
}

/* Whether an `evict` deleted no local copy. */
static gboolean has_freed_nothing(JsonNode *answer) {
  JsonObject *result = answer != NULL && JSON_NODE_HOLDS_OBJECT(answer) ? object_of(json_node_get_object(answer), "result") : NULL;
  return result != NULL && json_object_get_int_member_with_default(result, "files", 0) == 0;
}

static void on_acted(GObject *source, GAsyncResult *result, gpointer data) {
  (void)source;
  g_autoptr(GError) error = NULL;
  g_autofree char *line = g_task_propagate_pointer(G_TASK(result), &error);
  if (g_error_matches(error, G_IO_ERROR, G_IO_ERROR_CANCELLED)) return; /* `data` is freed */
  CfsClient *client = data;
  Action *action = g_steal_pointer(&client->action);
  g_autoptr(JsonNode) answer = line == NULL ? NULL : json_from_string(line, NULL);
  JsonObject *failure = answer == NULL || !JSON_NODE_HOLDS_OBJECT(answer) ? NULL : object_of(json_node_get_object(answer), "error");
  const char *message = error != NULL ? error->message : failure != NULL ? text_of(failure, "message") : NULL;
  if (failure != NULL && message == NULL) message = "the mount refused it";
  if (message == NULL && g_strcmp0(action->method, "evict") == 0 && has_freed_nothing(answer))
    message = "It is in use, not pushed yet, or not on this machine.";
  const char *below;
  Mount *mount = mount_of(client, action->path, &below);
  if (mount != NULL) queue_upwards(mount, below);
  if (action->done != NULL) action->done(message, action->data);
  free_action(action);
  next_action(client);
}

static void next_action(CfsClient *client) {
  if (client->action != NULL || g_queue_is_empty(&client->actions)) return;
  Action *action = client->action = g_queue_pop_head(&client->actions);
  g_autoptr(GTask) task = g_task_new(NULL, client->ending, on_acted, client);
  const char *below = NULL;
  Mount *mount = mount_of(client, action->path, &below);
  if (mount == NULL) {
    g_task_return_new_error(task, G_IO_ERROR, G_IO_ERROR_CLOSED, "the mount ended");
    return;
  }
  JsonObject *params = json_object_new();
  json_object_set_string_member(params, "path", below);
  if (g_strcmp0(action->method, "discard") == 0) json_object_set_boolean_member(params, "isSure", TRUE);
  JsonNode *node = json_node_new(JSON_NODE_OBJECT);
  json_node_take_object(node, params);
  GString *request = g_string_new(NULL);
  call(request, 1, action->method, node);
  char **words = g_new0(char *, 3);
  words[0] = g_strdup(mount->socket);
  words[1] = g_string_free(request, FALSE);
  g_task_set_task_data(task, words, (GDestroyNotify)g_strfreev);
  g_task_run_in_thread(task, run_action);
}

void cfs_client_act(CfsClient *client, const char *path, const char *method, CfsDone done, gpointer data) {
  Action *action = g_new0(Action, 1);
  action->path = g_strdup(path);
  action->method = g_strdup(method);
  action->done = done;
  action->data = data;
  g_queue_push_tail(&client->actions, action);
  next_action(client);
}

/* ---- the client ---- */

CfsClient *cfs_client_new(CfsNews news, gpointer data) {
  CfsClient *client = g_new0(CfsClient, 1);
  client->news = news;
  client->data = data;
  client->mounts = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, free_mount);
  client->ending = g_cancellable_new();
  g_queue_init(&client->actions);
  search(client);
  return client;
}

void cfs_client_follow_status(CfsClient *client, CfsStatus status) { client->status = status; }

void cfs_client_search(CfsClient *client) {
  client->searched_us = 0;
  search(client);
}

void cfs_client_free(CfsClient *client) {
  g_cancellable_cancel(client->ending);
  g_object_unref(client->ending);
  g_queue_clear_full(&client->actions, free_action);
  g_clear_pointer(&client->action, free_action);
  g_hash_table_unref(client->mounts);
  g_free(client);
}
