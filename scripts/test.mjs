// `npm test`: the gate. Set-up, types, lint, unit tests, then the tests with real mounts, some at a time: a long
// file (test-files.mjs) or a few short ones in a process of its own with a time limit, so that a hanging mount does not affect the rest.
// Each file has its own servers, mounts and directories, and asserts no durations.
//
//   npm test                     everything but LEFT_TO_CI in test-files.mjs; CFS_WHOLE=1: these too
//   npm test -- test/store       only the test files whose path contains this
//   npm test -- --install-all    installs every Debian package that a test can use first (system-packages.mjs), as root
//
// Tests whose requirements are missing are skipped and counted by reason. A whole run with fewer tests than RUN_MIN is a failure.
// Without /dev/fuse the mount tests are skipped with a message, and counted; CFS_REQUIRE_FUSE=1 makes that a failure.
import { spawnSync } from 'node:child_process';
import {
  accessSync,
  closeSync,
  constants,
  existsSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
} from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { stripVTControlCharacters } from 'node:util';
import { installLists, LISTS, mayInstall, onPath } from './system-packages.mjs';
import { LEFT_TO_CI, LONG } from './test-files.mjs';
import { run } from './test-process.mjs';
import { failuresIn, reportOf } from './test-report.mjs';

/** More than the time limits of the tests themselves, whose messages say what they waited for. */
const MOUNT_FILE_LIMIT_MS = 1_000_000;
const UNIT_LIMIT_MS = 600_000;
/** Minimum number of tests in a whole run, with and without installed packages (root). */
const RUN_MIN = process.getuid?.() === 0 ? 4_000 : 3_500;

/** Mount test files in parallel. They mostly wait: for timers, for a disk, for processes that start or end. */
const LANES = Math.min(4, availableParallelism()) + 1;
/** Short files that one process runs in sequence: to start a process takes longer than to start a mount. */
const SHORT_FILES_MAX = 6;

const root = fileURLToPath(new URL('..', import.meta.url));
const words = process.argv.slice(2);
const filters = words.filter((word) => word !== '--install-all');
const leftOut = process.env.CFS_WHOLE === '1' || filters.length > 0 ? [] : LEFT_TO_CI;
const scratch = mkdtempSync(join(tmpdir(), 'cfs-test-'));
const total = { passed: 0, failed: 0, skipped: 0 };
/** Number of skipped tests by what they need. @type {Map<string, number>} */
const skipped = new Map();
/**
 * The names of the failures, and their lines of output.
 * @type {string[]}
 */
const failures = [];
/** @type {string[][]} */
const reasons = [];

const node = process.execPath;
const vitest = join(root, 'node_modules/vitest/vitest.mjs');

/** @param {string} text */
function heading(text) {
  console.log(`\n== ${text}`);
}

/** @param {string} text */
function fail(text) {
  total.failed++;
  failures.push(text);
}

/**
 * Path of the output of a check, without its extension.
 * @param {string} what
 */
function scratchOf(what) {
  return join(scratch, what.replaceAll(/[^\w.-]/g, '_'));
}

/**
 * One check that is not a test: passes or fails as a whole.
 * @param {string} what
 * @param {string} command
 * @param {string[]} args
 */
async function check(what, command, args) {
  const said = `${scratchOf(what)}.txt`;
  const { code, took } = await timed(command, args, UNIT_LIMIT_MS, said);
  if (code === 0) total.passed++;
  else fail(what);
  console.log(`${code === 0 ? 'passed' : 'FAILED'} ${took}  ${what}`);
  if (code !== 0) show(what, said);
}

async function checks() {
  await check('types', node, ['node_modules/typescript/bin/tsc', '--noEmit']);
  await check('types of the page', node, ['node_modules/typescript/bin/tsc', '-p', 'tsconfig.page.json']);
  await check('types of the scripts', node, ['node_modules/typescript/bin/tsc', '-p', 'tsconfig.scripts.json']);
  await check('lint and format', node, ['node_modules/@biomejs/biome/bin/biome', 'ci', '.']);
}

/**
 * @param {string} said path of what the command says
 * @param {string} command
 * @param {string[]} args
 * @param {number} limitMs
 */
async function timed(command, args, limitMs, said) {
  const begun = performance.now();
  const output = openSync(said, 'w');
  const code = await run(command, args, limitMs, { cwd: root, output });
  closeSync(output);
  return { code, took: `${((performance.now() - begun) / 1000).toFixed(1).padStart(6)} s` };
}

/**
 * Prints the failures of a run immediately, and again at the very end (of a long log only a part may be shown), with the whole output.
 * @param {string} what
 * @param {string} said
 */
function show(what, said) {
  const text = stripVTControlCharacters(readFileSync(said, 'utf8'));
  const why = failuresIn(text).map((lines) => [`---- ${what}`, ...lines]);
  console.log(`${reportOf(why)}\n\n---- ${what}: all that was said`);
  process.stdout.write(text);
  reasons.push(...why);
}

/**
 * Runs test files with vitest and adds its counts to the total. Prints one line of counts, and for several files one line each.
 * @param {string[]} files paths or parts of them; none: all of the project
 * @param {string} project
 * @param {number} limitMs
 */
async function tests(project, files, limitMs) {
  const [first = `all ${project} tests`, ...others] = files;
  const what = others.length === 0 ? first : `${first} and ${others.length} more`;
  const [report, said] = [`${scratchOf(what)}.json`, `${scratchOf(what)}.txt`];
  const args = [vitest, 'run', '--project', project, '--passWithNoTests', '--no-color'];
  args.push('--reporter=default', '--reporter=json', `--outputFile.json=${report}`, ...files);
  // Files that share a process leave nothing behind (CONTRIBUTING.md). A run of all files by hand gives each its own process.
  if (project === 'mount') args.push('--no-isolate');
  const { code, took } = await timed(node, args, limitMs, said);
  const failedBefore = total.failed;
  const lines = countsOf(report, files.join(' ') || what, code, limitMs);
  const passed = total.failed === failedBefore;
  console.log(`${passed ? 'passed' : 'FAILED'} ${took}  ${lines.join(`\n${' '.repeat(17)}`)}`);
  for (const name of failures.slice(failedBefore)) console.log(`  ${name}`);
  if (!passed) show(what, said);
}

/**
 * Adds the results in `report` to the total.
 * @returns the results as text: one line for each of a few files, or one line for all
 * @param {string} report
 * @param {string} what
 * @param {number | null} code
 * @param {number} limitMs
 */
function countsOf(report, what, code, limitMs) {
  let results;
  try {
    results = JSON.parse(readFileSync(report, 'utf8'));
  } catch {
    const why = code === null ? `no end after ${limitMs / 1000} s` : 'no results';
    fail(`${what}: ${why}`);
    return [`${what}: ${why}`];
  }
  const all = new Counts();
  const lines = [];
  for (const file of results.testResults) {
    const name = file.name.slice(root.length);
    const counts = new Counts();
    for (const test of file.assertionResults) {
      counts.add(test.status);
      if (test.status === 'failed') fail(`${name}: ${test.fullName}`);
      else if (test.status !== 'passed') countSkipped(reasonOf(test.fullName, name), 1);
    }
    if (
      file.status === 'failed' &&
      !file.assertionResults.some((/** @type {{ status: string; }} */ test) => test.status === 'failed')
    )
      fail(`${name}: could not be run`);
    all.addAll(counts);
    lines.push(`${name}: ${counts}`);
  }
  total.passed += all.passed;
  total.skipped += all.skipped;
  // An error outside of any test (such as an unhandled rejection) fails the run, although every test passed.
  if (code !== 0 && results.success && results.numFailedTests === 0) fail(`${what}: exit code ${code}`);
  return lines.length > 0 && lines.length <= SHORT_FILES_MAX ? lines : [`${what}: ${all}`];
}

/**
 * @param {string} reason
 * @param {number} count
 */
function countSkipped(reason, count) {
  skipped.set(reason, (skipped.get(reason) ?? 0) + count);
}

/**
 * The requirement that a skipped test names; its file if it names none.
 * @param {string} fullName
 * @param {string} file
 */
function reasonOf(fullName, file) {
  return /\(needs: (.*?)\)(?: |$)/.exec(fullName)?.[1] ?? `see ${file}`;
}

class Counts {
  passed = 0;
  failed = 0;
  skipped = 0;

  /** @param {string} status */
  add(status) {
    this[status === 'passed' || status === 'failed' ? status : 'skipped']++;
  }

  /** @param {Counts} counts */
  addAll(counts) {
    for (const word of /** @type {const} */ (['passed', 'failed', 'skipped'])) this[word] += counts[word];
  }

  toString() {
    const words = Object.entries(this).filter(([, count]) => count > 0);
    return words.map(([word, count]) => `${count} ${word}`).join(', ') || 'no tests';
  }
}

/**
 * `long` and `short` files in `LANES` lanes: each long one alone, then the short ones in groups that get smaller towards the end.
 * @param {string[]} long
 * @param {string[]} short
 */
async function inLanes(long, short) {
  const waiting = [...short];
  const next = () => {
    const file = long.shift();
    return file === undefined
      ? waiting.splice(0, Math.ceil(Math.min(SHORT_FILES_MAX, waiting.length / LANES)))
      : [file];
  };
  const lane = async () => {
    for (let files = next(); files.length > 0; files = next()) await tests('mount', files, MOUNT_FILE_LIMIT_MS);
  };
  await Promise.all(Array.from({ length: LANES }, lane));
}

function mountFiles() {
  return readdirSync(join(root, 'test'), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.mount.test.ts'))
    .map((name) => `test/${name}`)
    .filter(
      (name) => !leftOut.includes(name) && (filters.length === 0 || filters.some((filter) => name.includes(filter))),
    )
    .sort();
}

/** Why no mount is possible here, as a message; null if one is. */
function whyNoMounts() {
  if (!onPath('fusermount3')) return 'no fusermount3';
  if (!existsSync(join(root, 'native-deps/fuse-kernel/build/fuse-kernel.node')))
    return 'no addon, for lack of a C compiler';
  // fusermount3 reads it when an ordinary user unmounts. Minimal images lack it.
  if (process.getuid?.() !== 0 && !existsSync('/etc/mtab')) return 'no /etc/mtab, without which only root can unmount';
  try {
    accessSync('/dev/fuse', constants.R_OK | constants.W_OK);
    return null;
  } catch (error) {
    const { code } = /** @type {NodeJS.ErrnoException} */ (error);
    return code === 'ENOENT' ? 'no /dev/fuse' : `/dev/fuse cannot be opened (${code})`;
  }
}

/** @param {string[]} files */
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
if (words.includes('--install-all')) {
  if (!mayInstall()) {
    console.log('--install-all needs root, and apt-get');
    process.exit(1);
  }
  const refused = installLists(...Object.keys(LISTS));
  if (refused.length > 0) console.log(`not to be had here: ${refused.join(' ')}`);
}
if ((await run(node, ['scripts/bootstrap.mjs', '--for-tests'], 1_200_000, { cwd: root })) !== 0) {
  console.log('\nset-up failed, nothing was tested\n0 passed, 1 failed, 0 skipped');
  process.exit(1);
}
heading(`${filters.length === 0 ? 'checks and ' : ''}unit tests, Node ${process.version}`);
await Promise.all([filters.length === 0 ? checks() : null, tests('unit', filters, UNIT_LIMIT_MS)]);

const files = mountFiles();
const obstacle = whyNoMounts();
if (files.length > 0 && obstacle !== null) {
  const count = countTests(files);
  heading(`mount tests skipped: ${obstacle} (tests: ${count}, files: ${files.length})`);
  if (process.env.CFS_REQUIRE_FUSE === '1') fail(`mount tests are required here, but there is ${obstacle}`);
  else {
    total.skipped += count;
    countSkipped(obstacle, count);
  }
} else {
  const long = LONG.filter((file) => files.includes(file));
  heading(`mount tests, ${LANES} files at a time`);
  await inLanes(
    long,
    files.filter((file) => !long.includes(file)),
  );
}

rmSync(scratch, { recursive: true, force: true });
if (skipped.size > 0) {
  heading('skipped, by what the tests need');
  for (const [reason, count] of [...skipped].sort(([, a], [, b]) => b - a))
    console.log(`${String(count).padStart(5)}  ${reason}`);
}
if (filters.length === 0 && total.passed + total.failed < RUN_MIN)
  fail(`only ${total.passed} tests ran, of at least ${RUN_MIN}`);
if (leftOut.length > 0) {
  heading(`left to CI, or to CFS_WHOLE=1 npm test (files: ${leftOut.length})`);
  console.log(leftOut.join('\n'));
}
if (reasons.length > 0) console.log(`\n== what failed\n${reportOf(reasons)}`);
if (failures.length > 0) console.log(`\nfailed:\n${failures.map((name) => `  ${name}`).join('\n')}`);
console.log(`\n${total.passed} passed, ${total.failed} failed, ${total.skipped} skipped`);
process.exit(total.failed === 0 ? 0 : 1);
