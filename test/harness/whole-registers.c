/*
 * Preloaded into user-mode Linux. Its 6.1 has room for 2,696 bytes of extended registers. On a processor with AMX the host's set is larger, and
 * PTRACE_SETREGSET of a part is EFAULT (xstateregs_set of the kernel), so that each program ends. Here the part is completed from the process. The
 * registers that are left out are unused: a process has to ask for AMX (arch_prctl ARCH_REQ_XCOMP_PERM), and user-mode Linux lacks that.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { GETREGSET = 0x4204, SETREGSET = 0x4205, X86_XSTATE = 0x202 };

long ptrace(int request, long pid, void *address, void *data) {
  static long (*real)(int, long, void *, void *);
  if (real == NULL) real = (long (*)(int, long, void *, void *))dlsym(RTLD_NEXT, "ptrace");
  if (request != SETREGSET || address != (void *)X86_XSTATE) return real(request, pid, address, data);
  static char whole[65536] __attribute__((aligned(64)));
  struct iovec *part = data;
  struct iovec all = {whole, sizeof whole};
  if (real(GETREGSET, pid, address, &all) < 0 || part->iov_len >= all.iov_len) return real(request, pid, address, data);
  memcpy(whole, part->iov_base, part->iov_len);
  return real(SETREGSET, pid, address, &all);
}
