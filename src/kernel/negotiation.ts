import { PAYLOAD_BYTES_MAX } from './kernel-addon.ts';
import { PROTOCOL_MINOR_MAX } from './protocol.ts';

/**
 * The INIT agreement between kernel and binding. Each feature is used if the kernel offers it, and optional: its entry says what is lost
 * without it. `maskedFeatures` masks features off, so that new kernels can stand in for old ones in tests.
 */

interface Feature {
  /** Bit number of the INIT flags; 32 and up lie in flags2. */
  readonly bit: number;
  /** Has no effect of its own: it only carries others. */
  readonly carrier?: true;
}

/** Names as in include/uapi/linux/fuse.h, in lower case. */
const FEATURES = {
  /** Several reads of one file at a time; without: one. */
  'async-read': { bit: 0 },
  /** O_TRUNC comes with OPEN; without: a SETATTR follows the OPEN. */
  'atomic-o-trunc': { bit: 3 },
  /** Writes of more than 4 KiB. */
  'big-writes': { bit: 5 },
  /** Listings with attributes. Never with READDIRPLUS_AUTO, which stops requesting them after the first piece. */
  readdirplus: { bit: 13 },
  /** Lookups and listings of one folder in parallel; without: one after another. */
  'parallel-dirops': { bit: 18 },
  /** Reading the device after an abort returns ECONNABORTED, which distinguishes it from an unmount (ENODEV). */
  'abort-error': { bit: 21 },
  /** More than 32 pages (128 KiB) in one request. */
  'max-pages': { bit: 22 },
  /** The kernel caches link targets. */
  'cache-symlinks': { bit: 23 },
  /** The file system clears setuid and setgid on write, chown and truncate; without: a GETXATTR security.capability per write. */
  'handle-killpriv-v2': { bit: 28 },
  /** Carries flags2. */
  'init-ext': { bit: 30, carrier: true },
  /** A notification about a name makes the kernel look it up again; without: the kernel drops the name. */
  'has-expire-only': { bit: 35 },
  /** Shared mmap also of files opened with FOPEN_DIRECT_IO. */
  'direct-io-allow-mmap': { bit: 36 },
} as const satisfies Record<string, Feature>;

export type FeatureName = keyof typeof FEATURES;
/** Valid names in `maskedFeatures`: those of INIT, and those that need no answer to it. */
export type MaskableFeature = FeatureName | 'resend';
export const MASKABLE_FEATURES: readonly MaskableFeature[] = [...(Object.keys(FEATURES) as FeatureName[]), 'resend'];

/** struct fuse_init_in */
export interface KernelOffer {
  readonly major: number;
  readonly minor: number;
  readonly readAheadBytesMax: number;
  readonly flags: number;
  readonly flags2: number;
}

/** struct fuse_init_out, with the derived values. */
export interface Agreement {
  readonly minor: number;
  readonly readAheadBytesMax: number;
  readonly flags: number;
  readonly flags2: number;
  readonly writeBytesMax: number;
  readonly pagesMax: number;
  readonly features: ReadonlySet<MaskableFeature>;
}

const PAGE_BYTES = 4096;
/** The size of one request without MAX_PAGES: FUSE_DEFAULT_MAX_PAGES_PER_REQ of fs/fuse/fuse_i.h. */
const PAGES_WITHOUT_MAX_PAGES = 32;

/** FUSE_HAS_RESEND, bit 39 of the offer: the kernel knows FUSE_NOTIFY_RESEND (Linux 6.9). Without: requests stay in their slots until answered. */
const HAS_RESEND = 1 << 7;

/** Selects every known feature that the kernel offers and `masked` does not name. */
export function negotiate(offer: KernelOffer, masked: readonly string[]): Agreement {
  const features = new Set<MaskableFeature>();
  let flags = 0;
  let flags2 = 0;
  for (const [name, { bit }] of Object.entries(FEATURES) as [FeatureName, Feature][]) {
    const offered = bit < 32 ? (offer.flags >>> bit) & 1 : (offer.flags2 >>> (bit - 32)) & 1;
    if (offered === 0 || masked.includes(name)) continue;
    if (bit >= 32 && !features.has('init-ext')) continue;
    features.add(name);
    if (bit < 32) flags |= 1 << bit;
    else flags2 |= 1 << (bit - 32);
  }
  const minor = Math.min(offer.minor, PROTOCOL_MINOR_MAX);
  if ((offer.flags2 & HAS_RESEND) !== 0 && !masked.includes('resend')) features.add('resend');
  const pagesMax = features.has('max-pages') ? PAYLOAD_BYTES_MAX / PAGE_BYTES : PAGES_WITHOUT_MAX_PAGES;
  return {
    minor,
    readAheadBytesMax: Math.max(offer.readAheadBytesMax, PAYLOAD_BYTES_MAX),
    flags: flags >>> 0,
    flags2: flags2 >>> 0,
    writeBytesMax: features.has('big-writes') ? pagesMax * PAGE_BYTES : PAGE_BYTES,
    pagesMax,
    features,
  };
}
