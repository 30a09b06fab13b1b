/* Shared by the benches in C: the clock, and the comparison function for percentiles. */
#ifndef CFS_BENCH_TIMING_H
#define CFS_BENCH_TIMING_H

#include <time.h>

static inline double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* For qsort(3) of doubles. */
static inline int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

#endif
