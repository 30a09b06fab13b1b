import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { freePort } from '../../../src/base/free-port.ts';
import type { S3Credentials } from '../../../src/server/s3/s3-credentials.ts';

const execFileAsync = promisify(execFile);
const FSID = '8d6fdb2c-4a0e-4b4e-9d0b-3a1c5b0e7f10';
const START_MS_MAX = 150_000;
const BUCKET = 'cfs-test';

/** Programs of the Debian packages radosgw, ceph-mon, ceph-osd and ceph-common. */
export const RADOSGW_PROGRAMS = ['radosgw', 'radosgw-admin', 'ceph', 'ceph-mon', 'ceph-osd', 'monmaptool'] as const;

/** An S3 store that many operators have: one monitor, one OSD in memory or on the disk, and a gateway, in a temporary directory. */
export class Radosgw {
  readonly url: string;
  readonly port: number;
  readonly credentials: S3Credentials = { accessKeyId: 'cfs-access-key', secretAccessKey: 'cfs-secret-key' };
  readonly #directory: string;
  readonly #config: string;
  readonly #children: ChildProcess[] = [];
  readonly #monitorPort: number;

  private constructor(directory: string, ports: readonly [number, number], diskBytes: number) {
    this.#monitorPort = ports[0];
    this.#directory = directory;
    this.#config = join(directory, 'ceph.conf');
    this.port = ports[1];
    this.url = `s3://${BUCKET}?endpoint=http://127.0.0.1:${ports[1]}`;
    writeFileSync(this.#config, configOf(directory, ports[0], diskBytes));
  }

  /** @param diskBytes room for objects in a file; 0: they are in memory */
  static async start(diskBytes = 0): Promise<Radosgw> {
    const directory = mkdtempSync(join(tmpdir(), 'cfs-radosgw-'));
    const gateway = new Radosgw(directory, [await freePort(), await freePort()], diskBytes);
    try {
      await gateway.#start();
      return gateway;
    } catch (error) {
      await gateway.close();
      throw error;
    }
  }

  async close(): Promise<void> {
    for (const child of this.#children.reverse()) await ended(child);
    rmSync(this.#directory, { recursive: true, force: true });
  }

  async #start(): Promise<void> {
    const map = join(this.#directory, 'monmap');
    await this.#run(
      'monmaptool',
      '--create',
      '--clobber',
      '--fsid',
      FSID,
      '--addv',
      'a',
      addressOf(this.#monitorPort),
      map,
    );
    mkdirSync(join(this.#directory, 'mon'));
    mkdirSync(join(this.#directory, 'osd'));
    await this.#run('ceph-mon', '--mkfs', '-i', 'a', '--monmap', map);
    this.#spawn('ceph-mon', '-f', '-i', 'a');
    const uuid = 'c0a8e3f4-54a1-4a0e-9b0a-1f2d3c4b5a69';
    await this.#untilDone('ceph', '--connect-timeout', '10', 'osd', 'new', uuid);
    await this.#run('ceph-osd', '-i', '0', '--mkfs', '--osd-uuid', uuid);
    this.#spawn('ceph-osd', '-f', '-i', '0');
    await this.#untilDone('ceph', '--connect-timeout', '10', 'osd', 'crush', 'add', 'osd.0', '1', 'root=default');
    const { accessKeyId, secretAccessKey } = this.credentials;
    const keys = ['--access-key', accessKeyId, '--secret-key', secretAccessKey];
    await this.#run('radosgw-admin', 'user', 'create', '--uid', 'cfs', '--display-name', 'cfs', ...keys);
    this.#spawn('radosgw', '-f', '-n', 'client.rgw', `--rgw_frontends=beast endpoint=127.0.0.1:${this.port}`);
    const isAnswering = () =>
      fetch(`http://127.0.0.1:${this.port}/`).then(
        () => true,
        () => false,
      );
    for (const endMs = performance.now() + START_MS_MAX; !(await isAnswering()); await sleep(200))
      if (performance.now() > endMs) throw new Error('radosgw does not answer');
  }

  #spawn(program: string, ...args: readonly string[]): void {
    const child = spawn(program, ['-c', this.#config, ...args], { stdio: 'ignore' });
    const atExit = (): void => void child.kill('SIGKILL');
    process.once('exit', atExit);
    child.once('exit', () => process.removeListener('exit', atExit));
    this.#children.push(child);
  }

  async #run(program: string, ...args: readonly string[]): Promise<void> {
    const config = program === 'monmaptool' ? [] : ['-c', this.#config];
    await execFileAsync(program, [...config, ...args], { timeout: START_MS_MAX });
  }

  /** A monitor that has just started refuses for some seconds. */
  async #untilDone(program: string, ...args: readonly string[]): Promise<void> {
    for (const endMs = performance.now() + START_MS_MAX; ; await sleep(200)) {
      try {
        await this.#run(program, ...args);
        return;
      } catch (error) {
        if (performance.now() > endMs) throw error;
      }
    }
  }
}

function addressOf(port: number): string {
  return `[v2:127.0.0.1:${port}/0]`;
}

/**
 * All options in one file: nothing below /etc or /var is read or written. A gateway requires encryption by default, which needs
 * authentication; hence `ms_mon_client_mode`.
 */
function configOf(directory: string, monitorPort: number, diskBytes: number): string {
  const place =
    diskBytes === 0
      ? 'osd_objectstore = memstore\nmemstore_device_bytes = 2147483648'
      : `osd_objectstore = bluestore\nbluestore_block_size = ${diskBytes}\nosd_memory_target = 939524096`;
  return `[global]
fsid = ${FSID}
mon_host = ${addressOf(monitorPort)}
mon_initial_members = a
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
mon_data = ${directory}/mon
osd_data = ${directory}/osd
run_dir = ${directory}
admin_socket =
log_file = ${directory}/$name.log
${place}
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 1
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
osd_crush_update_on_start = false
mon_allow_pool_size_one = true
mon_data_avail_warn = 0
mon_data_avail_crit = 0
rgw_data = ${directory}/rgw
ms_bind_ipv6 = false
ms_mon_client_mode = crc
`;
}

async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGKILL');
  await exit;
}
