/*
 * The running mounts in the sidebar of file managers: libcloudproviders(7) of GNOME and elementary. The session bus starts this program when a
 * file manager looks for it, and it ends with the session. It reads control sockets; a mount knows nothing of it.
 */
#define G_LOG_DOMAIN "cfs"
#include <cloudproviders.h>
#include <json-glib/json-glib.h>

#include "../client/mount-client.h"

#define BUS_NAME "cfs.mount.Sidebar"
#define BUS_PATH "/cfs/mount/Sidebar"
/* After the start of a mount its folder appears first, and its socket then. */
#define SETTLE_MS 300
/* After the signal for the new values of an account, which is sent when the main loop is idle. */
#define REFRESH_MS 100
/* Where a folder cannot be watched. */
#define SEARCH_SECONDS 60

typedef struct {
  CfsClient *client;
  CloudProvidersProviderExporter *provider;
  GHashTable *entries;  /* socket -> Entry */
  GHashTable *monitors; /* folder -> GFileMonitor */
  guint number;         /* of the newest entry */
  guint settling;
  guint refreshing;
} Sidebar;

/* A mount. */
typedef struct {
  Sidebar *sidebar;
  char *directory;
  CloudProvidersAccountExporter *account; /* NULL while an unmount runs */
  GSimpleActionGroup *actions;
  GMenu *menu;
  gint64 pending;
  guint parked;
  guint held; /* removals that wait for a confirmation */
  gboolean is_paused;
  gboolean is_offline;
  gboolean is_signed_out;
  gboolean is_draining; /* an unmount has begun: the folder is no mount any more, or will be none soon */
} Entry;

/* ---- actions ---- */

static void on_done(const char *message, gpointer data) {
  (void)data;
  if (message != NULL) g_message("%s", message);
}

static void show_in_page(GSimpleAction *action, GVariant *value, gpointer data) {
  (void)action, (void)value;
  const Entry *entry = data;
  g_autoptr(GError) error = NULL;
  g_autoptr(GSubprocess) process = g_subprocess_new(G_SUBPROCESS_FLAGS_STDOUT_SILENCE, &error, "cfs", "web", "--open",
                                                    "--", entry->directory, NULL);
  if (process == NULL) g_message("%s", error->message);
}

static void call_mount(const Entry *entry, const char *method) {
  cfs_client_act(entry->sidebar->client, entry->directory, method, on_done, NULL);
}

static void pause_sending(GSimpleAction *action, GVariant *value, gpointer data) {
  (void)action, (void)value;
  call_mount(data, "pause");
}

static void resume_sending(GSimpleAction *action, GVariant *value, gpointer data) {
  (void)action, (void)value;
  call_mount(data, "resume");
}

static void retry_parked(GSimpleAction *action, GVariant *value, gpointer data) {
  (void)action, (void)value;
  call_mount(data, "retry");
}

static const GActionEntry ACTIONS[] = {
    {.name = "page", .activate = show_in_page},
    {.name = "pause", .activate = pause_sending},
    {.name = "resume", .activate = resume_sending},
    {.name = "retry", .activate = retry_parked},
};

/* ---- an entry ---- */

static char *counted(gint64 count, const char *one, const char *many) {
  return count == 1 ? g_strdup_printf("1 %s", one) : g_strdup_printf("%" G_GINT64_FORMAT " %s", count, many);
}

/* Its menu and its actions stay on the bus as long as the account exists, and the list of accounts gives up its own reference only. */
static void remove_account(Sidebar *sidebar, CloudProvidersAccountExporter **account) {
  if (*account == NULL) return;
  cloud_providers_provider_exporter_remove_account(sidebar->provider, *account);
  g_clear_object(account);
}

/*
 * A file manager reads the path and the icon of an account when the list of accounts changes, and an account is in the list before it has
 * them (the constructor exports it). So the list changes once more.
 */
static gboolean on_refresh(gpointer data) {
  Sidebar *sidebar = data;
  sidebar->refreshing = 0;
  CloudProvidersAccountExporter *other = cloud_providers_account_exporter_new(sidebar->provider, "refresh");
  remove_account(sidebar, &other);
  return G_SOURCE_REMOVE;
}

static void add_account(Entry *entry) {
  Sidebar *sidebar = entry->sidebar;
  g_autofree char *element = g_strdup_printf("mount%u", ++sidebar->number);
  entry->account = cloud_providers_account_exporter_new(sidebar->provider, element);
  g_autofree char *name = g_path_get_basename(entry->directory);
  g_autoptr(GIcon) icon = g_themed_icon_new("folder-remote-symbolic");
  cloud_providers_account_exporter_set_name(entry->account, name);
  cloud_providers_account_exporter_set_path(entry->account, entry->directory);
  cloud_providers_account_exporter_set_icon(entry->account, icon);
  cloud_providers_account_exporter_set_action_group(entry->account, G_ACTION_GROUP(entry->actions));
  cloud_providers_account_exporter_set_menu_model(entry->account, G_MENU_MODEL(entry->menu));
  if (sidebar->refreshing == 0) sidebar->refreshing = g_timeout_add(REFRESH_MS, on_refresh, sidebar);
}

static void show(Entry *entry) {
  if (entry->is_draining) {
    remove_account(entry->sidebar, &entry->account);
    return;
  }
  if (entry->account == NULL) add_account(entry);
  g_autofree char *waiting = counted(entry->pending, "change waits", "changes wait");
  g_autofree char *details = NULL;
  CloudProvidersAccountStatus status = CLOUD_PROVIDERS_ACCOUNT_STATUS_IDLE;
  if (entry->is_signed_out) {
    status = CLOUD_PROVIDERS_ACCOUNT_STATUS_ERROR;
    details = g_strdup("The service refuses the sign-in: run cfs login");
  } else if (entry->parked + entry->held > 0) {
    status = CLOUD_PROVIDERS_ACCOUNT_STATUS_ERROR;
    details = counted(entry->parked + entry->held, "change needs attention", "changes need attention");
  } else if (entry->is_paused) details = entry->pending == 0 ? g_strdup("Paused") : g_strconcat("Paused, ", waiting, NULL);
  else if (entry->is_offline) details = entry->pending == 0 ? g_strdup("Offline") : g_strconcat("Offline, ", waiting, NULL);
  else if (entry->pending > 0) {
    status = CLOUD_PROVIDERS_ACCOUNT_STATUS_SYNCING;
    details = counted(entry->pending, "change is sent", "changes are sent");
  } else details = g_strdup("Up to date");
  cloud_providers_account_exporter_set_status(entry->account, status);
  cloud_providers_account_exporter_set_status_details(entry->account, details);
  g_menu_remove_all(entry->menu);
  g_menu_append(entry->menu, "Show in the Page", "cloudprovider.page");
  if (entry->is_paused) g_menu_append(entry->menu, "Resume Sending", "cloudprovider.resume");
  else g_menu_append(entry->menu, "Pause Sending", "cloudprovider.pause");
  if (entry->parked > 0) g_menu_append(entry->menu, "Retry", "cloudprovider.retry");
}

static void free_entry(gpointer data) {
  Entry *entry = data;
  remove_account(entry->sidebar, &entry->account);
  g_object_unref(entry->actions);
  g_object_unref(entry->menu);
  g_free(entry->directory);
  g_free(entry);
}

static Entry *new_entry(Sidebar *sidebar, const char *socket, const char *directory) {
  Entry *entry = g_new0(Entry, 1);
  entry->sidebar = sidebar;
  entry->directory = g_strdup(directory);
  entry->actions = g_simple_action_group_new();
  g_action_map_add_action_entries(G_ACTION_MAP(entry->actions), ACTIONS, G_N_ELEMENTS(ACTIONS), entry);
  entry->menu = g_menu_new();
  g_hash_table_insert(sidebar->entries, g_strdup(socket), entry);
  return entry;
}

static guint length_of(JsonObject *object, const char *name, guint otherwise) {
  JsonNode *list = json_object_get_member(object, name);
  return list != NULL && JSON_NODE_HOLDS_ARRAY(list) ? json_array_get_length(json_node_get_array(list)) : otherwise;
}

/* Members that the message does not have keep their value. */
static void read_status(Entry *entry, JsonObject *changed) {
  JsonNode *pending = json_object_get_member(changed, "pending");
  if (pending != NULL && JSON_NODE_HOLDS_OBJECT(pending))
    entry->pending = json_object_get_int_member_with_default(json_node_get_object(pending), "count", 0);
  JsonNode *connection = json_object_get_member(changed, "connection");
  if (connection != NULL && JSON_NODE_HOLDS_OBJECT(connection)) {
    const char *state = json_object_get_string_member_with_default(json_node_get_object(connection), "state", "");
    entry->is_offline = g_strcmp0(state, "offline") == 0;
    entry->is_signed_out = g_strcmp0(state, "sign-in-needed") == 0;
  }
  const char *phase = json_object_get_string_member_with_default(changed, "phase", NULL);
  if (phase != NULL) entry->is_draining = g_strcmp0(phase, "draining") == 0;
  if (json_object_has_member(changed, "paused")) entry->is_paused = !json_object_get_null_member(changed, "paused");
  entry->parked = length_of(changed, "parked", entry->parked);
  entry->held = length_of(changed, "held", entry->held);
}

static void on_status(const char *socket, JsonObject *changed, gpointer data) {
  Sidebar *sidebar = data;
  if (changed == NULL) {
    g_hash_table_remove(sidebar->entries, socket);
    return;
  }
  Entry *entry = g_hash_table_lookup(sidebar->entries, socket);
  if (entry == NULL) {
    JsonNode *directory = json_object_get_member(changed, "directory");
    if (directory == NULL || json_node_get_value_type(directory) != G_TYPE_STRING) return;
    entry = new_entry(sidebar, socket, json_node_get_string(directory));
  }
  read_status(entry, changed);
  show(entry);
}

/* ---- the folders of sockets ---- */

static void watch_folders(Sidebar *sidebar);

static gboolean on_settled(gpointer data) {
  Sidebar *sidebar = data;
  sidebar->settling = 0;
  cfs_client_search(sidebar->client);
  watch_folders(sidebar);
  return G_SOURCE_REMOVE;
}

static void on_change(GFileMonitor *monitor, GFile *file, GFile *other, GFileMonitorEvent event, gpointer data) {
  (void)monitor, (void)file, (void)other, (void)event;
  Sidebar *sidebar = data;
  if (sidebar->settling == 0) sidebar->settling = g_timeout_add(SETTLE_MS, on_settled, sidebar);
}

static void watch_folder(Sidebar *sidebar, const char *folder) {
  if (g_hash_table_contains(sidebar->monitors, folder) || !g_file_test(folder, G_FILE_TEST_IS_DIR)) return;
  g_autoptr(GFile) file = g_file_new_for_path(folder);
  GFileMonitor *monitor = g_file_monitor_directory(file, G_FILE_MONITOR_WATCH_MOVES, NULL, NULL);
  if (monitor == NULL) return;
  g_signal_connect(monitor, "changed", G_CALLBACK(on_change), sidebar);
  g_hash_table_insert(sidebar->monitors, g_strdup(folder), monitor);
}

/* The folder of each account, the folder of those, and, until that exists, the runtime directory. */
static void watch_folders(Sidebar *sidebar) {
  GHashTableIter each;
  gpointer folder;
  g_hash_table_iter_init(&each, sidebar->monitors);
  while (g_hash_table_iter_next(&each, &folder, NULL))
    if (!g_file_test(folder, G_FILE_TEST_IS_DIR)) g_hash_table_iter_remove(&each);
  g_autofree char *sockets = g_build_filename(g_get_user_runtime_dir(), "cfs", NULL);
  watch_folder(sidebar, sockets);
  if (!g_hash_table_contains(sidebar->monitors, sockets)) watch_folder(sidebar, g_get_user_runtime_dir());
  else g_hash_table_remove(sidebar->monitors, g_get_user_runtime_dir());
  g_autoptr(GDir) accounts = g_dir_open(sockets, 0, NULL);
  const char *name;
  while (accounts != NULL && (name = g_dir_read_name(accounts)) != NULL) {
    g_autofree char *account = g_build_filename(sockets, name, NULL);
    watch_folder(sidebar, account);
  }
}

static gboolean on_interval(gpointer data) {
  on_settled(data);
  return G_SOURCE_CONTINUE;
}

/* ---- the program ---- */

static void start(Sidebar *sidebar, GDBusConnection *bus) {
  sidebar->provider = cloud_providers_provider_exporter_new(bus, BUS_NAME, BUS_PATH);
  cloud_providers_provider_exporter_set_name(sidebar->provider, "Cloud folders");
  sidebar->client = cfs_client_new(NULL, sidebar);
  cfs_client_follow_status(sidebar->client, on_status);
  watch_folders(sidebar);
  g_timeout_add_seconds(SEARCH_SECONDS, on_interval, sidebar);
}

/* Another one runs, or the session has ended. */
static void on_name_lost(GDBusConnection *bus, const char *name, gpointer data) {
  (void)bus, (void)name;
  g_main_loop_quit(data);
}

/* Local paths only: the daemons of gvfs are neither loaded nor started. Programs that this one starts choose for themselves. */
static void use_local_files(void) {
  g_autofree char *before = g_strdup(g_getenv("GIO_USE_VFS"));
  g_setenv("GIO_USE_VFS", "local", TRUE);
  g_vfs_get_default();
  if (before == NULL) g_unsetenv("GIO_USE_VFS");
  else g_setenv("GIO_USE_VFS", before, TRUE);
}

int main(void) {
  use_local_files();
  Sidebar sidebar = {0};
  sidebar.entries = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, free_entry);
  sidebar.monitors = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_object_unref);
  g_autoptr(GMainLoop) loop = g_main_loop_new(NULL, FALSE);
  g_autoptr(GError) error = NULL;
  g_autoptr(GDBusConnection) bus = g_bus_get_sync(G_BUS_TYPE_SESSION, NULL, &error);
  if (bus == NULL) {
    g_printerr("cfs-sidebar: %s\n", error->message);
    return 1;
  }
  /* Exported before the name is owned: a file manager that waits for the name asks for the objects then. */
  start(&sidebar, bus);
  g_bus_own_name_on_connection(bus, BUS_NAME, G_BUS_NAME_OWNER_FLAGS_DO_NOT_QUEUE, NULL, on_name_lost, loop, NULL);
  g_main_loop_run(loop);
  return 0;
}
