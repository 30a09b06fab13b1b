// The addon under AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer: `npm run test:native-asan` (needs gcc with libasan;
// outside CI). First it runs on an addon with deliberate mistakes, to show that it finds them; then it runs the tests of the kernel binding,
// the whole conformance suite on a real mount, and the tests of the receiver. Further arguments go to vitest, e.g. -t "hanging".
//
// Fails on any report about the addon, and on leaks whose memory the addon itself allocated; leaks of Node itself at its exit are
// ignored.
import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const place = mkdtempSync(join(tmpdir(), 'cfs-asan-'));
const build = join(root, 'native-deps/fuse-kernel/build');
const cc = process.env.CC ?? 'cc';
const libasan = execFileSync(cc, ['-print-file-name=libasan.so'], { encoding: 'utf8' }).trim();
if (!libasan.startsWith('/')) {
  console.error(`test-native-asan: ${cc} has no libasan; on Debian: apt-get install -y gcc`);
  process.exit(1);
}

/**
 * Reports go to files: the processes under test are children of the tests. UndefinedBehaviorSanitizer ignores log_path beside
 * AddressSanitizer: its reports end the process and are in its standard error, which test/kernel/mount-driver.ts keeps.
 * @param {string} name
 */
function reporting(name) {
  const logs = join(place, name);
  mkdirSync(logs);
  return {
    logs,
    env: {
      ...process.env,
      ASAN_OPTIONS: `log_path=${join(logs, 'asan')}:detect_leaks=1:exitcode=0:abort_on_error=0`,
      UBSAN_OPTIONS: 'print_stacktrace=1',
      CFS_TEST_REPORTS: logs,
    },
  };
}

/**
 * The reports about the addon.
 * @param {string} logs
 */
function reportsIn(logs) {
  const reports = [];
  for (const name of readdirSync(logs)) {
    for (const part of readFileSync(join(logs, name), 'utf8').split(/\n(?=(?:Direct|Indirect) leak|=+\n)/)) {
      if (/ERROR: AddressSanitizer|runtime error:/.test(part)) reports.push(part);
      // Frame 0 is malloc. Its caller owns the memory, or owes Node-API a release.
      if (
        /^(Direct|Indirect) leak/.test(part) &&
        /\n\s*#[12] .*(fuse-kernel\.node|native-deps\/fuse-kernel\/)/.test(part)
      )
        reports.push(part);
    }
  }
  return reports;
}

/** @param {string[]} flags */
function built(...flags) {
  execFileSync(process.execPath, [join(root, 'scripts/build-native.mjs'), '--sanitize', ...flags], {
    stdio: 'inherit',
  });
}

/** Checks that each kind of mistake is found, and that a sound addon has no report. */
function selfTest() {
  built('--faulty');
  const addon = JSON.stringify(join(build, 'faulty/fuse-kernel.node'));
  /** @type {[string, string, RegExp][]} */
  const cases = [
    ['nothing wrong', 'addon.writeAt(15); addon.successor(1)', /^$/],
    ['a write past the end', 'addon.writeAt(16)', /heap-buffer-overflow/],
    ['a leak', 'addon.leak()', /^Direct leak of 16000 byte/m],
    ['an overflow', 'addon.successor(2147483647)', /signed integer overflow/],
  ];
  return cases.every(([what, code, expected], i) => {
    const { logs, env } = reporting(`self-test-${i}`);
    const { stderr } = spawnSync(process.execPath, ['-e', `const addon = require(${addon}); ${code}`], {
      env: { ...env, LD_PRELOAD: libasan },
      encoding: 'utf8',
      timeout: 60_000,
    });
    writeFileSync(join(logs, 'stderr'), stderr);
    const found = reportsIn(logs).join('\n');
    const holds = expected.test(found) && (found === '') === (i === 0);
    console.error(`test-native-asan: self-test, ${what}: ${holds ? 'as it must be' : `NOT FOUND, but:\n${found}`}`);
    return holds;
  });
}

/** A tree in which the built program has the sanitized addon. @returns its dist/cli/ */
function sanitizedProgram() {
  const tree = join(place, 'program');
  mkdirSync(join(tree, 'native-deps/fuse-kernel'), { recursive: true });
  cpSync(join(root, 'dist'), join(tree, 'dist'), { recursive: true });
  cpSync(join(root, 'package.json'), join(tree, 'package.json'));
  symlinkSync(join(root, 'node_modules'), join(tree, 'node_modules'));
  symlinkSync(join(build, 'sanitized'), join(tree, 'native-deps/fuse-kernel/build'));
  return join(tree, 'dist/cli/');
}

/** The unit tests of the receiver, which load the addon themselves, in a tree that has the sanitized one. */
function receiverTested() {
  const tree = join(place, 'units');
  mkdirSync(join(tree, 'native-deps/fuse-kernel'), { recursive: true });
  for (const name of ['src', 'test', 'package.json', 'tsconfig.json', 'vitest.config.ts'])
    cpSync(join(root, name), join(tree, name), { recursive: true });
  symlinkSync(join(root, 'node_modules'), join(tree, 'node_modules'));
  symlinkSync(join(build, 'sanitized'), join(tree, 'native-deps/fuse-kernel/build'));
  const { logs, env } = reporting('receiver');
  const files = [
    'test/transfer/direct-downloads',
    'test/remote/receiver',
    'test/remote/records',
    'test/remote/tls-downloads',
  ];
  const words = ['run', '--project', 'unit', '--pool', 'forks', ...files];
  const tests = spawnSync(process.execPath, [join(root, 'node_modules/vitest/vitest.mjs'), ...words], {
    cwd: tree,
    stdio: 'inherit',
    env: { ...env, LD_PRELOAD: libasan },
  });
  return judged('the receiver', logs, tests.status);
}

/**
 * Shows the reports.
 * @returns whether there are none, and the tests passed
 * @param {string} what
 * @param {string} logs
 * @param {number | null} status
 */
function judged(what, logs, status) {
  const reports = reportsIn(logs);
  console.error(
    `test-native-asan: ${what}: ${readdirSync(logs).length} report files, ${reports.length} reports about the addon`,
  );
  for (const report of reports.slice(0, 10)) console.error(report);
  return reports.length === 0 && status === 0;
}

function tested() {
  built();
  const { logs, env } = reporting('tests');
  const files = ['test/kernel', 'test/conformance/real-mount'];
  const words = ['run', '--project', 'mount', ...files, ...process.argv.slice(2)];
  const tests = spawnSync(process.execPath, [join(root, 'node_modules/vitest/vitest.mjs'), ...words], {
    cwd: root,
    stdio: 'inherit',
    env: { ...env, CFS_TEST_SANITIZER: libasan, CFS_TEST_DIST: sanitizedProgram() },
  });
  return judged('the binding', logs, tests.status) && receiverTested();
}

let holds = false;
try {
  holds = selfTest() && tested();
} finally {
  rmSync(place, { recursive: true });
}
console.error(`test-native-asan: ${holds ? 'no report' : 'FAILED'}`);
process.exit(holds ? 0 : 1);
