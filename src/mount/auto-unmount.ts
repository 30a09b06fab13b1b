import { spawn } from 'node:child_process';
import { programPath } from '../kernel/fusermount.ts';

/**
 * Unmounts after the mounting process has ended, for whatever reason. The end of its standard input shows that, perhaps a moment before the
 * kernel closes the FUSE connection. It therefore calls statfs(2), which no kernel answers from its cache: the call fails when the
 * connection is closed, or waits until it is.
 */
const GUARD = `
cat > /dev/null
case "$(stat -f -- "$1" 2>&1 > /dev/null)" in
  *': Transport endpoint is not connected'|*': Software caused connection abort') if [ "$(id -u)" = 0 ]; then umount -i -l -- "$1"; else fusermount3 -u -q -z -- "$1"; fi ;;
esac
`;

/**
 * `-o auto_unmount`: removes the mount when this process is killed. Only a dead mount is removed: after an orderly
 * end there is none, and a new mount on the directory answers.
 */
export function unmountWhenKilled(directory: string): void {
  const guard = spawn('/bin/sh', ['-c', GUARD, 'cfs-mount-guard', directory], {
    detached: true, // not in our process group, which Ctrl-C reaches
    cwd: '/',
    stdio: ['pipe', 'ignore', 'ignore'],
    env: { PATH: programPath(), LC_ALL: 'C' },
  });
  guard.on('error', () => {}); // the next start removes a dead mount
  guard.stdin.on('error', () => {});
  guard.unref();
}
