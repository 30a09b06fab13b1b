// Why the npm package must not be published as it is: `node scripts/package/publishable.mjs`, which npm runs before `npm publish`.
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../../', import.meta.url));
const TARGETS = ['linux-x64', 'linux-arm64'];
/** glibc 2.34: `src/base/supported-system.ts` promises it. A newer build machine may link newer functions. */
const GLIBC_MINOR_MAX = 34;

/**
 * The newest 2.N of glibc whose functions an ELF file names; each name has a zero byte on both sides.
 *
 * @param {Buffer} program
 */
export function newestGlibc(program) {
  const named = program.toString('latin1').matchAll(/\0GLIBC_2\.(\d+)(?:\.\d+)?(?=\0)/g);
  return Math.max(0, ...[...named].map(([, minor]) => Number(minor)));
}

/**
 * @param {{ private?: boolean, version?: string, repository?: unknown, os?: string[], cpu?: string[] }} manifest
 * @param {(target: string) => Buffer | null} addonOf the addon of a target; null without one
 * @param {string} changelog
 * @returns {string[]} sentences without a full stop; none if it may be published
 */
export function whyUnpublishable(manifest, addonOf, changelog) {
  return [
    ...(manifest.private === true ? ['package.json says private'] : []),
    ...(manifest.repository === undefined ? ['package.json has no repository: name its public address'] : []),
    ...(changelog.includes(`## [${manifest.version}]`) ? [] : [`CHANGELOG.md has no section for ${manifest.version}`]),
    ...TARGETS.flatMap((target) => {
      const addon = addonOf(target);
      if (addon === null)
        return [`there is no addon for ${target}: node scripts/build-native.mjs --prebuild --target ${target}`];
      const minor = newestGlibc(addon);
      if (minor <= GLIBC_MINOR_MAX) return [];
      return [
        `the addon for ${target} needs glibc 2.${minor}: build it on Debian 12, so that 2.${GLIBC_MINOR_MAX} is enough`,
      ];
    }),
  ];
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const reasons = whyUnpublishable(
    JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')),
    (target) => {
      const path = join(root, 'native-deps/fuse-kernel/prebuilds', target, 'fuse-kernel.node');
      return existsSync(path) ? readFileSync(path) : null;
    },
    readFileSync(join(root, 'CHANGELOG.md'), 'utf8'),
  );
  for (const reason of reasons) console.error(`not published: ${reason}`);
  process.exit(reasons.length === 0 ? 0 : 1);
}
