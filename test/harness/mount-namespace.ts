/**
 * Shell: in a mount namespace of its own, lets go of all our mounts but `$kept`. In rounds, since another mount may lie over one of them, and
 * the name leads to that first.
 */
export const LET_GO_OF_OTHERS = `
  for round in 1 2 3; do
    findmnt -rno TARGET -t fuse.cfs-mount,fuse.cfs-test | while read -r other; do
      [ "$other" = "$kept" ] || umount -lic "$other" 2> /dev/null || :
    done
  done`;

/**
 * The command that runs a shell script in a mount namespace of its own, without the mounts of other tests: they may be dead, whoever looks at
 * one keeps it busy, and a namespace that has them keeps them alive for those who unmount them.
 *
 * @param kept the mount that stays
 * @param words the script's `$1` and so on
 */
export function inMountNamespace(script: string, kept: string | null, words: readonly string[] = []): string[] {
  const run = `kept=$1; shift
    ${LET_GO_OF_OTHERS}
    ${script}`;
  return ['unshare', '--mount', '--propagation', 'private', 'sh', '-uc', run, 'sh', kept ?? '', ...words];
}
