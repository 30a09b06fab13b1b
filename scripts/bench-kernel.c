/*
 * The measurements of scripts/bench-kernel.mjs on one mounted directory; prints one JSON object. A separate process, so that it shares
 * nothing with the file system under test. argv: the directory (with a folder "many" of 10,000 files in it), the server's pid, and a part:
 * "short" for listings, names, attributes and 4 KiB reads, "bytes" for whole files, "tail" for the 99th percentile of metadata; without
 * it, all but the tails. Or "side-by-side" and several pairs of directory and pid. "quick" as the last word: 64 MiB for 384, 10 for 40, half of the getattr (with as many before them), of the
 * calls of the tails and of the files that are created, and half a second for each median of getattr and lookup;
 * side by side, 20 turns for 100.
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
  clockid_t clock;
  struct timespec time;
  if (clock_getcpuclockid(atoi(pid), &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

/* AT_STATX_FORCE_SYNC: always asks the file system, even if the kernel has the attributes cached. */
static void ask(int fd) {
  char result[256];
  syscall(SYS_statx, fd, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, 0x7ffu, result);
}

static void getattr_once(int fd, int i) { (void)i; ask(fd); }

static void lookup_once(int fd, int i) {
  static long looked_up; /* each name once, because the kernel remembers what is absent */
  char name[64];
  struct stat st;
  (void)fd;
  (void)i;
  snprintf(name, sizeof name, "absent-%d-%ld", (int)getpid(), looked_up++);
  stat(path(name), &st);
}

static void read_once(int fd, int i) {
  (void)i;
  if (pread(fd, buffer, 4096, 0) != 4096) exit(1);
}

static void uncached_read_once(int fd, int i) { read_once(fd, i); }

/* The result for `count` calls; in the quick run, for the calls of half a second. `*called`, if given: their number. */
static double median_of(int count, void (*once)(int, int), int fd, int *called) {
  double *took = malloc((size_t)count * sizeof *took), begun = now_us();
  int n = 0;
  for (; n < count && !(quick && n > 0 && now_us() - begun > 500e3); n++) {
    if (once == uncached_read_once) posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); /* not part of the call that is timed */
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

static double asking_us = 700e3;

static void *asking(void *argument) {
  long *count = argument;
  int fd = open(path("bench-file"), O_RDONLY);
  double end = now_us() + asking_us;
  while (now_us() < end) {
    ask(fd);
    ++*count;
  }
  close(fd);
  return NULL;
}

/* How often a second 4 threads get the attributes of "bench-file". */
static double asked_by_4_threads(void) {
  pthread_t threads[4];
  long counts[4] = {0}, sum = 0;
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, asking, &counts[i]);
  for (int i = 0; i < 4; i++) {
    pthread_join(threads[i], NULL);
    sum += counts[i];
  }
  return (double)sum / (asking_us / 1e6);
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
  report("read_4k_us", median_of(3000, uncached_read_once, fd, NULL));
  report("read_4k_cached_us", median_of(3000, read_once, fd, NULL));
  close(fd);

  report("getattr_4_threads_per_s", asked_by_4_threads());
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

/*
 * Several mounts side by side: `turns` times a small block of each kind of call, on each mount in turn, so that what disturbs the machine
 * disturbs them alike. Reports the median of each kind and mount, as "NAME INDEX".
 */
static void measure_side_by_side(int mounts, char **directories, char **servers) {
  enum { KINDS = 8 };
  static const char *const names[KINDS] = {"getattr_us", "getattr_cpu_us", "lookup_us", "read_4k_us",
      "getattr_4_threads_per_s", "write_1m_mb_s", "write_4k_mb_s", "create_4k_per_s"};
  int turns = quick ? 20 : 100;
  double (*blocks)[KINDS][turns] = malloc((size_t)mounts * sizeof *blocks);
  asking_us = 50e3;
  for (int turn = -2; turn < turns; turn++) { /* the first two are not measured */
    for (int i = 0; i < mounts; i++) {
      int mount = turn % 2 == 0 ? i : mounts - 1 - i, called;
      double block[KINDS];
      directory = directories[mount];
      int fd = open(path("bench-file"), O_RDWR | O_CREAT | O_TRUNC, 0644);
      if (write(fd, buffer, 4096) != 4096) exit(1);
      median_of(200, getattr_once, fd, NULL);
      double cpu_before = cpu_us(servers[mount]);
      block[0] = median_of(2000, getattr_once, fd, &called);
      block[1] = (cpu_us(servers[mount]) - cpu_before) / called;
      block[2] = median_of(500, lookup_once, fd, NULL);
      block[3] = median_of(500, uncached_read_once, fd, NULL);
      close(fd);
      block[4] = asked_by_4_threads();
      unlink(path("bench-file"));
      block[5] = transfer("big", O_RDWR | O_CREAT | O_TRUNC, MIB, 32 * (size_t)MIB, writing);
      unlink(path("big"));
      block[6] = transfer("small", O_RDWR | O_CREAT | O_TRUNC, 4096, 4 * (size_t)MIB, writing);
      unlink(path("small"));
      block[7] = creating(300);
      for (int kind = 0; kind < KINDS && turn >= 0; kind++) blocks[mount][kind][turn] = block[kind];
    }
  }
  for (int mount = 0; mount < mounts; mount++) {
    for (int kind = 0; kind < KINDS; kind++) {
      char name[64];
      snprintf(name, sizeof name, "%s %d", names[kind], mount);
      qsort(blocks[mount][kind], (size_t)turns, sizeof(double), ascending);
      report(name, blocks[mount][kind][turns / 2]);
    }
  }
  free(blocks);
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  buffer = aligned_alloc(4096, MIB);
  memset(buffer, 7, MIB);
  quick = strcmp(argv[argc - 1], "quick") == 0;
  calls = quick ? 10000 : 20000;
  if (strcmp(argv[1], "side-by-side") == 0) {
    int mounts = (argc - 2) / 2;
    char *directories[mounts], *servers[mounts];
    for (int i = 0; i < mounts; i++) directories[i] = argv[2 + 2 * i], servers[i] = argv[3 + 2 * i];
    measure_side_by_side(mounts, directories, servers);
    printf("}\n");
    return 0;
  }
  directory = argv[1];
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
