/*
 * The single calls that scripts/bench-sync.mjs times: mkdir, rename, unlink, and close of a small file that was written, each timed
 * alone in one process. argv: a directory, how many of each. Prints one JSON object: median and 99th percentile in microseconds.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "measure/timing.h"

static const char *directory;

static void named(char *text, const char *kind, int i) { snprintf(text, 512, "%s/%s-%d", directory, kind, i); }

static double make_folder(int i) {
  char path[512];
  named(path, "folder", i);
  double started = now_us();
  if (mkdir(path, 0755) != 0) exit(1);
  return now_us() - started;
}

static double close_small(int i) {
  static char bytes[4096];
  char path[512];
  named(path, "file", i);
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
  if (fd < 0 || write(fd, bytes, sizeof bytes) != sizeof bytes) exit(1);
  double started = now_us();
  if (close(fd) != 0) exit(1);
  return now_us() - started;
}

static double rename_file(int i) {
  char from[512], to[512];
  named(from, "file", i);
  named(to, "renamed", i);
  double started = now_us();
  if (rename(from, to) != 0) exit(1);
  return now_us() - started;
}

static double unlink_file(int i) {
  char path[512];
  named(path, "renamed", i);
  double started = now_us();
  if (unlink(path) != 0) exit(1);
  return now_us() - started;
}

static double remove_folder(int i) {
  char path[512];
  named(path, "folder", i);
  if (rmdir(path) != 0) exit(1);
  return 0;
}

static void measure(const char *name, int count, double (*once)(int), int last) {
  double *took = malloc((size_t)count * sizeof *took);
  for (int i = 0; i < count; i++) took[i] = once(i);
  qsort(took, (size_t)count, sizeof *took, ascending);
  printf("\"%s\":{\"p50\":%.3f,\"p99\":%.3f}%s", name, took[count / 2], took[(size_t)count * 99 / 100], last ? "}\n" : ",");
  free(took);
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  directory = argv[1];
  int count = atoi(argv[2]);
  if (count < 1) return 2;
  printf("{");
  measure("mkdir", count, make_folder, 0);
  measure("close", count, close_small, 0);
  measure("rename", count, rename_file, 0);
  measure("unlink", count, unlink_file, 1);
  for (int i = 0; i < count; i++) remove_folder(i);
  return 0;
}
