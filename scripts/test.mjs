// `npm test`: everything that must hold. Set-up, types, lint, unit tests, then the tests with real mounts, one file at a
// time, each in a process of its own with a time limit: a mount that hangs must not take the rest with it.
//
//   npm test                     everything
//   npm test -- test/store       only the test files whose path contains this
//
// Without /dev/fuse the mount tests are skipped, said in words and counted; CFS_REQUIRE_FUSE=1 makes that a failure.
import { spawn, spawnSync } from 'node:child_process';
import { accessSync, constants, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const MOUNT_FILE_LIMIT_MS = 400_000;
const UNIT_LIMIT_MS = 600_000;

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

/** Everything that a test started carries this in its environment: mounts are in process groups of their own. */
const RUN = `${process.pid}-${Math.random().toString(36).slice(2)}`;

function processesOfThisRun() {
  return readdirSync('/proc').filter((name) => {
    if (!/^\d+$/.test(name) || Number(name) === process.pid) return false;
    try {
      return readFileSync(`/proc/${name}/environ`, 'latin1').split('\0').includes(`CFS_TEST_RUN=${RUN}`);
    } catch {
      return false; // it has ended, or is not ours
    }
  });
}

/** What tests that were killed have left: mounts end in order at SIGTERM, whatever is left after 10 s is killed. */
async function sweep() {
  for (const [signal, waitMs] of [
    ['SIGTERM', 10_000],
    ['SIGKILL', 5_000],
  ]) {
    for (const pid of processesOfThisRun()) {
      try {
        process.kill(Number(pid), signal);
      } catch {
        // It has ended.
      }
    }
    for (let waited = 0; waited < waitMs && processesOfThisRun().length > 0; waited += 100) {
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}

/** Runs to the end or the limit; then the whole process group is killed. Resolves to the exit code, null after the limit. */
function run(command, args, limitMs) {
  return new Promise((resolve) => {
    const child = spawn(command, args, {
      cwd: root,
      stdio: ['ignore', 'inherit', 'inherit'],
      detached: true,
      env: { ...process.env, CFS_TEST_RUN: RUN },
    });
    let late = false;
    const killGroup = () => {
      try {
        process.kill(-child.pid, 'SIGKILL');
      } catch {
        // It is gone already.
      }
    };
    const timer = setTimeout(() => {
      late = true;
      killGroup();
    }, limitMs);
    const interrupted = () => {
      killGroup();
      process.exit(130);
    };
    process.once('SIGINT', interrupted).once('SIGTERM', interrupted);
    child.on('error', () => resolve(1));
    child.on('exit', (code) => {
      clearTimeout(timer);
      process.removeListener('SIGINT', interrupted).removeListener('SIGTERM', interrupted);
      if (late) void sweep().then(() => resolve(null));
      else resolve(code ?? 1);
    });
  });
}

/** Runs test files with vitest and adds its counts to the total. */
async function tests(project, files, limitMs) {
  const report = join(scratch, `${project}-${files.join('-').replaceAll('/', '_') || 'all'}.json`);
  const args = [vitest, 'run', '--project', project, '--passWithNoTests', '--reporter=default', '--reporter=json'];
  const code = await run(node, [...args, `--outputFile.json=${report}`, ...files], limitMs);
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
  for (const file of files) {
    heading(`mount tests: ${file}`);
    await tests('mount', [file], MOUNT_FILE_LIMIT_MS);
  }
}

rmSync(scratch, { recursive: true, force: true });
if (failures.length > 0) console.log(`\nfailed:\n${failures.map((name) => `  ${name}`).join('\n')}`);
console.log(`\n${total.passed} passed, ${total.failed} failed, ${total.skipped} skipped`);
process.exit(total.failed === 0 ? 0 : 1);
