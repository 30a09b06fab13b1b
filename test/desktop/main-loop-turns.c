/*
 * LD_PRELOAD for a program with a main loop of GLib: appends the processor time of each turn of the main thread, in ms, as a line to the file
 * CFS_TURNS. Turns shorter than half a millisecond are left out.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define SHORTEST_MS 0.5

static double processor_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

/* gmain.h, without its header: `context` is a GMainContext. GApplication calls it for each turn. */
int g_main_context_iteration(void *context, int may_block) {
  static int (*iteration)(void *, int);
  static int file = -1;
  if (iteration == NULL) {
    iteration = (int (*)(void *, int))dlsym(RTLD_NEXT, "g_main_context_iteration");
    const char *path = getenv("CFS_TURNS");
    if (path != NULL) file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  }
  if (gettid() != getpid()) return iteration(context, may_block);
  const double from = processor_ms();
  const int dispatched = iteration(context, may_block);
  const double ms = processor_ms() - from;
  if (ms >= SHORTEST_MS) dprintf(file, "%.1f\n", ms);
  return dispatched;
}
