import { unknownVariables } from '../../config/variables.ts';
import { isMtabReadable, MTAB_CURE } from '../../kernel/fusermount.ts';

/** Warnings that do not prevent the mount. */
export function warningsFor(env: Readonly<Record<string, string | undefined>>): readonly string[] {
  const warnings = [...unknownVariables(env)];
  if (process.geteuid?.() !== 0 && !isMtabReadable())
    warnings.push(`/etc/mtab is missing, so only root can unmount this mount; as root: ${MTAB_CURE}`);
  return warnings;
}
