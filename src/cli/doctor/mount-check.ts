import { lstatSync } from 'node:fs';
import { dirname } from 'node:path';
import { formatDuration } from '../../config/units.ts';
import { askStatus, NoMountError } from '../../control/client.ts';
import type { Status } from '../../control/status-model.ts';
import { parseMountInfo } from '../../kernel/mount-table.ts';
import { visible } from '../../mount/mount-event.ts';
import { isOurs } from '../../mount/mount-state.ts';
import type { KnownAccount } from './account-check.ts';
import { type Finding, finding } from './finding.ts';
import type { Machine } from './machine.ts';
import type { WaitNotice } from './wait-notice.ts';

const OTHERS = 0o077;

/** The result of a request at the control socket of an account. */
export interface SocketReport {
  readonly status: Status | null;
  readonly findings: readonly Finding[];
}

/** Whether each of our mounts answers. */
export async function checkMounts(machine: Machine, notice: WaitNotice): Promise<readonly Finding[]> {
  const found: Finding[] = [];
  const seen = new Set<string>();
  for (const mount of parseMountInfo(machine.mountTable())) {
    if (!isOurs(mount) || seen.has(mount.directory)) continue;
    seen.add(mount.directory);
    const shown = visible(mount.directory);
    const state = await notice.during(`the mount at ${shown} to answer`, () => machine.probe(mount));
    if (state === 'dead') found.push(finding('mount-dead', `the mount at ${shown} is dead`, shown));
    if (state === 'hangs') found.push(finding('mount-hangs', `the mount at ${shown} does not answer`, shown));
  }
  return found;
}

/** Whether a mount of the account answers at its socket, and the problems that it reports. */
export async function checkSocket(
  machine: Machine,
  { files, title }: KnownAccount,
  notice: WaitNotice,
): Promise<SocketReport> {
  const ask = (path: string): Promise<SocketReport> =>
    notice.during(`the mount of ${title} to answer at ${visible(path)}`, () => reportAt(machine, title, path));
  const usual = await ask(files.socketPath);
  if (usual.status !== null || files.bootSocketPath === files.socketPath) return usual;
  const atBoot = await ask(files.bootSocketPath);
  return { status: atBoot.status, findings: [...usual.findings, ...atBoot.findings] };
}

async function reportAt(machine: Machine, title: string, socketPath: string): Promise<SocketReport> {
  const access = [...checkDirectory(machine, dirname(socketPath))];
  if (!isSocket(socketPath)) return { status: null, findings: access };
  let status: Status;
  try {
    status = await askStatus(socketPath, AbortSignal.timeout(machine.limits.statusMs));
  } catch (error) {
    const shown = visible(socketPath);
    if (error instanceof NoMountError && error.code === 'ECONNREFUSED') {
      const stale = finding('socket-stale', `no process answers at the control socket ${shown}`, shown);
      return { status: null, findings: [...access, stale] };
    }
    // The mount ended during the request.
    if (error instanceof NoMountError) return { status: null, findings: access };
    const silent = finding('mount-silent', `the mount of ${title} does not answer at ${shown}`, shown);
    return { status: null, findings: [...access, silent] };
  }
  return { status, findings: [...access, ...complaints(machine, status)] };
}

function* complaints(machine: Machine, { connection, parked, directory }: Status): Generator<Finding> {
  const shown = visible(directory);
  const since = formatDuration(Math.max(0, machine.clock.nowMs() - connection.sinceMs));
  if (connection.state === 'offline') yield finding('mount-offline', `the mount at ${shown} is offline since ${since}`);
  if (connection.state === 'sign-in-needed')
    yield finding('mount-signed-out', `the mount at ${shown} waits for a new sign-in since ${since}`);
  const [first] = parked;
  if (first !== undefined) {
    const what = `${parked.length} parked in ${shown}, the first is ${visible(first.path)}: ${first.reason}`;
    yield finding('changes-parked', what);
  }
}

function* checkDirectory(machine: Machine, directory: string): Generator<Finding> {
  const shown = visible(directory);
  try {
    const stats = lstatSync(directory);
    if (!stats.isDirectory()) yield finding('socket-foreign', `${shown} is no directory`, shown);
    else if (stats.uid !== machine.uid) yield finding('socket-foreign', `${shown} belongs to user ${stats.uid}`, shown);
    else if ((stats.mode & OTHERS) !== 0)
      yield finding('socket-exposed', `${shown} is open to others (mode ${(stats.mode & 0o777).toString(8)})`, shown);
  } catch {
    // No mount ran since the last boot.
  }
}

function isSocket(path: string): boolean {
  try {
    return lstatSync(path).isSocket();
  } catch {
    return false;
  }
}
