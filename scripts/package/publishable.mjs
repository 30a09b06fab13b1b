// Why the npm package must not be published as it is: `node scripts/package/publishable.mjs`, which npm runs before `npm publish`.
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../../', import.meta.url));
const TARGETS = ['linux-x64', 'linux-arm64'];

/**
 * @param {{ private?: boolean, version?: string, repository?: unknown, os?: string[], cpu?: string[] }} manifest
 * @param {(target: string) => boolean} hasAddon
 * @param {string} changelog
 * @returns {string[]} sentences without a full stop; none if it may be published
 */
export function whyUnpublishable(manifest, hasAddon, changelog) {
  return [
    ...(manifest.private === true ? ['package.json says private'] : []),
    ...(manifest.repository === undefined ? ['package.json has no repository: name its public address'] : []),
    ...(changelog.includes(`## [${manifest.version}]`) ? [] : [`CHANGELOG.md has no section for ${manifest.version}`]),
    ...TARGETS.filter((target) => !hasAddon(target)).map(
      (target) => `there is no addon for ${target}: node scripts/build-native.mjs --prebuild --target ${target}`,
    ),
  ];
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const reasons = whyUnpublishable(
    JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')),
    (target) => existsSync(join(root, 'native-deps/fuse-kernel/prebuilds', target, 'fuse-kernel.node')),
    readFileSync(join(root, 'CHANGELOG.md'), 'utf8'),
  );
  for (const reason of reasons) console.error(`not published: ${reason}`);
  process.exit(reasons.length === 0 ? 0 : 1);
}
