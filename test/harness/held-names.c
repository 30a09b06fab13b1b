/*
 * Preloaded into programs that a test starts: names below .test are this machine, and as long as the file $CFS_TEST_NAMES_HELD
 * exists, looking one up has no end. That is what a resolver which never answers looks like to a program.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int lookup_of(const char *, const char *, const struct addrinfo *, struct addrinfo **);

static int is_ours(const char *name) {
  size_t length = name == NULL ? 0 : strlen(name);
  return length > 5 && strcmp(name + length - 5, ".test") == 0;
}

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
  lookup_of *real = (lookup_of *)dlsym(RTLD_NEXT, "getaddrinfo");
  if (!is_ours(name)) return real(name, service, hints, found);
  const char *held = getenv("CFS_TEST_NAMES_HELD");
  while (held != NULL && access(held, F_OK) == 0) usleep(10 * 1000);
  return real("127.0.0.1", service, hints, found);
}
