/*
 * held-write FILE: writes two pages of 'w' at the start of FILE with one write(2). The second page of the buffer appears only when a line
 * arrives on stdin: until then the kernel has copied the first page, and has not sent the write. Prints "held", and "written".
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096

static int file;
static char *bytes;

static void fail(const char *what) {
  perror(what);
  exit(1);
}

static void *write_all(void *unused) {
  if (pwrite(file, bytes, 2 * PAGE, 0) != 2 * PAGE) fail("pwrite");
  return unused;
}

int main(int argc, char **argv) {
  if (argc != 2 || (file = open(argv[1], O_WRONLY)) < 0) fail("open");
  bytes = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  char *source = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (bytes == MAP_FAILED || source == MAP_FAILED) fail("mmap");
  memset(bytes, 'w', PAGE);
  memset(source, 'w', PAGE);
  int faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
  if (faults < 0) fail("userfaultfd");
  struct uffdio_api api = {.api = UFFD_API};
  struct uffdio_register range = {.range = {(unsigned long)bytes + PAGE, PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
  if (ioctl(faults, UFFDIO_API, &api) != 0 || ioctl(faults, UFFDIO_REGISTER, &range) != 0) fail("userfaultfd");
  pthread_t writer;
  if (pthread_create(&writer, NULL, write_all, NULL) != 0) fail("thread");
  struct uffd_msg message;
  if (read(faults, &message, sizeof message) != sizeof message) fail("fault");
  puts("held");
  fflush(stdout);
  getchar();
  struct uffdio_copy copy = {.dst = (unsigned long)bytes + PAGE, .src = (unsigned long)source, .len = PAGE};
  if (ioctl(faults, UFFDIO_COPY, &copy) != 0) fail("copy");
  pthread_join(writer, NULL);
  puts("written");
  return 0;
}
