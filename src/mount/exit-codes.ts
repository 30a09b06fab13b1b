import { MOUNT_REFUSAL } from '../kernel/mount-refusal.ts';

/**
 * The exit codes of `cfs-mount` and `cfs`, once. README.md repeats this table; a test compares them.
 * Scripts rely on them: a code is never given another meaning.
 */
export const EXIT_CODES = {
  ok: { code: 0, meaning: 'done' },
  failure: { code: 1, meaning: 'an unexpected failure (a defect); the log has the stack trace' },
  usage: { code: 2, meaning: 'a wrong command line, environment or config.toml' },
  noFuse: { code: MOUNT_REFUSAL.noFuse, meaning: 'no /dev/fuse, no fusermount3, or no permission to mount' },
  mountPoint: { code: MOUNT_REFUSAL.mountPoint, meaning: 'the directory is missing, not a directory, or not empty' },
  alreadyMounted: {
    code: MOUNT_REFUSAL.alreadyMounted,
    meaning: 'the directory or the account is already mounted, or another process serves the same data',
  },
  signIn: { code: 6, meaning: 'not signed in, or the service refused the password, the keys or the token' },
  unreachable: { code: 7, meaning: 'the service cannot be reached' },
  parked: { code: 8, meaning: 'a change is parked and needs you (`cfs status` shows which and why)' },
  notMounted: { code: 9, meaning: 'no such mount is running' },
  pending: { code: 10, meaning: 'stopped waiting; the rest stays queued and safe' },
  store: { code: 11, meaning: 'the local store cannot be used: disk full, damaged, or not permitted' },
  portTaken: { code: 12, meaning: 'the port of the embedded server is taken by another program' },
  missing: { code: 13, meaning: 'there is no such file, version or trash item' },
  different: { code: 14, meaning: '`cfs diff`: the two versions differ' },
  noManager: { code: 15, meaning: 'no systemd user manager answers: `cfs service install` could not start the mount' },
} as const satisfies Record<string, { readonly code: number; readonly meaning: string }>;

export type ExitReason = keyof typeof EXIT_CODES;

/** The number of an exit code: `exitCode('parked')`. */
export function exitCode(reason: ExitReason): number {
  return EXIT_CODES[reason].code;
}
