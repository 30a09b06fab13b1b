/*
 * The measurements of scripts/bench-nfs.mjs on an NFS server on loopback; prints one JSON object with the keys of bench-kernel.c. It is a
 * bare client in user space: no kernel client, no cache, one connection. argv: the port, the root's handle in hexadecimal, the server's pid;
 * "quick" as the last word: less of everything.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "measure/timing.h"

#define MIB (1u << 20)
#define HANDLE_MAX 64
#define IN_FLIGHT 4 /* reads and writes, as by the read-ahead and write-back of a kernel */
enum { GETATTR = 1, LOOKUP = 3, READ = 6, WRITE = 7, CREATE = 8, REMOVE = 12, READDIRPLUS = 17, COMMIT = 21 };

struct handle {
  uint32_t length;
  unsigned char bytes[HANDLE_MAX];
};

static int connection, quick;
static uint32_t xid;
static unsigned char *call, *reply;
static size_t at;   /* the end of the call */
static size_t from; /* the position in the reply */

static void fail(const char *what) {
  fprintf(stderr, "bench-nfs: %s\n", what);
  exit(1);
}

static void report(const char *name, double value) {
  static const char *before = "{";
  printf("%s\"%s\":%.3f", before, name, value);
  before = ",";
}

static void put(uint32_t value) {
  value = htonl(value);
  memcpy(call + at, &value, 4);
  at += 4;
}

static void put64(uint64_t value) {
  put((uint32_t)(value >> 32));
  put((uint32_t)value);
}

static void put_bytes(const void *bytes, uint32_t length) {
  put(length);
  memcpy(call + at, bytes, length);
  memset(call + at + length, 0, 3);
  at += (length + 3) & ~3u;
}

static uint32_t get(void) {
  uint32_t value;
  memcpy(&value, reply + from, 4);
  from += 4;
  return ntohl(value);
}

static void begin(uint32_t procedure) {
  at = 4;
  put(++xid), put(0), put(2), put(100003), put(3), put(procedure);
  put(1), put(20), put(0), put(0), put(getuid()), put(getgid()), put(0); /* AUTH_SYS, no name, no further groups */
  put(0), put(0);
}

static void send_call(void) {
  uint32_t mark = htonl(0x80000000u | (uint32_t)(at - 4));
  memcpy(call, &mark, 4);
  for (size_t sent = 0; sent < at;) {
    ssize_t n = send(connection, call + sent, at - sent, 0);
    if (n <= 0) fail("the server closed the connection");
    sent += (size_t)n;
  }
}

/* Buffered, as every client does: one recv(2) for a small reply. */
static void receive(void *target, size_t length) {
  static unsigned char buffer[65536];
  static size_t begun, filled;
  while (length > 0) {
    if (begun == filled && length >= sizeof buffer) {
      ssize_t n = recv(connection, target, length, 0);
      if (n <= 0) fail("the server closed the connection");
      target = (unsigned char *)target + n;
      length -= (size_t)n;
      continue;
    }
    if (begun == filled) {
      ssize_t n = recv(connection, buffer, sizeof buffer, 0);
      if (n <= 0) fail("the server closed the connection");
      begun = 0;
      filled = (size_t)n;
    }
    size_t n = filled - begun < length ? filled - begun : length;
    memcpy(target, buffer + begun, n);
    begun += n;
    target = (unsigned char *)target + n;
    length -= n;
  }
}

/* Reads a reply up to its status. Replies may come in any order: no measurement mixes procedures. */
static uint32_t receive_reply(void) {
  uint32_t mark;
  receive(&mark, 4);
  uint32_t length = ntohl(mark) & 0x7fffffffu;
  if (length > 2 * MIB) fail("a reply is too long");
  receive(reply, length);
  from = 4 * 4;
  uint32_t verifier = get();
  from += verifier;
  if (get() != 0) fail("a call was not accepted");
  return get();
}

static uint32_t exchange(void) {
  send_call();
  return receive_reply();
}

static void put_handle(const struct handle *handle) { put_bytes(handle->bytes, handle->length); }

static void read_handle(struct handle *handle) {
  handle->length = get();
  if (handle->length > HANDLE_MAX) fail("a handle is too long");
  memcpy(handle->bytes, reply + from, handle->length);
  from += (handle->length + 3) & ~3u;
}

static void begin_getattr(const struct handle *handle) {
  begin(GETATTR);
  put_handle(handle);
}

static uint32_t lookup(const struct handle *folder, const char *name, struct handle *found) {
  begin(LOOKUP);
  put_handle(folder);
  put_bytes(name, (uint32_t)strlen(name));
  uint32_t status = exchange();
  if (status == 0) read_handle(found);
  return status;
}

static void create(const struct handle *folder, const char *name, struct handle *made) {
  begin(CREATE);
  put_handle(folder);
  put_bytes(name, (uint32_t)strlen(name));
  put(1);                                          /* GUARDED */
  put(1), put(0644);                               /* mode */
  for (int word = 0; word < 5; word++) put(0);     /* uid, gid, size, atime, mtime: unset */
  if (exchange() != 0 || get() != 1) fail("CREATE failed");
  read_handle(made);
}

static void remove_name(const struct handle *folder, const char *name) {
  begin(REMOVE);
  put_handle(folder);
  put_bytes(name, (uint32_t)strlen(name));
  if (exchange() != 0) fail("REMOVE failed");
}

static void begin_write(const struct handle *file, uint64_t offset, const void *bytes, uint32_t length) {
  begin(WRITE);
  put_handle(file);
  put64(offset), put(length), put(0); /* UNSTABLE */
  put_bytes(bytes, length);
}

static void begin_read(const struct handle *file, uint64_t offset, uint32_t length) {
  begin(READ);
  put_handle(file);
  put64(offset), put(length);
}

static void commit(const struct handle *file) {
  begin(COMMIT);
  put_handle(file);
  put64(0), put(0);
  if (exchange() != 0) fail("COMMIT failed");
}

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

static double median_of_getattr(const struct handle *file, int count) {
  double *took = malloc((size_t)count * sizeof *took);
  for (int i = 0; i < count; i++) {
    double started = now_us();
    begin_getattr(file);
    if (exchange() != 0) fail("GETATTR failed");
    took[i] = now_us() - started;
  }
  qsort(took, (size_t)count, sizeof *took, ascending);
  double median = took[count / 2];
  free(took);
  return median;
}

static void measure_small(const struct handle *root, const char *server) {
  struct handle file, absent;
  char name[64];
  int calls = quick ? 10000 : 20000;
  create(root, "bench-file", &file);
  median_of_getattr(&file, 20000); /* V8 compiles */
  double cpu_before = cpu_us(server);
  report("getattr_us", median_of_getattr(&file, calls));
  report("getattr_cpu_us", (cpu_us(server) - cpu_before) / calls);

  static double took[5000];
  for (int i = 0; i < 5000; i++) {
    snprintf(name, sizeof name, "absent-%d", i);
    double started = now_us();
    if (lookup(root, name, &absent) != 2) fail("LOOKUP of an absent name is not NOENT");
    took[i] = now_us() - started;
  }
  qsort(took, 5000, sizeof *took, ascending);
  report("lookup_us", took[2500]);

  int sent = 0, received = 0, at_once = 16;
  double started = now_us();
  for (; received < 2 * calls; received++) {
    for (; sent < 2 * calls && sent - received < at_once; sent++) {
      begin_getattr(&file);
      send_call();
    }
    if (receive_reply() != 0) fail("GETATTR failed");
  }
  report("getattr_4_threads_per_s", received / ((now_us() - started) / 1e6));
  remove_name(root, "bench-file");
}

static double listing_ms(const struct handle *folder) {
  unsigned char verifier[8] = {0};
  uint64_t cookie = 0;
  int entries = 0;
  double started = now_us();
  for (uint32_t is_end = 0; !is_end;) {
    begin(READDIRPLUS);
    put_handle(folder);
    put64(cookie);
    memcpy(call + at, verifier, 8);
    at += 8;
    put(32768), put(131072);
    if (exchange() != 0) fail("READDIRPLUS failed");
    if (get()) from += 84;
    memcpy(verifier, reply + from, 8);
    from += 8;
    while (get()) {
      from += 8;
      uint32_t length = get();
      from += (length + 3) & ~3u;
      cookie = (uint64_t)get() << 32;
      cookie |= get();
      if (get()) from += 84;
      if (get()) {
        uint32_t bytes = get();
        from += (bytes + 3) & ~3u;
      }
      entries++;
    }
    is_end = get();
  }
  if (entries < 1000) fail("the listing is incomplete");
  return (now_us() - started) / 1e3;
}

/* Writes a new file in pieces, and commits it. MB/s. */
static double writing(const struct handle *root, const char *name, size_t total, uint32_t piece, const void *bytes) {
  struct handle file;
  create(root, name, &file);
  double started = now_us();
  size_t sent = 0, received = 0;
  for (; received < total; received += piece) {
    for (; sent < total && sent - received < IN_FLIGHT * (size_t)piece; sent += piece) {
      begin_write(&file, sent, bytes, piece);
      send_call();
    }
    if (receive_reply() != 0) fail("WRITE failed");
  }
  commit(&file);
  return (double)total / (now_us() - started);
}

static double reading(const struct handle *root, const char *name, size_t total, uint32_t piece) {
  struct handle file;
  if (lookup(root, name, &file) != 0) fail("LOOKUP failed");
  double started = now_us();
  size_t sent = 0, received = 0;
  for (; received < total; received += piece) {
    for (; sent < total && sent - received < IN_FLIGHT * (size_t)piece; sent += piece) {
      begin_read(&file, sent, piece);
      send_call();
    }
    if (receive_reply() != 0) fail("READ failed");
    if (get()) from += 84;
    if (get() != piece) fail("a READ is short");
  }
  return (double)total / (now_us() - started);
}

static double creating(const struct handle *root, int count, const void *bytes) {
  char name[64];
  struct handle file;
  double started = now_us();
  for (int i = 0; i < count; i++) {
    snprintf(name, sizeof name, "created-%d", i);
    create(root, name, &file);
    begin_write(&file, 0, bytes, 4096);
    if (exchange() != 0) fail("WRITE failed");
    commit(&file);
  }
  double took = now_us() - started;
  for (int i = 0; i < count; i++) {
    snprintf(name, sizeof name, "created-%d", i);
    remove_name(root, name);
  }
  return count / (took / 1e6);
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  quick = strcmp(argv[argc - 1], "quick") == 0;
  call = malloc(2 * MIB);
  reply = malloc(2 * MIB + 8);
  unsigned char *bytes = malloc(MIB);
  memset(bytes, 7, MIB);
  struct handle root = {0, {0}}, many;
  for (const char *hex = argv[2]; hex[0] && hex[1] && root.length < HANDLE_MAX; hex += 2) {
    unsigned value;
    if (sscanf(hex, "%2x", &value) != 1) return 2;
    root.bytes[root.length++] = (unsigned char)value;
  }
  connection = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[1]))};
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  if (connect(connection, (struct sockaddr *)&address, sizeof address) != 0) fail(strerror(errno));
  int one = 1;
  setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);

  if (lookup(&root, "many", &many) != 0) fail("there is no folder `many`");
  report("listing_first_ms", listing_ms(&many));
  report("listing_again_ms", listing_ms(&many));
  measure_small(&root, argv[3]);
  size_t total = (quick ? 64 : 384) * (size_t)MIB;
  writing(&root, "big", total, MIB, bytes); /* allocates the pages of the file system, as in bench-kernel.c */
  remove_name(&root, "big");
  report("write_1m_mb_s", writing(&root, "big", total, MIB, bytes));
  report("read_1m_mb_s", reading(&root, "big", total, MIB));
  report("read_64k_mb_s", reading(&root, "big", total, 65536));
  remove_name(&root, "big");
  report("write_32k_mb_s", writing(&root, "small", total / 4, 32768, bytes));
  remove_name(&root, "small");
  creating(&root, quick ? 2000 : 4000, bytes);
  report("create_4k_per_s", creating(&root, quick ? 1000 : 2000, bytes));
  printf("}\n");
  return 0;
}
