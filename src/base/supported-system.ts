/** Minimum glibc version of the addon and of LMDB's build (`objdump -T`: pthread_setname_np@GLIBC_2.34). */
const GLIBC_MIN = [2, 34] as const;
const ARCHITECTURES: readonly string[] = ['x64', 'arm64'];

export interface SystemKind {
  /** As Node names it: `x64`. */
  readonly architecture: string;
  /** The version of glibc, `2.36`; null: the system has another C library (musl). */
  readonly glibc: string | null;
}

/** A requirement of this program that the system cannot meet. */
export interface Unsupported {
  readonly what: 'architecture' | 'glibc';
  /** Without a final full stop. */
  readonly sentence: string;
}

export function systemKind(): SystemKind {
  // Missing in Node's types: docs "Diagnostic report", header.
  const { header } = process.report.getReport() as unknown as { header: { readonly glibcVersionRuntime?: string } };
  return { architecture: process.arch, glibc: header.glibcVersionRuntime ?? null };
}

/** Why this program cannot run on the system; null if it can. */
export function whyUnsupported({ architecture, glibc }: SystemKind): Unsupported | null {
  if (!ARCHITECTURES.includes(architecture))
    return { what: 'architecture', sentence: `processors of the kind ${architecture} are not supported` };
  const needed = `glibc ${GLIBC_MIN.join('.')} or later is needed`;
  if (glibc === null) return { what: 'glibc', sentence: `${needed}, and this system has another C library` };
  const [major = 0, minor = 0] = glibc.split('.').map(Number);
  if (major > GLIBC_MIN[0] || (major === GLIBC_MIN[0] && minor >= GLIBC_MIN[1])) return null;
  return { what: 'glibc', sentence: `${needed}, and this system has glibc ${glibc}` };
}
