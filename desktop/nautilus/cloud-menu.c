#define G_LOG_DOMAIN "cfs"
#include "cloud-menu.h"

#include <gmodule.h>
#include <string.h>

/* A selection, and what is done with it. */
typedef struct {
  CfsClient *client;
  GPtrArray *paths;
  const char *method; /* a call of the control socket, for each path; NULL: `run` */
  void (*run)(const char *path);
} Choice;

/* ---- messages ---- */

/* A notice of the file manager. A later one replaces it. */
static void say(const char *title, const char *text) {
  GApplication *application = g_application_get_default();
  if (application == NULL) {
    g_message("%s: %s", title, text);
    return;
  }
  g_autoptr(GNotification) notice = g_notification_new(title);
  g_notification_set_body(notice, text);
  g_application_send_notification(application, "cfs", notice);
}

static void on_done(const char *message, gpointer data) {
  if (message != NULL) say(data, message);
}

/* ---- programs ---- */

typedef struct {
  const char *failure; /* title of the notice */
  void (*then)(const char *output);
} Program;

static void on_program_end(GObject *process, GAsyncResult *result, gpointer data) {
  g_autofree Program *program = data;
  g_autofree char *output = NULL;
  g_autofree char *complaint = NULL;
  g_autoptr(GError) error = NULL;
  if (!g_subprocess_communicate_utf8_finish(G_SUBPROCESS(process), result, &output, &complaint, &error))
    say(program->failure, error->message);
  else if (!g_subprocess_get_successful(G_SUBPROCESS(process)))
    say(program->failure, *g_strchomp(complaint) == '\0' ? "cfs ended with an error" : complaint);
  else if (program->then != NULL)
    program->then(g_strchomp(output));
}

/* Runs `cfs` with these words. */
static void run_cfs(const char *failure, void (*then)(const char *output), const char *const *words) {
  g_autoptr(GStrvBuilder) builder = g_strv_builder_new();
  g_strv_builder_add(builder, "cfs");
  g_strv_builder_addv(builder, (const char **)words);
  g_auto(GStrv) command = g_strv_builder_end(builder);
  g_autoptr(GError) error = NULL;
  const GSubprocessFlags flags = G_SUBPROCESS_FLAGS_STDOUT_PIPE | G_SUBPROCESS_FLAGS_STDERR_PIPE;
  g_autoptr(GSubprocess) process = g_subprocess_newv((const char *const *)command, flags, &error);
  if (process == NULL) {
    say(failure, error->message);
    return;
  }
  Program *program = g_new0(Program, 1);
  program->failure = failure;
  program->then = then;
  g_subprocess_communicate_utf8_async(process, NULL, NULL, on_program_end, program);
}

static void show_in_page(const char *path) {
  run_cfs("The page cannot be shown", NULL, (const char *const[]){"web", "--open", "--", path, NULL});
}

static void show_folder_in_page(const char *path) {
  g_autofree char *folder = g_path_get_dirname(path);
  show_in_page(folder);
}

static void said_restored(const char *output) { say("The previous version is restored", output); }

static void restore_previous(const char *path) {
  g_autofree char *version = g_strconcat(path, "@-1", NULL);
  run_cfs("The version is not restored", said_restored, (const char *const[]){"restore", "--", version, NULL});
}

/* The clipboard of the program's GTK 4, which this library does not link. Returns FALSE without one. */
static gboolean copied(const char *text) {
  gpointer (*display_get_default)(void);
  gpointer (*get_clipboard)(gpointer);
  void (*set_text)(gpointer, const char *);
  GModule *program = g_module_open(NULL, 0);
  const gboolean is_there = program != NULL &&
                            g_module_symbol(program, "gdk_display_get_default", (gpointer *)&display_get_default) &&
                            g_module_symbol(program, "gdk_display_get_clipboard", (gpointer *)&get_clipboard) &&
                            g_module_symbol(program, "gdk_clipboard_set_text", (gpointer *)&set_text);
  gpointer display = is_there ? display_get_default() : NULL;
  if (display != NULL) set_text(get_clipboard(display), text);
  if (program != NULL) g_module_close(program);
  return display != NULL;
}

static void copy_printed_link(const char *output) {
  say(copied(output) ? "The public link is copied" : "The public link", output);
}

static void copy_link(const char *path) {
  run_cfs("There is no public link", copy_printed_link, (const char *const[]){"share", "link", "--", path, NULL});
}

/* ---- items ---- */

static const char *failure_of(const char *method) {
  if (strcmp(method, "pin") == 0) return "It is not kept on this machine";
  if (strcmp(method, "unpin") == 0) return "It is still kept on this machine";
  if (strcmp(method, "evict") == 0) return "No space is freed";
  return strcmp(method, "retry") == 0 ? "The change is not retried" : "The change is not discarded";
}

static void on_click(NautilusMenuItem *item, gpointer data) {
  (void)item;
  const Choice *choice = data;
  for (guint each = 0; each < choice->paths->len; each++) {
    const char *path = choice->paths->pdata[each];
    if (choice->run != NULL) choice->run(path);
    else cfs_client_act(choice->client, path, choice->method, on_done, (gpointer)failure_of(choice->method));
  }
}

static void free_choice(gpointer data, GClosure *closure) {
  (void)closure;
  Choice *choice = data;
  g_ptr_array_unref(choice->paths);
  g_free(choice);
}

static NautilusMenuItem *new_item(const char *name, const char *label) {
  g_autofree char *unique = g_strconcat("Cfs::", name, NULL);
  return nautilus_menu_item_new(unique, label, NULL, NULL);
}

static void append(NautilusMenu *menu, NautilusMenuItem *item) {
  nautilus_menu_append_item(menu, item);
  g_object_unref(item);
}

static NautilusMenuItem *choice(CfsClient *client, GPtrArray *paths, const char *label, const char *method,
                                void (*run)(const char *)) {
  Choice *choice = g_new0(Choice, 1);
  choice->client = client;
  choice->paths = g_ptr_array_ref(paths);
  choice->method = method;
  choice->run = run;
  NautilusMenuItem *item = new_item(label, label);
  g_signal_connect_data(item, "activate", G_CALLBACK(on_click), choice, free_choice, 0);
  return item;
}

static NautilusMenuItem *unless(gboolean is_off, NautilusMenuItem *item) {
  if (is_off) g_object_set(item, "sensitive", FALSE, NULL);
  return item;
}

GList *cloud_menu_items(CfsClient *client, GPtrArray *paths) {
  gboolean has_parked = FALSE, has_folder = FALSE, is_all_pinned = TRUE, is_all_kept = TRUE, is_all_away = TRUE;
  for (guint each = 0; each < paths->len; each++) {
    if (!cfs_client_has(client, paths->pdata[each])) return NULL;
    const CfsState state = cfs_client_state(client, paths->pdata[each]);
    has_folder = has_folder || state.is_folder;
    has_parked = has_parked || state.sync == CFS_PARKED;
    is_all_pinned = is_all_pinned && state.pin == CFS_PINNED;
    is_all_kept = is_all_kept && state.pin != CFS_UNPINNED;
    is_all_away = is_all_away && state.here == CFS_HERE_NONE;
  }
  if (paths->len == 0) return NULL;
  g_autoptr(NautilusMenu) menu = nautilus_menu_new();
  const gboolean is_file = paths->len == 1 && !has_folder;
  if (is_file) {
    append(menu, choice(client, paths, "Versions…", NULL, show_in_page));
    append(menu, choice(client, paths, "Restore Previous Version", NULL, restore_previous));
  }
  if (is_all_pinned) append(menu, choice(client, paths, "Stop Keeping on This Machine", "unpin", NULL));
  else append(menu, unless(is_all_kept, choice(client, paths, "Keep on This Machine", "pin", NULL)));
  append(menu, unless(is_all_kept || is_all_away, choice(client, paths, "Free Space", "evict", NULL)));
  if (is_file) append(menu, choice(client, paths, "Copy Public Link", NULL, copy_link));
  if (paths->len == 1)
    append(menu, choice(client, paths, "Show in the Page", NULL, is_file ? show_folder_in_page : show_in_page));
  if (has_parked) {
    append(menu, choice(client, paths, "Retry", "retry", NULL));
    /* The second click is the confirmation: what is discarded exists here only. */
    g_autoptr(NautilusMenu) sure = nautilus_menu_new();
    append(sure, choice(client, paths, "Discard My Changes Permanently", "discard", NULL));
    NautilusMenuItem *discard = new_item("Discard", "Discard");
    nautilus_menu_item_set_submenu(discard, sure);
    append(menu, discard);
  }
  NautilusMenuItem *cloud = new_item("Cloud", "Cloud");
  nautilus_menu_item_set_submenu(cloud, menu);
  return g_list_append(NULL, cloud);
}
