// `npm test`: everything that must hold. Set-up, types, lint, unit tests, then the tests with real mounts, each file in a process
// of its own with a time limit: a mount that hangs must not take the rest with it. Files that measure something or need the machine
// for themselves run alone, the others (BESIDE_OTHERS) two at a time.
//
//   npm test                     everything
//   npm test -- test/store       only the test files whose path contains this
//
// Without /dev/fuse the mount tests are skipped, said in words and counted; CFS_REQUIRE_FUSE=1 makes that a failure.
import { spawn, spawnSync } from 'node:child_process';
import { accessSync, closeSync, constants, mkdtempSync, openSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const MOUNT_FILE_LIMIT_MS = 400_000;
const UNIT_LIMIT_MS = 600_000;

/** How many of them at a time. */
const LANES = 2;
/**
 * What mostly waits: for timers, for a disk, for processes that start or end. No limit of time is asserted in these but those that end a
 * test which hangs, and each has servers, mounts and directories of its own. What is not here runs alone. Longest first.
 */
const BESIDE_OTHERS = [
  'test/crash/kill-points.mount.test.ts',
  'test/conformance/fuse-native.mount.test.ts',
  'test/conformance/masked-mount.mount.test.ts',
  'test/model/mount-model.mount.test.ts',
  'test/clients/clients.mount.test.ts',
  'test/faults/faults.mount.test.ts',
  'test/programs/programs.mount.test.ts',
  'test/conformance/real-mount.mount.test.ts',
  'test/faults/full-disk.mount.test.ts',
  'test/programs/big-copy.mount.test.ts',
  'test/programs/sqlite-kill.mount.test.ts',
  'test/store/power-cut.mount.test.ts',
  'test/store/overwrite-kill.mount.test.ts',
  'test/store/sigkill.mount.test.ts',
  'test/cli/bad-input.mount.test.ts',
  'test/cli/commands.mount.test.ts',
  'test/cli/history.mount.test.ts',
  'test/cli/security.mount.test.ts',
  'test/tree/account-root.mount.test.ts',
  'test/model/plain-twins.mount.test.ts',
  'test/conformance/plain-directory.mount.test.ts',
  'test/crash/restart.mount.test.ts',
  'test/programs/rclone-beside.mount.test.ts',
  'test/server/killed.mount.test.ts',
  'test/server/rclone.mount.test.ts',
];

const root = fileURLToPath(new URL('..', import.meta.url));
const filters = process.argv.slice(2);
const scratch = mkdtempSync(join(tmpdir(), 'cfs-test-'));
const total = { passed: 0, failed: 0, skipped: 0 };
const failures = [];

const node = process.execPath;
const vitest = join(root, 'node_modules/vitest/vitest.mjs');

function heading(text) {
  console.log(`\n== ${text}`);
}

function fail(text) {
  total.failed++;
  failures.push(text);
}

/** One check that is not a test: passes or fails as a whole. */
async function check(name, command, args) {
  heading(name);
  if ((await run(command, args, UNIT_LIMIT_MS)) === 0) total.passed++;
  else fail(name);
}

/** Everything that a test file started carries this and its number in its environment: mounts are in process groups of their own. */
const RUN = `${process.pid}-${Math.random().toString(36).slice(2)}`;
let runs = 0;

function processesOf(mark) {
  return readdirSync('/proc').filter((name) => {
    if (!/^\d+$/.test(name) || Number(name) === process.pid) return false;
    try {
      return readFileSync(`/proc/${name}/environ`, 'latin1').split('\0').includes(`CFS_TEST_RUN=${mark}`);
    } catch {
      return false; // it has ended, or is not ours
    }
  });
}

/** What tests that were killed have left: mounts end in order at SIGTERM, whatever is left after 10 s is killed. */
async function sweep(mark) {
  for (const [signal, waitMs] of [
    ['SIGTERM', 10_000],
    ['SIGKILL', 5_000],
  ]) {
    for (const pid of processesOf(mark)) {
      try {
        process.kill(Number(pid), signal);
      } catch {
        // It has ended.
      }
    }
    for (let waited = 0; waited < waitMs && processesOf(mark).length > 0; waited += 100) {
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}

/** What ends the process groups that run now. */
const underWay = new Set();
for (const signal of ['SIGINT', 'SIGTERM']) {
  process.once(signal, () => {
    for (const killGroup of underWay) killGroup();
    process.exit(130);
  });
}

/**
 * Runs to the end or the limit; then the whole process group is killed. Resolves to the exit code, null after the limit.
 *
 * @param output descriptor that gets what it says
 */
function run(command, args, limitMs, output = 'inherit') {
  return new Promise((resolve) => {
    const mark = `${RUN}-${++runs}`;
    const child = spawn(command, args, {
      cwd: root,
      stdio: ['ignore', output, output],
      detached: true,
      env: { ...process.env, CFS_TEST_RUN: mark },
    });
    let late = false;
    const killGroup = () => {
      try {
        process.kill(-child.pid, 'SIGKILL');
      } catch {
        // It is gone already.
      }
    };
    underWay.add(killGroup);
    const timer = setTimeout(() => {
      late = true;
      killGroup();
    }, limitMs);
    child.on('error', () => resolve(1));
    child.on('exit', (code) => {
      clearTimeout(timer);
      underWay.delete(killGroup);
      if (late) void sweep(mark).then(() => resolve(null));
      else resolve(code ?? 1);
    });
  });
}

/** Runs test files with vitest and adds its counts to the total. */
async function tests(project, files, limitMs, output) {
  const report = join(scratch, `${project}-${files.join('-').replaceAll('/', '_') || 'all'}.json`);
  const args = [vitest, 'run', '--project', project, '--passWithNoTests', '--reporter=default', '--reporter=json'];
  const code = await run(node, [...args, `--outputFile.json=${report}`, ...files], limitMs, output);
  let results;
  try {
    results = JSON.parse(readFileSync(report, 'utf8'));
  } catch {
    fail(`${files.join(' ') || project}: ${code === null ? `no end after ${limitMs / 1000} s` : 'no results'}`);
    return;
  }
  for (const file of results.testResults) {
    const name = file.name.slice(root.length);
    for (const test of file.assertionResults) {
      if (test.status === 'passed') total.passed++;
      else if (test.status === 'failed') fail(`${name}: ${test.fullName}`);
      else total.skipped++;
    }
    if (file.status === 'failed' && !file.assertionResults.some((test) => test.status === 'failed'))
      fail(`${name}: could not be run`);
  }
  // An error outside of any test (an unhandled rejection, say) fails the run, although every test passed.
  if (code !== 0 && results.success && results.numFailedTests === 0)
    fail(`${files.join(' ') || project}: exit code ${code}`);
}

/** Some files in `LANES` lanes; what one says is shown when it has ended. */
async function besideOthers(files) {
  const waiting = [...files];
  const lane = async () => {
    for (let file = waiting.shift(); file !== undefined; file = waiting.shift()) {
      const said = join(scratch, `${file.replaceAll('/', '_')}.txt`);
      const output = openSync(said, 'w');
      await tests('mount', [file], MOUNT_FILE_LIMIT_MS, output);
      closeSync(output);
      heading(`mount tests, beside others: ${file}`);
      process.stdout.write(readFileSync(said));
    }
  };
  await Promise.all(Array.from({ length: LANES }, lane));
}

function mountFiles() {
  return readdirSync(join(root, 'test'), { recursive: true })
    .filter((name) => name.endsWith('.mount.test.ts'))
    .map((name) => `test/${name}`)
    .filter((name) => filters.length === 0 || filters.some((filter) => name.includes(filter)))
    .sort();
}

/** Why no mount is possible here, in words; null where it is. */
function whyNoMounts() {
  try {
    accessSync('/dev/fuse', constants.R_OK | constants.W_OK);
    return null;
  } catch (error) {
    return error.code === 'ENOENT' ? 'no /dev/fuse' : `/dev/fuse cannot be opened (${error.code})`;
  }
}

function countTests(files) {
  const list = spawnSync(node, [vitest, 'list', '--project', 'mount', '--json', ...files], {
    cwd: root,
    encoding: 'utf8',
    timeout: 60_000,
  });
  try {
    return JSON.parse(list.stdout.slice(list.stdout.indexOf('['))).length;
  } catch {
    return files.length;
  }
}

heading('set-up');
if ((await run(node, ['scripts/bootstrap.mjs'], 1_200_000)) !== 0) {
  console.log('\nset-up failed, nothing was tested\n0 passed, 1 failed, 0 skipped');
  process.exit(1);
}
if (filters.length === 0) {
  await check('types', node, ['node_modules/typescript/bin/tsc', '--noEmit']);
  await check('lint and format', node, ['node_modules/@biomejs/biome/bin/biome', 'ci', '.']);
}
heading(`unit tests, Node ${process.version}`);
await tests('unit', filters, UNIT_LIMIT_MS);

const files = mountFiles();
const obstacle = whyNoMounts();
if (files.length > 0 && obstacle !== null) {
  const count = countTests(files);
  heading(`mount tests skipped: ${obstacle} (tests: ${count}, files: ${files.length})`);
  if (process.env.CFS_REQUIRE_FUSE === '1') fail(`mount tests are required here, but there is ${obstacle}`);
  else total.skipped += count;
} else {
  await besideOthers(BESIDE_OTHERS.filter((file) => files.includes(file)));
  for (const file of files.filter((each) => !BESIDE_OTHERS.includes(each))) {
    heading(`mount tests: ${file}`);
    await tests('mount', [file], MOUNT_FILE_LIMIT_MS);
  }
}

rmSync(scratch, { recursive: true, force: true });
if (failures.length > 0) console.log(`\nfailed:\n${failures.map((name) => `  ${name}`).join('\n')}`);
console.log(`\n${total.passed} passed, ${total.failed} failed, ${total.skipped} skipped`);
process.exit(total.failed === 0 ? 0 : 1);
