/** Exit codes of a failed mount, with the meanings of `cli/exit-codes`. */
export const MOUNT_REFUSAL = {
  /** No device, no fusermount3, or no permission to mount. */
  noFuse: 3,
  /** The directory is missing, not a directory, or not empty. */
  mountPoint: 4,
  /** The directory is already mounted. */
  alreadyMounted: 5,
} as const;
