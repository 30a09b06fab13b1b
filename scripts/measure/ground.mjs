// The setup of the benchmarks: an embedded server with a chosen latency, an account, our mount and rclone's mount of the same
// account, all in one temporary directory, which is removed at the end. Only processes started here are ended.
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { built } from '../built.mjs';
import { builtPassthrough } from './passthrough.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));
const dist = (/** @type {string} */ path) => join(root, 'dist', path);
/** @type {typeof import('../../src/base/process-life.ts')} */
const { processLife } = await import(built('base/process-life.js'));
/** @type {typeof import('../../src/store/owner-lock.ts')} */
const { ownerOf } = await import(built('store/owner-lock.js'));

/**
 * Runs `command` in a process of its own, so that this process never waits in a mount.
 *
 * Standard input is no socket, as it is by default, and `--norc` is set: with a socket and without SHLVL, bash takes itself for a remote login and
 * runs ~/.bashrc. That adds to every time, and pulls the ratio of any two towards 1.
 *
 * @param {string} command
 * @param {{ timeoutMs?: number, cwd?: string | undefined, env?: NodeJS.ProcessEnv }} [options]
 * @returns {{ seconds: number, out: string }}
 */
export function run(command, { timeoutMs = 600_000, cwd, env = process.env } = {}) {
  const start = process.hrtime.bigint();
  const done = spawnSync('bash', ['--norc', '-c', command], {
    stdio: ['ignore', 'pipe', 'pipe'],
    encoding: 'utf8',
    timeout: timeoutMs,
    cwd,
    env,
    maxBuffer: 1 << 26,
  });
  const seconds = Number(process.hrtime.bigint() - start) / 1e9;
  if (done.status !== 0) throw new Error(`${command}: ${done.signal ?? done.status}\n${done.stderr}`);
  return { seconds, out: done.stdout };
}

/** Whether a call of `dropPageCache` did not return: its effect is then unknown, and no further one is made. */
let isDropStuck = false;

/**
 * Writes dirty pages, and empties the page cache of the kernel, where that is allowed (root); a warning where it is not.
 *
 * The write to drop_caches can last for minutes on some machines, and no signal ends it. It is therefore left behind after
 * 30 s, with a warning: what is measured next may then read from memory.
 */
export function dropPageCache() {
  if (isDropStuck) return;
  spawnSync('sync');
  const script =
    'echo 1 > /proc/sys/vm/drop_caches & n=0; while kill -0 $!; do n=$((n+1)); [ $n -lt 600 ] || exit 9; sleep 0.05; done; wait $!';
  const done = spawnSync('sh', ['-c', script], { stdio: 'ignore' });
  isDropStuck = done.status === 9;
  if (done.status !== 0)
    console.error(
      `the page cache was not emptied (${isDropStuck ? 'no end after 30 s' : 'refused'}): reads may come from memory`,
    );
}

/**
 * Waits for the end of a mount's process, for at most `patienceMs`.
 * @returns whether it has ended
 * @param {{ pid: number }} mount
 * @param {number} patienceMs
 */
function hasEnded({ pid }, patienceMs) {
  for (const end = performance.now() + patienceMs; processLife(pid) !== 'ended'; ) {
    if (performance.now() > end) return false;
    spawnSync('sleep', ['0.05']);
  }
  return true;
}

/** @param {RegExp} pattern @param {string} text @returns {string} the first group of the first match */
function firstGroup(pattern, text) {
  const [, group] = pattern.exec(text) ?? [];
  if (group === undefined) throw new Error(`no ${pattern} in: ${text}`);
  return group;
}

/**
 * Ends a process that was started here.
 * @param {import('node:child_process').ChildProcess} child
 */
async function endProcess(child) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = new Promise((resolve) => child.once('exit', resolve));
  child.kill();
  await exit;
}

/**
 * A mount under test: its directory, what it keeps on the disk, and its process.
 * @typedef {{ directory: string, store: string, pid: number, env: NodeJS.ProcessEnv, kept: string, cfs: (...args: string[]) => string, child?: undefined }} Mounted
 * @typedef {{ directory: string, child: import('node:child_process').ChildProcess, kept: string }} PeerMounted
 */

export class Ground {
  /**
   * @param {{ serveFlags?: readonly string[], tls?: boolean }} [options] `serveFlags`: options of `cfs serve`, such as a latency; `tls`: the
   *   server speaks TLS
   */
  static async lay({ serveFlags = [], tls = false } = {}) {
    const ground = new Ground();
    try {
      if (tls) ground.#certify();
      await ground.#begin(serveFlags);
    } catch (error) {
      await ground.clear();
      throw error;
    }
    return ground;
  }

  base = mkdtempSync(join(tmpdir(), 'cfs-bench-'));
  origin = '';
  #data = join(this.base, 'server');
  /** @type {import('node:child_process').ChildProcess | null} */
  #server = null;
  /** @type {Record<string, string | undefined>} */
  #env = { ...process.env };
  /** @type {import('node:child_process').ChildProcess[]} */
  #children = [];
  /** @type {string[]} */
  #mounts = [];
  /** @type {Mounted[]} */
  #ours = [];

  /** The options of `cfs serve` for TLS; none without it. @type {readonly string[]} */
  #tls = [];

  /** A certificate for the server, which all clients here trust: ours and rclone read one variable, curl another first. */
  #certify() {
    const [key, certificate] = [join(this.base, 'key.pem'), join(this.base, 'certificate.pem')];
    const files = ['-keyout', key, '-out', certificate];
    const wanted = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'];
    const names = ['-subj', '/CN=cfs bench', '-addext', 'subjectAltName=IP:127.0.0.1'];
    const made = spawnSync('openssl', ['req', '-x509', ...wanted, ...names, ...files], { encoding: 'utf8' });
    if (made.status !== 0) throw new Error(`openssl req: ${made.stderr}`);
    this.#tls = ['--tls-cert', certificate, '--tls-key', key];
    this.#env.SSL_CERT_FILE = certificate;
    process.env.SSL_CERT_FILE = certificate;
    process.env.CURL_CA_BUNDLE = certificate;
    // For the requests of this process, whose authorities Node has read already.
    process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0';
  }

  /** @param {readonly string[]} serveFlags */
  async #begin(serveFlags) {
    for (const name of ['CONFIG', 'STATE', 'CACHE', 'DATA'])
      this.#env[`XDG_${name}_HOME`] = join(this.base, name.toLowerCase());
    this.#env.XDG_RUNTIME_DIR = join(this.base, 'run');
    mkdirSync(this.#env.XDG_RUNTIME_DIR, { mode: 0o700 });
    this.origin = await this.#serve(serveFlags);
    this.#env.CFS_PASSWORD = 'bench-password';
    const account = this.cfs('serve', 'user', 'add', 'bench@example.com', '--data', this.#data);
    for (const line of account.split('\n')) {
      const [, name, value] = /^(CFS_\w+)=(.*)$/.exec(line) ?? [];
      if (name !== undefined) this.#env[name] = value;
    }
    this.cfs('login', this.origin);
  }

  /**
   * A server in a process of its own. It stands for another machine. It shares the processors of this one, so it has a lower priority than
   * every client.
   * @returns its origin
   * @param {readonly string[]} flags
   */
  async #serve(flags) {
    const server = spawn(
      'nice',
      [
        '-n',
        '10',
        process.execPath,
        dist('cli/cfs.js'),
        'serve',
        '--data',
        this.#data,
        '--log-level',
        'error',
        '--ready-fd',
        '3',
        ...this.#tls,
        ...flags,
      ],
      {
        env: this.#env,
        stdio: ['ignore', 'ignore', 'inherit', 'pipe'],
      },
    );
    this.#children.push(server);
    this.#server = server;
    const line = await new Promise((resolve, reject) => {
      createInterface(/** @type {import('node:stream').Readable} */ (server.stdio[3])).once('line', resolve);
      server.once('exit', (code) => reject(new Error(`the server ended with ${code}`)));
    });
    return JSON.parse(line).origin;
  }

  /**
   * Restarts the server at the same address with other flags, such as a latency. Nothing may be mounted meanwhile.
   * @param {readonly string[]} serveFlags
   */
  async move(serveFlags) {
    if (this.#server !== null) await endProcess(this.#server);
    const origin = await this.#serve(serveFlags);
    if (origin !== this.origin) throw new Error(`the server moved from ${this.origin} to ${origin}`);
  }

  /** @param {string[]} args */
  cfs(...args) {
    const done = spawnSync(process.execPath, [dist('cli/cfs.js'), ...args], {
      env: this.#env,
      encoding: 'utf8',
      timeout: 600_000,
    });
    if (done.status !== 0) throw new Error(`cfs ${args.join(' ')}: ${done.stderr}`);
    return done.stdout;
  }

  /** @param {string} name */
  directory(name) {
    const path = join(this.base, name);
    mkdirSync(path, { recursive: true });
    return path;
  }

  /** The environment of a mount's commands, by its state. @param {string} state */
  envOf(state) {
    return {
      ...this.#env,
      XDG_STATE_HOME: join(this.base, `state-${state}`),
      XDG_RUNTIME_DIR: this.directory(`run-${state}`),
    };
  }

  /**
   * Our mount. `state`: a store of its own, empty at first.
   * @returns its directory, its store, its process, its state directory, and `cfs` for it
   * @param {string} name
   */
  mount(name, /** @type {readonly string[]} */ flags = [], state = name) {
    const directory = this.directory(name);
    const env = this.envOf(state);
    spawnSync('chmod', ['700', env.XDG_RUNTIME_DIR]);
    // Copies the saved sign-in: another login would cost half a second of password hashing.
    if (!existsSync(env.XDG_STATE_HOME)) spawnSync('cp', ['-a', String(this.#env.XDG_STATE_HOME), env.XDG_STATE_HOME]);
    const done = spawnSync(process.execPath, [dist('cli/cfs-mount.js'), directory, ...flags], {
      env,
      encoding: 'utf8',
      timeout: 60_000,
    });
    if (done.status !== 0) throw new Error(`cfs-mount: ${done.stderr}`);
    this.#mounts.push(directory);
    const accounts = join(env.XDG_STATE_HOME, 'cfs', 'accounts');
    const store = join(accounts, readdirSync(accounts)[0], 'store');
    const pid = ownerOf(store);
    if (pid === null) throw new Error(`no process has the store of ${directory} open`);
    /** @type {Mounted} */
    const mount = {
      directory,
      store,
      pid,
      env,
      kept: env.XDG_STATE_HOME,
      cfs: (/** @type {string[]} */ ...args) => this.#inEnv(env, ...args),
    };
    this.#ours.push(mount);
    return mount;
  }

  /**
   * @param {NodeJS.ProcessEnv} env
   * @param {string[]} args
   */
  #inEnv(env, ...args) {
    const done = spawnSync(process.execPath, [dist('cli/cfs.js'), ...args], {
      env,
      encoding: 'utf8',
      timeout: 600_000,
    });
    if (done.status !== 0) throw new Error(`cfs ${args.join(' ')}: ${done.stderr}`);
    return done.stdout;
  }

  /**
   * rclone's mount of the same folder, its service fully filled in (docs/service.md 13.9); null where rclone is missing.
   * @param {string} name
   */
  async rclone(name, flags = ['--vfs-cache-mode', 'full']) {
    if (spawnSync('rclone', ['version']).status !== 0) return null;
    const config = await this.#rcloneConfig();
    const directory = this.directory(name);
    const cache = join(this.base, `rclone-cache-${name}`);
    const child = spawn('rclone', ['--config', config, 'mount', 'sugar:', directory, '--cache-dir', cache, ...flags], {
      stdio: 'ignore',
    });
    this.#children.push(child);
    for (let i = 0; i < 200 && !readFileSync('/proc/mounts', 'utf8').includes(` ${directory} `); i++)
      spawnSync('sleep', ['0.05']);
    this.#mounts.push(directory);
    return { directory, child, kept: cache };
  }

  /**
   * A directory that bindfs passes on to another one, `NAME-behind`; null where bindfs is missing.
   * @param {string} name
   */
  bindfs(name, /** @type {readonly string[]} */ flags = []) {
    const [behind, directory] = [this.directory(`${name}-behind`), this.directory(name)];
    if (spawnSync('bindfs', [...flags, behind, directory]).status !== 0) return null;
    this.#mounts.push(directory);
    return directory;
  }

  /**
   * A directory that libfuse's example passes on to another one; null where it cannot be built.
   * @param {string} name
   */
  passthrough(name) {
    const program = builtPassthrough(this.base);
    if (program === null) return null;
    const [behind, directory] = [this.directory(`${name}-behind`), this.directory(name)];
    this.#children.push(spawn(program, ['-f', '-o', `source=${behind}`, directory], { stdio: 'ignore' }));
    for (let i = 0; i < 100 && !readFileSync('/proc/mounts', 'utf8').includes(` ${directory} `); i++)
      spawnSync('sleep', ['0.05']);
    this.#mounts.push(directory);
    return directory;
  }

  async #rcloneConfig() {
    const path = join(this.base, 'rclone.conf');
    if (existsSync(path)) return path;
    const { application, accessKeyId, privateAccessKey, username, password } = {
      application: this.#env.CFS_APPLICATION,
      accessKeyId: this.#env.CFS_ACCESS_KEY_ID,
      privateAccessKey: this.#env.CFS_PRIVATE_ACCESS_KEY,
      username: this.#env.CFS_USERNAME,
      password: this.#env.CFS_PASSWORD,
    };
    const post = async (/** @type {string | URL | Request} */ url, /** @type {string} */ body) => {
      const answer = await fetch(url, { method: 'POST', headers: { 'content-type': 'application/xml' }, body });
      return { location: answer.headers.get('location'), text: await answer.text() };
    };
    const refresh = await post(
      `${this.origin}/app-authorization`,
      `<appAuthorization><username>${username}</username><password>${password}</password><application>${application}</application><accessKeyId>${accessKeyId}</accessKeyId><privateAccessKey>${privateAccessKey}</privateAccessKey></appAuthorization>`,
    );
    const access = await post(
      `${this.origin}/authorization`,
      `<tokenAuthRequest><accessKeyId>${accessKeyId}</accessKeyId><privateAccessKey>${privateAccessKey}</privateAccessKey><refreshToken>${refresh.location}</refreshToken></tokenAuthRequest>`,
    );
    const user = firstGroup(/<user>([^<]+)<\/user>/, access.text);
    const uid = user.slice(user.lastIndexOf('/') + 1);
    this.token = access.location;
    writeFileSync(
      path,
      `[sugar]\ntype = sugarsync\napp_id = x\naccess_key_id = x\nprivate_access_key = x\nrefresh_token = ${refresh.location}\nauthorization = ${access.location}\nauthorization_expiry = 2099-01-01T00:00:00Z\nuser = ${user}\nroot_id = ${this.origin}/folder/:sc:${uid}:2\ndeleted_id = ${this.origin}/folder/:sc:${uid}:9\n`,
    );
    return path;
  }

  /**
   * The number of complete files on the server below `path` of the briefcase, requested over HTTP.
   * @param {string} path
   */
  async serverFiles(path) {
    await this.#rcloneConfig();
    const ask = async (/** @type {string | URL | Request} */ url) =>
      (await fetch(url, { headers: { authorization: String(this.token) } })).text();
    // A kept connection may have been closed meanwhile: one retry on a new one.
    const get = (/** @type {string} */ url) => ask(url).catch(() => ask(url));
    const list = async (/** @type {string} */ folder) => {
      const pages = [];
      for (let start = 0, more = true; more; start += 500) {
        const page = await get(`${folder}/contents?start=${start}&max=500`);
        pages.push(page);
        more = page.includes('hasMore="true"');
      }
      return pages.join('');
    };
    const foldersOf = (/** @type {string} */ page) => [
      ...page.matchAll(/<displayName>([^<]*)<\/displayName><ref>([^<]*\/folder\/[^<]*)<\/ref>/g),
    ];
    const user = await get(`${this.origin}/user`);
    /** @type {string | undefined} */
    let at = firstGroup(/<magicBriefcase>([^<]+)</, user);
    for (const name of path.split('/')) {
      at = foldersOf(await list(at)).find(([, displayName]) => displayName === name)?.[2];
      if (at === undefined) return 0;
    }
    /** @type {(folder: string) => Promise<number>} */
    const count = async (folder) => {
      const page = await list(folder);
      const below = await Promise.all(foldersOf(page).map(([, , url]) => count(url)));
      return (
        (page.match(/<presentOnServer>true</g) ?? []).length +
        below.reduce((/** @type {number} */ sum, /** @type {number} */ each) => sum + each, 0)
      );
    };
    return count(at);
  }

  /**
   * URL and authorization for the bytes of a top-level file.
   * @param {string} name
   */
  async dataOf(name) {
    await this.#rcloneConfig();
    const headers = { authorization: String(this.token) };
    const user = await (await fetch(`${this.origin}/user`, { headers })).text();
    const folder = firstGroup(/<magicBriefcase>([^<]+)</, user);
    const page = await (await fetch(`${folder}/contents`, { headers })).text();
    const url = firstGroup(new RegExp(`<displayName>${name}</displayName><ref>([^<]+)</ref>`), page);
    return { url: `${url}/data`, authorization: this.token };
  }

  /**
   * Creates an empty file for another client to fill.
   * @returns URL and authorization for its bytes
   * @param {string} name
   */
  async emptyFile(name) {
    await this.#rcloneConfig();
    const headers = { authorization: String(this.token), 'content-type': 'application/xml' };
    const user = await (await fetch(`${this.origin}/user`, { headers })).text();
    const folder = firstGroup(/<magicBriefcase>([^<]+)</, user);
    const body = `<file><displayName>${name}</displayName><mediaType>application/octet-stream</mediaType></file>`;
    const answer = await fetch(folder, { method: 'POST', headers, body });
    return { url: `${answer.headers.get('location')}/data`, authorization: this.token };
  }

  /** The URL of the mounted folder. @returns {Promise<string>} */
  async home() {
    await this.#rcloneConfig();
    const headers = { authorization: String(this.token) };
    return firstGroup(/<magicBriefcase>([^<]+)</, await (await fetch(`${this.origin}/user`, { headers })).text());
  }

  /** Creates a folder as another client. @param {string} parent @param {string} name */
  newFolder(parent, name) {
    return this.#post(parent, `<folder><displayName>${name}</displayName></folder>`);
  }

  /** Creates a file without data as another client. @param {string} parent @param {string} name */
  newFile(parent, name) {
    return this.#post(parent, `<file><displayName>${name}</displayName><mediaType>text/plain</mediaType></file>`);
  }

  /** @param {string} url @param {string} body @returns the URL of the new resource */
  async #post(url, body) {
    const headers = { authorization: String(this.token), 'content-type': 'application/xml' };
    const answer = await fetch(url, { method: 'POST', headers, body });
    await answer.text();
    const location = answer.headers.get('location');
    if (location === null) throw new Error(`POST ${url}: ${answer.status}`);
    return location;
  }

  /** @param {string} directory */
  unmount(directory) {
    spawnSync('fusermount3', ['-u', directory], { timeout: 30_000 });
    for (let i = 0; i < 200 && readFileSync('/proc/mounts', 'utf8').includes(` ${directory} `); i++)
      spawnSync('sleep', ['0.05']);
  }

  /**
   * Unmounts one of our mounts, and waits for the end of its process.
   * @param {Mounted} mount
   */
  end(mount) {
    this.unmount(mount.directory);
    if (!hasEnded(mount, 60_000)) throw new Error(`process ${mount.pid} does not end, it had ${mount.directory}`);
  }

  /**
   * Unmounts a mount and removes its files, so that the next one finds the disk in the same state.
   * @param {Mounted | PeerMounted} mount
   */
  async discard(mount) {
    if (mount.child === undefined) this.end(mount);
    else {
      this.unmount(mount.directory);
      await endProcess(mount.child);
    }
    rmSync(mount.kept, { recursive: true, force: true });
  }

  /** Ends everything: the mounts first, then the server. It does not wait long for a mount that still pushes. */
  async clear() {
    const mounts = readFileSync('/proc/mounts', 'utf8');
    const left = this.#mounts.filter((directory) => mounts.includes(` ${directory} `));
    for (const directory of left) this.unmount(directory);
    for (const directory of left) spawnSync('fusermount3', ['-uzq', directory]);
    for (const mount of this.#ours) hasEnded(mount, 2000);
    await Promise.all(this.#children.map(endProcess));
    rmSync(this.base, { recursive: true, force: true });
  }
}
