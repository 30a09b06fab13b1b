import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect } from 'vitest';
import { runCommand } from '../harness/command.ts';
import { missingPrograms, missingRoot, testUnless, titled } from '../harness/requirement.ts';
import { PROJECT, textOf } from '../imports.ts';
import { DebianRoot } from './debian-root.ts';

const { missingForDesktop } = (await import(
  new URL('../../scripts/package/desktop-package.mjs', import.meta.url).href
)) as { missingForDesktop: (architecture: string) => string | null };

/** The Debian package in systems that have nothing else: `npm run soak -- packages`. */

const releases = (process.env.CFS_DEBIAN_RELEASES ?? '').split(',').filter((name) => name !== '');
const missing =
  releases.length === 0
    ? 'npm run soak -- packages'
    : (missingRoot() ?? missingPrograms('debootstrap', 'dpkg-deb', 'unshare', 'chroot'));
const architecture = process.arch === 'arm64' ? 'arm64' : 'amd64';
const { version } = JSON.parse(textOf('package.json')) as { version: string };
const [FIRST, SECOND] = [`${version}-1`, `${version}-2`];
const PACKAGE_BYTES_MAX = 40 * 1024 ** 2;
const BUILD_MS_MAX = 600_000;

let directory: string;
const fileOf = (each: string, name = 'cfs-mount') => join(directory, `${name}_${each}_${architecture}.deb`);
const missingDesktop = missing ?? missingForDesktop(process.arch);

async function build(revision: string, ...flags: readonly string[]): Promise<void> {
  const argv = [process.execPath, join(PROJECT, 'scripts/package.mjs'), '--out', directory, '--revision', revision];
  await runCommand([...argv, ...flags], { timeoutMs: 5 * BUILD_MS_MAX });
}

beforeAll(async () => {
  if (missing !== null) return;
  directory = mkdtempSync(join(tmpdir(), 'cfs-packages-'));
  await build('1', '--fast');
  await build('2', '--fast');
}, 2 * BUILD_MS_MAX);

afterAll(() => {
  if (missing === null) rmSync(directory, { recursive: true });
});

testUnless(missing)('a package that is built twice has the same bytes', { timeout: BUILD_MS_MAX }, async () => {
  const sum = () =>
    createHash('sha256')
      .update(readFileSync(fileOf(SECOND)))
      .digest('hex');
  const first = sum();
  rmSync(fileOf(SECOND));

  await build('2', '--fast');

  expect(sum()).toBe(first);
});

// xz takes minutes, more where others compute.
testUnless(missing)('the package that is released has at most 40 MB', { timeout: 6 * BUILD_MS_MAX }, async () => {
  await build('3');

  expect(statSync(fileOf(`${version}-3`)).size).toBeLessThanOrEqual(PACKAGE_BYTES_MAX);
});

/** Starts a server of the installed version; the next one has the same port. */
const SERVE = `
  : > served
  cfs serve --data server --log-level warn > served 2>&1 &
  echo $! > server-pid
  until grep -q listening served; do kill -0 $!; done`;

/** As the user ann: signs in to a server of this package, and mounts. */
const SIGN_IN = `
  cd
  mkdir Cloud
  . ./serve
  CFS_PASSWORD=secret
  export CFS_PASSWORD
  cfs serve user add ann@example.com --data server > values
  set -a
  . ./values
  cfs login
  cfs-mount Cloud`;

/** The libraries of the desktop package come from Debian; the file manager itself is not needed. */
const DESKTOP_LIFE = `
  part desktop
  apt-get -qq install -y --no-install-recommends /packages/${`cfs-desktop_${SECOND}_${architecture}.deb`}
  dpkg --verify cfs-desktop
  for each in $(dpkg -L cfs-desktop); do
    [ -f $each ] && head -c 4 $each | grep -q ELF || continue
    ldd $each | grep 'not found' || echo "$each has its libraries"
  done

  part desktop-removed
  apt-get -qq remove -y cfs-desktop
  dpkg -L cfs-desktop 2> /dev/null | while read -r each; do [ ! -f "$each" ] || echo "$each is left"; done
  echo removed
`;

/**
 * Loads every part that `cfs` and `cfs-mount` may load later, also those of their commands, and the modules that start as a process or a
 * thread of their own. A part that is missing fails.
 */
const LOAD_PARTS = `
  const { existsSync, globSync, readFileSync } = await import('node:fs');
  const { createRequire } = await import('node:module');
  const { dirname, join } = await import('node:path');
  const require = createRequire(import.meta.url);
  const dist = join(process.argv[1], 'dist');
  process.argv = [process.execPath, 'cfs', '--version']; // some parts load the program, too
  const parts = globSync(join(dist, 'cli/chunk-*.cjs'));
  for (const part of parts) {
    require(part);
    for (const [, name] of readFileSync(part, 'utf8').matchAll(/\\brequire\\("(\\.[^"]+)"\\)/g)) require.resolve(join(dirname(part), name));
  }
  const modules = new Set(globSync(join(dist, 'cli/**/*-process.js')));
  if (parts.length < 20 || modules.size === 0) throw new Error('hardly any parts: ' + parts.length + ' and ' + modules.size);
  for (const module of modules)
    for (const [, name] of readFileSync(module, 'utf8').matchAll(/\\b(?:from|import|import\\()\\s*["'](\\.[^"']+\\.js)["']/g))
      modules.add(join(dirname(module), name));
  for (const module of modules) if (!existsSync(module)) throw new Error(module + ' is missing');
  console.log(parts.length, 'parts', modules.size, 'modules');
  process.exit();`;

const WHOLE_LIFE = `
  root=/usr/lib/cfs-mount
  sums() { (cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum); }
  as_ann() { su ann -c "cd; set -eu; $1"; }

  part without
  for program in node npm gcc; do command -v $program || echo "no $program"; done

  part install
  apt-get -qq install -y --no-install-recommends /packages/${`cfs-mount_${FIRST}_${architecture}.deb`}
  dpkg --verify cfs-mount

  part version
  cfs --version
  cfs-mount --version

  part files
  for each in man1/cfs.1.gz man1/cfs-mount.1.gz; do gzip -t "/usr/share/man/$each" 2> /dev/null && echo "$each" || echo "$each is left out by dpkg"; done
  bash -nc '' && bash -n /usr/share/bash-completion/completions/cfs-mount && echo bash
  ls /usr/share/zsh/vendor-completions/_cfs /usr/share/fish/vendor_completions.d
  ls /usr/lib/systemd/user/cfs-mount@.service /usr/lib/systemd/system/cfs-mount@.service

  part programs
  find -L /usr/lib/cfs-mount/current/native-deps -name 'cfs-*' -executable -printf '%f\\n' | sort

  part sign-in
  useradd -m ann
  cat > /home/ann/serve << 'END'
${SERVE}
END
  cat > /home/ann/sign-in << 'END'
${SIGN_IN}
END
  su ann -c 'sh -eu /home/ann/sign-in'

  part save
  as_ann 'echo one > Cloud/file; cfs sync --wait; cfs versions Cloud/file'

  part doctor
  as_ann 'cfs doctor'

  part fstab
  as_ann 'cfs umount Cloud'
  echo 'ann@example.com /home/ann/Cloud fuse.cfs-mount noauto,setuid=ann,settle=1s 0 0' >> /etc/fstab
  mount /home/ann/Cloud
  as_ann 'cat Cloud/file'

  part upgrade
  before=$(sums $root/versions/${FIRST})
  cat > /home/ann/write << 'END'
    written=0
    until [ -e stop ]; do
      written=$((written + 1))
      echo "$written" > "Cloud/written-$written"
      echo "$written" > count
    done
END
  su ann -c 'cd && exec sh -eu write' &
  writer=$!
  until [ -s /home/ann/count ]; do kill -0 $writer; done
  apt-get -qq install -y --no-install-recommends /packages/${`cfs-mount_${SECOND}_${architecture}.deb`}
  during=$(cat /home/ann/count)
  until [ "$(cat /home/ann/count)" -gt "$during" ]; do kill -0 $writer; done
  touch /home/ann/stop
  wait $writer
  [ "$before" = "$(sums $root/versions/${FIRST})" ] && echo 'the first version is complete'
  ls $root/versions
  cfs --version

  part status
  as_ann 'cfs sync --wait; cfs status'

  part parts
  for each in ${FIRST} ${SECOND}; do $root/versions/$each/bin/node --input-type=module -e "$(cat /packages/load-parts)" $root/versions/$each; done

  part again
  kill $(cat /home/ann/server-pid)
  until ! kill -0 $(cat /home/ann/server-pid) 2> /dev/null; do :; done
  as_ann '. ./serve'
  as_ann 'cfs umount Cloud; cfs-mount Cloud; cfs status | grep version || echo the same version; echo $(ls Cloud | grep -c written-) of $(cat count)'
  as_ann 'for each in $(seq $(cat count)); do [ "$(cat Cloud/written-$each)" = "$each" ] || echo "$each differs"; done'

  part unused
  apt-get -qq install -y --reinstall /packages/${`cfs-mount_${SECOND}_${architecture}.deb`}
  ls $root/versions

${missingDesktop === null ? DESKTOP_LIFE : ''}
  part remove
  apt-get -qq remove -y cfs-mount
  as_ann 'echo two > Cloud/file; cat Cloud/file'
  as_ann '$(echo /usr/lib/cfs-mount/versions/*)/bin/cfs umount Cloud'
  kill $(cat /home/ann/server-pid)

  part purge
  until ! ls -l /proc/[0-9]*/exe 2> /dev/null | grep -q $root; do :; done
  dpkg --purge cfs-mount
  ls -d $root 2> /dev/null || echo 'nothing is left'`;

describe.each(releases.length === 0 ? ['any release'] : releases)(titled('in %s', missing), (release) => {
  let root: DebianRoot;
  let said: Readonly<Record<string, string>>;

  beforeAll(async () => {
    if (missing !== null) return;
    root = await DebianRoot.make(release);
    for (const each of [FIRST, SECOND]) root.copy(fileOf(each), 'packages');
    if (missingDesktop === null) root.copy(fileOf(SECOND, 'cfs-desktop'), 'packages');
    root.write('packages/load-parts', LOAD_PARTS);
    said = await root.run(WHOLE_LIFE);
  }, 1_800_000);

  afterAll(() => root?.dispose());

  const check = testUnless(missing);

  check('it installs without Node, npm or a compiler', () => {
    expect(said.without).toBe('no node\nno npm\nno gcc');
    expect(said.install).toContain(`Setting up cfs-mount (${FIRST})`);
    expect(said.version).toMatch(new RegExp(`^(${FIRST} \\(Node [\\d.]+\\)\\n?){2}$`));
  });

  check('the keeper and the announcer can be started', () => {
    expect(said.programs).toBe('cfs-announcer\ncfs-keeper');
  });

  check('a user signs in, mounts, saves, and finds nothing wrong', () => {
    expect(said['sign-in']).toContain('mounted ann@example.com');
    expect(said.save).toContain('pushed 1 change');
    expect(said.doctor).toContain('nothing is wrong');
  });

  check('a line of fstab mounts at once', () => {
    expect(said.fstab?.endsWith('one')).toBe(true);
  });

  check('an upgrade leaves a mount that writes running and complete, and the status names its version', () => {
    expect(said.upgrade).toContain('the first version is complete');
    expect(said.upgrade).toContain(`${FIRST}\n${SECOND}\n${SECOND} (Node`);
    expect(said.status).toContain(`version    ${FIRST} still runs; to use ${SECOND}, unmount and mount`);
    expect(said.parts).toMatch(/^(?:\S+ \(Node .*\n)?(\d+ parts \d+ modules)\n(?:\S+ \(Node .*\n)?\1$/);
  });

  check('the next mount has everything, and the next installation removes the version without processes', () => {
    expect(said.again).toMatch(/the same version\n(\d+) of \1$/);
    expect(said.unused?.split('\n').at(-1)).toBe(SECOND);
    expect(said.unused).not.toMatch(new RegExp(`^${FIRST}$`, 'm'));
  });

  testUnless(missingDesktop)('the desktop package finds its libraries, and its removal leaves nothing', () => {
    const lines = said.desktop?.split('\n') ?? [];
    expect(said.desktop).not.toContain('not found');
    expect(lines.filter((line) => line.endsWith('has its libraries')).length).toBeGreaterThanOrEqual(2);
    expect(said['desktop-removed']).toMatch(/(^|\n)removed$/);
    expect(said['desktop-removed']).not.toContain('is left');
  });

  check('a removal leaves a running mount complete, and nothing once it has ended', () => {
    expect(said.remove).toContain('a mount still runs from /usr/lib/cfs-mount/versions/');
    expect(said.remove).toContain('two');
    expect(said.purge?.endsWith('nothing is left')).toBe(true);
  });
});
