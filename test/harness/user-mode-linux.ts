import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, statfsSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { missingPrograms, missingRoot } from './requirement.ts';

/**
 * A second Linux kernel as an ordinary process (Debian's user-mode-linux): with NFS and FUSE, and with the files of this machine as its root. A kernel
 * that hangs there takes nothing with it.
 */

const MEMORY_MIB = 1536;
const MODULES = '/usr/lib/uml/modules';
const REGISTERS = new URL('./whole-registers.c', import.meta.url).pathname;
const CC = process.env.CC ?? 'cc';
/** In the order in which they need each other. Kernels that lack one have it built in, or do without it. */
const GUEST_MODULES = [
  ...['fs/netfs/netfs', 'fs/fscache/fscache', 'net/sunrpc/sunrpc', 'fs/nfs_common/grace', 'fs/lockd/lockd'],
  ...['fs/nfs_common/nfs_acl', 'fs/nfs/nfs', 'fs/nfs/nfsv3'],
  'fs/fuse/fuse',
];

/** Null if a kernel can be started, else what is missing. */
export function missingUserModeLinux(): string | null {
  return (
    missingPrograms('linux.uml', 'busybox', 'ip', CC) ??
    missingRoot() ??
    (existsSync(MODULES) ? null : MODULES) ??
    (process.arch === 'x64' ? null : 'a processor of the kind x64') ??
    (boots() ? null : 'a system where user-mode Linux boots')
  );
}

/** Containers may forbid ptrace(2), or executable memory in files. The kernel panics at the end of its first process, which is as expected. */
function boots(): boolean {
  const words = ['rootfstype=hostfs', 'ro', 'mem=64M', 'init=/bin/true', 'con=null', 'con0=fd:0,fd:1'];
  const { stdout } = spawnSync('linux.uml', words, {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
    timeout: 30_000,
    killSignal: 'SIGKILL',
    env: kernelEnvironment(),
  });
  return (stdout ?? '').includes('Attempted to kill init! exitcode=0x00000000');
}

function kernelEnvironment(): NodeJS.ProcessEnv {
  return { ...process.env, TMPDIR: memoryFolder(), LD_PRELOAD: wholeRegisters() };
}

/** The compiled `whole-registers.c`, kept by its content; empty if it does not compile. */
function wholeRegisters(): string {
  const digest = createHash('sha256').update(readFileSync(REGISTERS)).digest('hex').slice(0, 16);
  const folder = join(tmpdir(), `cfs-registers-${process.getuid?.() ?? 0}`);
  const library = join(folder, `${digest}.so`);
  if (existsSync(library)) return library;
  mkdirSync(folder, { recursive: true });
  const draft = `${library}.${process.pid}`;
  const words = ['-shared', '-fPIC', '-O1', '-Wall', '-Wextra', '-o', draft, REGISTERS];
  if (spawnSync(CC, words, { timeout: 60_000 }).status !== 0) return '';
  renameSync(draft, library); // two test processes may compile at once
  return library;
}

/** Where the kernel's memory lies: a container often has 64 MiB of /dev/shm. */
function memoryFolder(): string {
  const { bavail, bsize } = statfsSync('/dev/shm');
  return bavail * bsize > 2 * MEMORY_MIB * 1024 * 1024 ? '/dev/shm' : '/tmp';
}

/**
 * Runs a shell script as root in a kernel of its own. `/run` is empty there and in memory.
 *
 * @param folder where the script and its output lie; on a disk of this machine
 * @returns the exit code (null: the kernel did not end in time) and everything that the script printed
 */
export async function runInUserModeLinux(
  script: string,
  folder: string,
  limits: { readonly timeoutMs: number },
): Promise<{ readonly code: number | null; readonly output: string }> {
  const [init, job, output] = ['init.sh', 'job.sh', 'output.txt'].map((name) => join(folder, name)) as [
    string,
    string,
    string,
  ];
  writeFileSync(job, script);
  writeFileSync(output, '');
  writeFileSync(init, initScript(job, output), { mode: 0o755 });
  const words = ['rootfstype=hostfs', 'rw', `mem=${MEMORY_MIB}M`, `init=${init}`, 'con=null', 'con0=fd:0,fd:1'];
  const kernel = spawn('linux.uml', words, {
    cwd: folder,
    detached: true, // a group of its own: the kernel has a process for each of its processes
    stdio: ['ignore', 'ignore', 'ignore'],
    env: { ...kernelEnvironment(), HOME: folder },
  });
  const timer = setTimeout(() => {
    if (kernel.pid !== undefined) process.kill(-kernel.pid, 'SIGKILL');
  }, limits.timeoutMs);
  await new Promise((resolve) => kernel.once('exit', resolve));
  clearTimeout(timer);
  const said = readFileSync(output, 'utf8');
  const code = /^exit code: (\d+)$/m.exec(said)?.[1];
  return { code: code === undefined ? null : Number(code), output: said };
}

function initScript(job: string, output: string): string {
  return `#!/bin/sh
exec > ${output} 2>&1
export PATH=${process.env.PATH ?? '/usr/sbin:/usr/bin:/sbin:/bin'} HOME=/run/home
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs -o size=900m,mode=755 tmpfs /run
mkdir -p /run/home
ip link set lo up
for module in ${GUEST_MODULES.join(' ')}; do
  file=${MODULES}/$(uname -r)/kernel/$module.ko
  if [ -f $file ]; then busybox insmod $file; fi
done
sh ${job}
echo "exit code: $?"
sync
busybox poweroff -f
`;
}
