import { chmodSync, copyFileSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { runCommand } from '../harness/command.ts';

const BOOTSTRAP_MS_MAX = 900_000;
const SCRIPT_MS_MAX = 600_000;
const NOT_FOR_NODE = { NODE_OPTIONS: undefined, NODE_EXTRA_CA_CERTS: undefined, SSL_CERT_FILE: undefined };

/** A Debian system of its minimal packages in a directory. What runs in it has its own mount and PID namespaces, and ends with them. */
export class DebianRoot {
  readonly directory: string;

  private constructor(directory: string) {
    this.directory = directory;
  }

  /** @param release the name that debootstrap(8) knows */
  static async make(release: string): Promise<DebianRoot> {
    const directory = mkdtempSync(join(tmpdir(), `cfs-${release}-`));
    chmodSync(directory, 0o755); // it becomes "/", which every user of the system enters
    await runCommand(['debootstrap', '--variant=minbase', release, directory], { timeoutMs: BOOTSTRAP_MS_MAX });
    const root = new DebianRoot(directory);
    // No package starts a service here.
    writeFileSync(join(directory, 'usr/sbin/policy-rc.d'), '#!/bin/sh\nexit 101\n', { mode: 0o755 });
    if (existsSync('/etc/resolv.conf')) root.copy('/etc/resolv.conf', 'etc');
    mkdirSync(join(directory, 'packages'));
    return root;
  }

  copy(file: string, folder: string): void {
    copyFileSync(file, join(this.directory, folder, basename(file)));
  }

  write(path: string, text: string): void {
    writeFileSync(join(this.directory, path), text);
  }

  /**
   * Runs a shell script as root.
   *
   * @returns what each part of it wrote, by the name that `part NAME` gave it @throws Error with the output if it fails
   */
  async run(script: string): Promise<Readonly<Record<string, string>>> {
    const prepare = `
      root=$1
      mount --bind "$root" "$root"
      mount -t proc proc "$root/proc"
      mount -t tmpfs -o mode=755 dev "$root/dev"
      for each in null:1:3 zero:1:5 random:1:8 urandom:1:9 fuse:10:229; do
        set -- $(echo "$each" | tr : ' ')
        mknod -m 666 "$root/dev/$1" c "$2" "$3"
      done
      mkdir "$root/dev/pts"
      mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
      ln -s pts/ptmx "$root/dev/ptmx"
      mount -t tmpfs -o mode=1777 tmp "$root/tmp"
      ln -sf /proc/self/mounts "$root/etc/mtab"
      cat > "$root/tmp/script"
      exec chroot "$root" /bin/sh -eu /tmp/script 2>&1`;
    const argv = ['unshare', '--mount', '--propagation', 'private', '--pid', '--fork', '--kill-child'];
    const { stdout } = await runCommand([...argv, 'sh', '-euc', prepare, 'sh', this.directory], {
      input: `part() { printf '\\n== %s\\n' "$1"; }\n${script}`,
      // Node would look in the root for what these name on this machine.
      env: {
        ...NOT_FOR_NODE,
        PATH: '/usr/sbin:/usr/bin:/sbin:/bin',
        HOME: '/root',
        LC_ALL: 'C',
        DEBIAN_FRONTEND: 'noninteractive',
      },
      timeoutMs: SCRIPT_MS_MAX,
    });
    return Object.fromEntries(
      stdout
        .split(/^== /m)
        .slice(1)
        .map((text) => [text.slice(0, text.indexOf('\n')), text.slice(text.indexOf('\n') + 1).trim()]),
    );
  }

  dispose(): void {
    rmSync(this.directory, { recursive: true, force: true });
  }
}
