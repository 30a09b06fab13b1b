/*
 * Many callers at once for the back-pressure test: so many threads, each of which makes one call and waits for it. Prints how many got
 * what they should. argv: read FILE COUNT (4 KiB each, past the page cache), stat PREFIX COUNT, write PREFIX COUNT BYTES (a file each).
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *what, *place;
static size_t length = 4096;
static int shared = -1;

static void *call(void *argument) {
  long i = (long)argument, right = 0;
  char name[4096];
  snprintf(name, sizeof name, "%s%ld", place, i);
  if (strcmp(what, "read") == 0) {
    void *room = aligned_alloc(4096, 4096);
    right = pread(shared, room, 4096, i % 16 * 4096) == 4096;
    free(room);
  } else if (strcmp(what, "stat") == 0) {
    struct stat st;
    right = stat(name, &st) == 0;
  } else {
    char *bytes = aligned_alloc(4096, length);
    memset(bytes, 7, length); /* pages that are there already: else the kernel sends them one by one */
    int fd = open(name, O_WRONLY | O_CREAT, 0644);
    right = write(fd, bytes, length) == (ssize_t)length;
    close(fd);
    free(bytes);
  }
  return (void *)right;
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  what = argv[1];
  place = argv[2];
  long count = atol(argv[3]), right = 0;
  if (argc > 4) length = (size_t)atol(argv[4]);
  if (strcmp(what, "read") == 0) shared = open(place, O_RDONLY | O_DIRECT);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 64 * 1024);
  pthread_t *threads = calloc((size_t)count, sizeof *threads);
  for (long i = 0; i < count; i++) {
    if (pthread_create(&threads[i], &attributes, call, (void *)i) != 0) return 3;
  }
  for (long i = 0; i < count; i++) {
    void *result;
    pthread_join(threads[i], &result);
    right += (long)result;
  }
  printf("%ld\n", right);
  return 0;
}
