/*
 * The measurements of scripts/bench-kernel.mjs on one mounted directory; prints one JSON object. A separate process, so that it shares
 * nothing with the file system under test. argv: the directory (with a folder "many" of 10,000 files in it), the server's pid, and a part:
 * "short" for listings, names, attributes and 4 KiB reads, "bytes" for whole files, "tail" for the 99th percentile of metadata; without
 * it, all but the tails. "quick" as the last word: 64 MiB for 384, 10 for 40, half of the getattr (with as many before them), of the
 * calls of the tails and of the files that are created, and half a second for each median of getattr and lookup.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "measure/timing.h"

#define MIB (1u << 20)

static const char *directory;
static char *buffer;
static int quick, calls;

static const char *path(const char *name) {
  static __thread char text[512];
  snprintf(text, sizeof text, "%s/%s", directory, name);
  return text;
}

static void report(const char *name, double value) {
  static const char *before = "{";
  printf("%s\"%s\":%.3f", before, name, value);
  before = ",";
}

/* User and system time of a process, microseconds. */
static double cpu_us(const char *pid) {
  char file[64], text[1024];
  snprintf(file, sizeof file, "/proc/%s/stat", pid);
  FILE *f = fopen(file, "r");
  if (!f) return 0;
  size_t n = fread(text, 1, sizeof text - 1, f);
  fclose(f);
  text[n] = 0;
  unsigned long user = 0, system = 0;
  sscanf(strrchr(text, ')') + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
  return (double)(user + system) * 1e6 / (double)sysconf(_SC_CLK_TCK);
}

/* AT_STATX_FORCE_SYNC: always asks the file system, even if the kernel has the attributes cached. */
static void ask(int fd) {
  char result[256];
  syscall(SYS_statx, fd, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, 0x7ffu, result);
}

/* The result for `count` calls; in the quick run, for the calls of half a second. `*called`, if given: their number. */
static double median_of(int count, void (*once)(int, int), int fd, int *called) {
  double *took = malloc((size_t)count * sizeof *took), begun = now_us();
  int n = 0;
  for (; n < count && !(quick && n > 0 && now_us() - begun > 500e3); n++) {
    double started = now_us();
    once(fd, n);
    took[n] = now_us() - started;
  }
  qsort(took, (size_t)n, sizeof *took, ascending);
  double median = took[n / 2];
  free(took);
  if (called != NULL) *called = n;
  return median;
}

static double percentile_99(int count, void (*once)(int, int), int fd) {
  double *took = malloc((size_t)count * sizeof *took);
  for (int i = 0; i < count; i++) {
    double started = now_us();
    once(fd, i);
    took[i] = now_us() - started;
    if (i % 10 == 0) usleep(1000); /* spread over seconds, so that bursts of other programs fall in between */
  }
  qsort(took, (size_t)count, sizeof *took, ascending);
  double result = took[count / 100 * 99];
  free(took);
  return result;
}

static void getattr_once(int fd, int i) { (void)i; ask(fd); }

static void lookup_once(int fd, int i) {
  char name[64];
  struct stat st;
  (void)fd;
  snprintf(name, sizeof name, "absent-%d-%d", (int)getpid(), i);
  stat(path(name), &st);
}

static void *asking(void *argument) {
  long *count = argument;
  int fd = open(path("bench-file"), O_RDONLY);
  double end = now_us() + 700e3;
  while (now_us() < end) {
    ask(fd);
    ++*count;
  }
  close(fd);
  return NULL;
}

static double listing_ms(void) {
  char folder[512], name[800];
  struct stat st;
  snprintf(folder, sizeof folder, "%s", path("many"));
  double started = now_us();
  DIR *stream = opendir(folder);
  for (struct dirent *entry; stream && (entry = readdir(stream));) {
    snprintf(name, sizeof name, "%s/%s", folder, entry->d_name);
    lstat(name, &st);
  }
  if (stream) closedir(stream);
  return (now_us() - started) / 1e3;
}

static double transfer(const char *name, int flags, size_t piece, size_t total, ssize_t (*move)(int, void *, size_t)) {
  int fd = open(path(name), flags, 0644);
  double started = now_us();
  for (size_t done = 0; done < total; done += piece) {
    if (move(fd, buffer, piece) != (ssize_t)piece) return 0;
  }
  close(fd);
  return (double)total / (now_us() - started);
}

static ssize_t writing(int fd, void *bytes, size_t length) { return write(fd, bytes, length); }

/* Creates files of 4 KiB, and removes them again. Returns how many were created in a second. */
static double creating(int count) {
  char name[64];
  double started = now_us();
  for (int i = 0; i < count; i++) {
    snprintf(name, sizeof name, "created-%d", i);
    int fd = open(path(name), O_WRONLY | O_CREAT | O_EXCL, 0644);
    if (write(fd, buffer, 4096) != 4096) exit(1);
    close(fd);
  }
  double took = now_us() - started;
  for (int i = 0; i < count; i++) {
    snprintf(name, sizeof name, "created-%d", i);
    unlink(path(name));
  }
  return count / (took / 1e6);
}

/* Only the 99th percentiles of metadata. */
static void measure_tails(void) {
  int fd = open(path("bench-file"), O_RDWR | O_CREAT, 0644);
  median_of(5000, getattr_once, fd, NULL);
  report("getattr_p99_us", percentile_99(calls, getattr_once, fd));
  report("lookup_p99_us", percentile_99(calls, lookup_once, fd));
  close(fd);
}

static void measure_listing(void) {
  report("listing_first_ms", listing_ms());
  report("listing_again_ms", listing_ms());
}

/* Attributes, names and small reads of one file. */
static void measure_small(const char *server) {
  int fd = open(path("bench-file"), O_RDWR | O_CREAT | O_TRUNC, 0644);
  if (write(fd, buffer, 4096) != 4096) exit(1);
  median_of(20000, getattr_once, fd, NULL); /* a mount runs for days: its first second is not measured */
  double cpu_before = cpu_us(server);
  int called;
  report("getattr_us", median_of(calls, getattr_once, fd, &called));
  report("getattr_cpu_us", (cpu_us(server) - cpu_before) / called);
  report("lookup_us", median_of(5000, lookup_once, fd, NULL));
  double took[3000];
  for (int i = 0; i < 3000; i++) {
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    double started = now_us();
    if (pread(fd, buffer, 4096, 0) != 4096) exit(1);
    took[i] = now_us() - started;
  }
  qsort(took, 3000, sizeof *took, ascending);
  report("read_4k_us", took[1500]);
  for (int i = 0; i < 3000; i++) {
    double started = now_us();
    if (pread(fd, buffer, 4096, 0) != 4096) exit(1);
    took[i] = now_us() - started;
  }
  qsort(took, 3000, sizeof *took, ascending);
  report("read_4k_cached_us", took[1500]);
  close(fd);

  pthread_t threads[4];
  long counts[4] = {0}, sum = 0;
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, asking, &counts[i]);
  for (int i = 0; i < 4; i++) {
    pthread_join(threads[i], NULL);
    sum += counts[i];
  }
  report("getattr_4_threads_per_s", (double)sum / 0.7);
  unlink(path("bench-file"));
}

/* Files that are written and read sequentially. */
static void measure_bytes(void) {
  size_t bytes = (quick ? 64 : 384) * (size_t)MIB;
  /* One pass without measurement: it allocates the first pages of the file system. */
  transfer("big", O_RDWR | O_CREAT | O_TRUNC, MIB, bytes, writing);
  unlink(path("big"));
  report("write_1m_mb_s", transfer("big", O_RDWR | O_CREAT | O_TRUNC, MIB, bytes, writing));
  int fd = open(path("big"), O_RDONLY);
  posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  close(fd);
  report("read_1m_mb_s", transfer("big", O_RDONLY, MIB, bytes, (ssize_t(*)(int, void *, size_t))read));
  report("reread_mb_s", transfer("big", O_RDONLY, MIB, bytes, (ssize_t(*)(int, void *, size_t))read));
  unlink(path("big"));
  report("write_4k_mb_s", transfer("small", O_RDWR | O_CREAT | O_TRUNC, 4096, (quick ? 10 : 40) * (size_t)MIB, writing));
  unlink(path("small"));

  creating(quick ? 2000 : 4000);
  report("create_4k_per_s", creating(quick ? 1000 : 2000));
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  directory = argv[1];
  buffer = aligned_alloc(4096, MIB);
  memset(buffer, 7, MIB);
  quick = strcmp(argv[argc - 1], "quick") == 0;
  calls = quick ? 10000 : 20000;
  const char *part = argc > 3 ? argv[3] : "";
  int short_ = strcmp(part, "short") == 0, bytes = strcmp(part, "bytes") == 0;
  if (strcmp(part, "tail") == 0) {
    measure_tails();
  } else {
    if (!bytes) measure_listing();
    if (!bytes) measure_small(argv[2]);
    if (!short_) measure_bytes();
  }
  printf("}\n");
  return 0;
}
