/**
 * The command that runs a shell script in a mount namespace of its own, without the mounts of other tests: they may be dead, whoever looks at
 * one keeps it busy, and a namespace that has them keeps them alive for those who unmount them.
 *
 * @param kept the mount that stays
 * @param words the script's `$1` and so on
 */
export function inMountNamespace(script: string, kept: string | null, words: readonly string[] = []): string[] {
  const run = `kept=$1; shift
    findmnt -rno TARGET -t fuse.cfs-mount,fuse.cfs-test | while read -r other; do
      [ "$other" = "$kept" ] || umount -lic "$other" 2> /dev/null || :
    done
    ${script}`;
  return ['unshare', '--mount', '--propagation', 'private', 'sh', '-uc', run, 'sh', kept ?? '', ...words];
}
