/*
 * Drives an extension of Nautilus as Nautilus does, without windows: nautilus-driver MODULE, one command per line.
 *   show PATH      asks for the emblems of a file, again whenever the extension invalidates them; prints `PATH<tab>EMBLEM` when they change
 *   hide PATH      the file is no longer shown
 *   ping           prints `pong`: the main loop runs
 *   menu PATH...   prints `menu` and the labels of the menu, each after a tab
 *   click LABEL    activates that item of the last menu
 *   count          prints `count`, a tab, and how often the extension invalidated a file
 * What the extension says to a person is printed as `said<tab>TEXT`.
 */
#include <gio/gunixinputstream.h>
#include <gmodule.h>
#include <nautilus-extension.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SHOWN_TYPE (shown_get_type())
G_DECLARE_FINAL_TYPE(Shown, shown, SHOWN, FILE, GObject)

struct _Shown {
  GObject parent;
  char *path;
  char *emblems;   /* as printed */
  GString *coming; /* of the running question */
  gboolean is_asked;
};

static GHashTable *all; /* path -> Shown */
static GPtrArray *providers;
static GList *items;
static guint invalidated;
static GMainLoop *loop;

/* Exported by libnautilus-extension; Nautilus sets it. */
extern NautilusFileInfo *(*nautilus_file_info_getter)(GFile *location, gboolean create);

static NautilusFileInfo *get_file(GFile *location, gboolean create) {
  (void)create;
  Shown *file = g_hash_table_lookup(all, g_file_peek_path(location));
  return file == NULL ? NULL : NAUTILUS_FILE_INFO(g_object_ref(file));
}

static gboolean ask(gpointer data) {
  Shown *file = data;
  file->is_asked = FALSE;
  file->coming = g_string_new(NULL);
  for (guint each = 0; each < providers->len; each++) {
    if (!NAUTILUS_IS_INFO_PROVIDER(providers->pdata[each])) continue;
    NautilusOperationHandle *handle = NULL;
    g_autoptr(GClosure) complete = g_cclosure_new(G_CALLBACK(ask), NULL, NULL);
    g_closure_ref(complete);
    g_closure_sink(complete);
    if (nautilus_info_provider_update_file_info(providers->pdata[each], NAUTILUS_FILE_INFO(file), complete, &handle) !=
        NAUTILUS_OPERATION_COMPLETE)
      printf("the extension wants to be waited for\n");
  }
  if (g_strcmp0(file->emblems, file->coming->str) != 0) printf("%s\t%s\n", file->path, file->coming->str);
  g_free(file->emblems);
  file->emblems = g_string_free(file->coming, FALSE);
  file->coming = NULL;
  return G_SOURCE_REMOVE;
}

static void ask_soon(Shown *file) {
  if (file->is_asked) return;
  file->is_asked = TRUE;
  g_idle_add_full(G_PRIORITY_DEFAULT_IDLE, ask, g_object_ref(file), g_object_unref);
}

static void invalidate(NautilusFileInfo *info) {
  invalidated++;
  ask_soon(SHOWN_FILE(info));
}

static GFile *get_location(NautilusFileInfo *info) { return g_file_new_for_path(SHOWN_FILE(info)->path); }

static void add_emblem(NautilusFileInfo *info, const char *name) { g_string_append(SHOWN_FILE(info)->coming, name); }

static gboolean is_directory(NautilusFileInfo *info) {
  (void)info;
  return FALSE;
}

static void file_info_init(NautilusFileInfoInterface *interface) {
  interface->get_location = get_location;
  interface->add_emblem = add_emblem;
  interface->invalidate_extension_info = invalidate;
  interface->is_directory = is_directory;
}

G_DEFINE_TYPE_WITH_CODE(Shown, shown, G_TYPE_OBJECT, G_IMPLEMENT_INTERFACE(NAUTILUS_TYPE_FILE_INFO, file_info_init))

static void shown_init(Shown *file) { (void)file; }

static void shown_finalize(GObject *object) {
  g_free(SHOWN_FILE(object)->path);
  g_free(SHOWN_FILE(object)->emblems);
  G_OBJECT_CLASS(shown_parent_class)->finalize(object);
}

static void shown_class_init(ShownClass *class) { G_OBJECT_CLASS(class)->finalize = shown_finalize; }

static Shown *file_at(const char *path) {
  Shown *file = g_hash_table_lookup(all, path);
  if (file == NULL) {
    file = g_object_new(SHOWN_TYPE, NULL);
    file->path = g_strdup(path);
    g_hash_table_insert(all, g_strdup(path), file);
  }
  return file;
}

static void print_menu(GList *of, const char *indent) {
  for (GList *each = of; each != NULL; each = each->next) {
    g_autofree char *label = NULL;
    gboolean is_sensitive;
    NautilusMenu *menu = NULL;
    g_object_get(each->data, "label", &label, "sensitive", &is_sensitive, "menu", &menu, NULL);
    printf("\t%s%s%s", indent, label, is_sensitive ? "" : " (off)");
    if (menu == NULL) continue;
    g_autolist(NautilusMenuItem) below = nautilus_menu_get_items(menu);
    g_autofree char *deeper = g_strconcat(indent, "> ", NULL);
    print_menu(below, deeper);
    g_object_unref(menu);
  }
}

static gboolean click(GList *of, const char *wanted) {
  for (GList *each = of; each != NULL; each = each->next) {
    g_autofree char *label = NULL;
    NautilusMenu *menu = NULL;
    g_object_get(each->data, "label", &label, "menu", &menu, NULL);
    if (g_strcmp0(label, wanted) == 0) {
      nautilus_menu_item_activate(each->data);
      g_clear_object(&menu);
      return TRUE;
    }
    if (menu == NULL) continue;
    g_autolist(NautilusMenuItem) below = nautilus_menu_get_items(menu);
    g_object_unref(menu);
    if (click(below, wanted)) return TRUE;
  }
  return FALSE;
}

static void show_menu(char **paths) {
  g_autolist(GObject) files = NULL;
  for (char **path = paths; *path != NULL; path++) files = g_list_append(files, g_object_ref(file_at(*path)));
  g_list_free_full(items, g_object_unref);
  items = NULL;
  for (guint each = 0; each < providers->len; each++)
    if (NAUTILUS_IS_MENU_PROVIDER(providers->pdata[each]))
      items = g_list_concat(items, nautilus_menu_provider_get_file_items(providers->pdata[each], files));
  printf("menu");
  print_menu(items, "");
  printf("\n");
}

static void on_line(GObject *lines, GAsyncResult *result, gpointer data) {
  g_autofree char *line = g_data_input_stream_read_line_finish(G_DATA_INPUT_STREAM(lines), result, NULL, NULL);
  if (line == NULL) {
    g_main_loop_quit(loop);
    return;
  }
  g_auto(GStrv) words = g_strsplit(line, "\t", -1);
  if (g_strcmp0(words[0], "show") == 0) ask_soon(file_at(words[1]));
  else if (g_strcmp0(words[0], "hide") == 0) g_hash_table_remove(all, words[1]);
  else if (g_strcmp0(words[0], "ping") == 0) printf("pong\n");
  else if (g_strcmp0(words[0], "count") == 0) printf("count\t%u\n", invalidated);
  else if (g_strcmp0(words[0], "menu") == 0) show_menu(words + 1);
  else if (g_strcmp0(words[0], "click") == 0) printf(click(items, words[1]) ? "clicked\n" : "no such item\n");
  g_data_input_stream_read_line_async(G_DATA_INPUT_STREAM(lines), G_PRIORITY_DEFAULT, NULL, on_line, data);
}

/* A type module, as Nautilus makes of each extension. */
typedef struct {
  GTypeModule parent;
  GModule *library;
} Extension;
typedef GTypeModuleClass ExtensionClass;
GType extension_get_type(void);
G_DEFINE_TYPE(Extension, extension, G_TYPE_TYPE_MODULE)

static gpointer symbol(GModule *library, const char *name) {
  gpointer found = NULL;
  if (!g_module_symbol(library, name, &found)) g_error("no %s: %s", name, g_module_error());
  return found;
}

static gboolean load(GTypeModule *module) {
  ((void (*)(GTypeModule *))symbol(((Extension *)module)->library, "nautilus_module_initialize"))(module);
  return TRUE;
}

static void unload(GTypeModule *module) { (void)module; }
static void extension_init(Extension *extension) { (void)extension; }
static void extension_class_init(ExtensionClass *class) {
  class->load = load;
  class->unload = unload;
}

static void print_message(const char *domain, GLogLevelFlags level, const char *message, gpointer data) {
  (void)domain, (void)level, (void)data;
  g_autofree char *line = g_strdelimit(g_strdup(message), "\n", ' ');
  printf("said\t%s\n", line);
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  g_log_set_handler("cfs", G_LOG_LEVEL_MESSAGE, print_message, NULL);
  setvbuf(stdout, NULL, _IOLBF, 0);
  all = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_object_unref);
  nautilus_file_info_getter = get_file;
  Extension *extension = g_object_new(extension_get_type(), NULL);
  extension->library = g_module_open(argv[1], G_MODULE_BIND_LOCAL);
  if (extension->library == NULL) g_error("%s", g_module_error());
  if (!g_type_module_use(G_TYPE_MODULE(extension))) return 1;
  const GType *types;
  int count;
  ((void (*)(const GType **, int *))symbol(extension->library, "nautilus_module_list_types"))(&types, &count);
  providers = g_ptr_array_new_with_free_func(g_object_unref);
  for (int each = 0; each < count; each++) g_ptr_array_add(providers, g_object_new(types[each], NULL));
  g_autoptr(GInputStream) in = g_unix_input_stream_new(STDIN_FILENO, FALSE);
  g_autoptr(GDataInputStream) lines = g_data_input_stream_new(in);
  g_data_input_stream_read_line_async(lines, G_PRIORITY_DEFAULT, NULL, on_line, NULL);
  loop = g_main_loop_new(NULL, FALSE);
  g_main_loop_run(loop);
  g_list_free_full(items, g_object_unref);
  g_ptr_array_unref(providers);
  while (g_main_context_iteration(NULL, FALSE)) continue;
  g_hash_table_unref(all);
  g_main_loop_unref(loop);
  return 0;
}
