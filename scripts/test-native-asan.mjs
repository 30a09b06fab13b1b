// Runs the mount tests of the kernel binding with the addon built for AddressSanitizer and UndefinedBehaviorSanitizer:
// `npm run test:native-asan` (needs gcc with libasan; outside CI). Further arguments go to vitest, e.g. -t "hanging".
//
// Fails on any report, and on leaks whose memory the addon itself allocated; Node's own leaks at exit are not ours to judge.
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const logs = mkdtempSync(join(tmpdir(), 'cfs-asan-'));
const cc = process.env.CC ?? 'cc';
const libasan = execFileSync(cc, ['-print-file-name=libasan.so'], { encoding: 'utf8' }).trim();
if (!libasan.startsWith('/')) {
  console.error(`test-native-asan: ${cc} has no libasan; on Debian: apt-get install -y gcc`);
  process.exit(1);
}
execFileSync(process.execPath, [join(root, 'scripts/build-native.mjs'), '--sanitize'], { stdio: 'inherit' });

const tests = spawnSync(
  process.execPath,
  [join(root, 'node_modules/vitest/vitest.mjs'), 'run', '--project', 'mount', 'test/kernel', ...process.argv.slice(2)],
  {
    cwd: root,
    stdio: 'inherit',
    env: {
      ...process.env,
      CFS_TEST_SANITIZER: libasan,
      // Reports go to files: the processes under test are children of the tests.
      ASAN_OPTIONS: `log_path=${join(logs, 'asan')}:detect_leaks=1:exitcode=0:abort_on_error=0`,
      UBSAN_OPTIONS: `log_path=${join(logs, 'ubsan')}:print_stacktrace=1`,
    },
  },
);

const reports = [];
for (const name of readdirSync(logs)) {
  for (const part of readFileSync(join(logs, name), 'utf8').split(/\n(?=(?:Direct|Indirect) leak|=+\n)/)) {
    if (/ERROR: AddressSanitizer|runtime error:/.test(part)) reports.push(part);
    // Frame 0 is malloc; whoever called it owns the memory, or asked Node-API for something that must be given back.
    if (
      /^(Direct|Indirect) leak/.test(part) &&
      /\n\s*#[12] .*(fuse-kernel\.node|native-deps\/fuse-kernel\/)/.test(part)
    )
      reports.push(part);
  }
}
console.error(`test-native-asan: ${readdirSync(logs).length} report files, ${reports.length} of them about the addon`);
for (const report of reports.slice(0, 10)) console.error(report);
rmSync(logs, { recursive: true });
process.exit(reports.length > 0 ? 1 : (tests.status ?? 1));
