/*
 * The extension for Nautilus 43 and later: emblems and a menu for files in a mount of cfs. It never waits: it answers with what is known, asks the
 * mount, and lets Nautilus ask again when the answer differs. It keeps no object of Nautilus; files are found again by their path.
 */
#include <nautilus-extension.h>

#include "../client/mount-client.h"
#include "cloud-menu.h"

#define CFS_TYPE_PROVIDER (cfs_provider_get_type())
G_DECLARE_FINAL_TYPE(CfsProvider, cfs_provider, CFS, PROVIDER, GObject)

struct _CfsProvider {
  GObject parent;
  CfsClient *client;
};

/* One emblem for each file, for what matters most. None for a file that is clean. */
static const char *emblem_of(const CfsState *state) {
  if (!state->is_known) return NULL;
  if (state->sync == CFS_PARKED) return "cfs-attention";
  if (state->is_conflict) return "cfs-conflict";
  if (state->sync == CFS_PENDING) return "cfs-pending";
  if (state->pin == CFS_PINNED) return "cfs-pinned";
  return state->here == CFS_HERE_NONE ? "cfs-cloud-only" : NULL;
}

/* Nautilus asks all extensions again, and draws the file: not for the answer that a file is clean, which most files are. */
static gboolean on_news(const char *path, const CfsState *was, const CfsState *is, gpointer data) {
  (void)data;
  g_autoptr(GFile) location = g_file_new_for_path(path);
  g_autoptr(NautilusFileInfo) file = nautilus_file_info_lookup(location);
  if (file == NULL) return FALSE;
  if (was != NULL && emblem_of(was) != emblem_of(is)) nautilus_file_info_invalidate_extension_info(file);
  return TRUE;
}

static NautilusOperationResult update_file_info(NautilusInfoProvider *provider, NautilusFileInfo *file,
                                                GClosure *update_complete, NautilusOperationHandle **handle) {
  (void)update_complete, (void)handle;
  g_autoptr(GFile) location = nautilus_file_info_get_location(file);
  const char *path = location == NULL ? NULL : g_file_peek_path(location);
  if (path == NULL) return NAUTILUS_OPERATION_COMPLETE;
  const CfsState state = cfs_client_state(CFS_PROVIDER(provider)->client, path);
  const char *emblem = emblem_of(&state);
  if (emblem != NULL) nautilus_file_info_add_emblem(file, emblem);
  return NAUTILUS_OPERATION_COMPLETE;
}

/* No operation runs longer than the call. */
static void cancel_update(NautilusInfoProvider *provider, NautilusOperationHandle *handle) { (void)provider, (void)handle; }

static void info_provider_init(NautilusInfoProviderInterface *interface) {
  interface->update_file_info = update_file_info;
  interface->cancel_update = cancel_update;
}

static GList *get_file_items(NautilusMenuProvider *provider, GList *files) {
  g_autoptr(GPtrArray) paths = g_ptr_array_new_with_free_func(g_free);
  for (GList *each = files; each != NULL; each = each->next) {
    g_autoptr(GFile) location = nautilus_file_info_get_location(each->data);
    const char *path = location == NULL ? NULL : g_file_peek_path(location);
    if (path == NULL) return NULL;
    g_ptr_array_add(paths, g_strdup(path));
  }
  return cloud_menu_items(CFS_PROVIDER(provider)->client, paths);
}

static GList *get_background_items(NautilusMenuProvider *provider, NautilusFileInfo *folder) {
  GList files = {.data = folder};
  return get_file_items(provider, &files);
}

static void menu_provider_init(NautilusMenuProviderInterface *interface) {
  interface->get_file_items = get_file_items;
  interface->get_background_items = get_background_items;
}

G_DEFINE_DYNAMIC_TYPE_EXTENDED(CfsProvider, cfs_provider, G_TYPE_OBJECT, 0,
                               G_IMPLEMENT_INTERFACE_DYNAMIC(NAUTILUS_TYPE_INFO_PROVIDER, info_provider_init)
                                   G_IMPLEMENT_INTERFACE_DYNAMIC(NAUTILUS_TYPE_MENU_PROVIDER, menu_provider_init))

static void cfs_provider_init(CfsProvider *provider) { provider->client = cfs_client_new(on_news, provider); }

static void cfs_provider_finalize(GObject *object) {
  cfs_client_free(CFS_PROVIDER(object)->client);
  G_OBJECT_CLASS(cfs_provider_parent_class)->finalize(object);
}

static void cfs_provider_class_init(CfsProviderClass *class) { G_OBJECT_CLASS(class)->finalize = cfs_provider_finalize; }

static void cfs_provider_class_finalize(CfsProviderClass *class) { (void)class; }

/* The functions that Nautilus calls by their names. */
G_MODULE_EXPORT void nautilus_module_initialize(GTypeModule *module) { cfs_provider_register_type(module); }

G_MODULE_EXPORT void nautilus_module_shutdown(void) {}

G_MODULE_EXPORT void nautilus_module_list_types(const GType **types, int *count) {
  static GType type;
  type = CFS_TYPE_PROVIDER;
  *types = &type;
  *count = 1;
}
