/** Exit codes for what keeps a mount from coming about, each with the meaning that `cli/exit-codes` gives it. */
export const MOUNT_REFUSAL = {
  /** No device, no fusermount3, or no permission to mount. */
  noFuse: 3,
  /** The directory is missing, not a directory, or not empty. */
  mountPoint: 4,
  /** Something is mounted there. */
  alreadyMounted: 5,
} as const;
