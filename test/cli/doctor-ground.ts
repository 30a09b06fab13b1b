import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { dirname, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { doctorCommand } from '../../src/cli/commands/doctor.ts';
import { type Machine, systemMachine } from '../../src/cli/doctor/machine.ts';
import { examineStore } from '../../src/cli/doctor/store-examination.ts';
import { type AccountPaths, accountName, accountPaths, pathsOf } from '../../src/config/paths.ts';
import { findFusermount } from '../../src/kernel/fusermount.ts';
import { type Account, writeAccountFile } from '../../src/mount/account-file.ts';
import { CommandHome } from './cli-harness.ts';

/** How `cfs doctor` ended. */
export interface Report {
  readonly code: number;
  readonly text: string;
}

/**
 * A machine on which everything is as it should be, to break one part after another: a device, a fusermount3 (any program that
 * is setuid root stands for it), a home with an account of a real server, and its store.
 */
export class DoctorGround {
  readonly home = new CommandHome();
  machine: Machine;
  /** Gets each line on standard error. */
  onWarning: (text: string) => void = () => {};
  #files: AccountPaths | null = null;

  constructor() {
    const file = (name: string, text = ''): string => {
      writeFileSync(this.home.path(name), text);
      return this.home.path(name);
    };
    mkdirSync(this.home.path('bin'));
    symlinkSync('/usr/bin/su', this.home.path('bin/fusermount3'));
    this.machine = {
      ...systemMachine({ ...this.home.env, PATH: this.home.path('bin') }),
      devicePath: file('fuse'),
      fuseConfPath: file('fuse.conf', '# nothing\n#user_allow_other\n'),
      filesystemsPath: file('filesystems', 'nodev\tproc\nnodev\tfuse\n\text4\n'),
      fuseSettingsPath: this.home.path('fuse-settings'),
      mtabPath: file('mtab'),
      fusermount: () => findFusermount(this.home.path('bin')),
      mountTable: () => '21 1 0:19 / /proc rw - proc proc rw\n',
      disk: () => ({ freeBytes: 50 * 1024 ** 3, totalBytes: 100 * 1024 ** 3 }),
      fstabPath: file('fstab', '# nothing\n#ann@example.com /mnt fuse.cfs-mount noauto 0 0\n'),
      helperPath: this.home.path('system'),
      loadAddon: () => {},
      kernelRelease: () => '6.12.0',
      keeperProgram: () => this.home.path('keeper'),
    };
  }

  /** Breaks a part. */
  change(parts: Partial<Machine>): void {
    this.machine = { ...this.machine, ...parts };
  }

  setEnv(env: Readonly<Record<string, string>>): void {
    this.change({ env: { ...this.machine.env, ...env } });
  }

  get files(): AccountPaths {
    if (this.#files === null) throw new Error('nobody is signed in');
    return this.#files;
  }

  /** Keeps an account as `cfs login` does, with the directories of a mount that never was. */
  keep(account: Account): void {
    const paths = pathsOf(this.home.env);
    this.#files = accountPaths(paths, accountName(account.origin, account.userId));
    writeAccountFile(this.files.accountFile, account);
    for (const directory of [this.files.storeDirectory, dirname(this.files.socketPath)])
      mkdirSync(directory, { recursive: true, mode: 0o700 });
  }

  /** An account of a service elsewhere, with a sign-in that nobody gave. */
  plantAccount(origin: string): void {
    const { name } = this.home.plantAccount({ origin, refreshToken: `${origin}/app-authorization/none` });
    this.#files = accountPaths(pathsOf(this.home.env), name);
  }

  async doctor(flags: { store?: boolean; json?: boolean; account?: string } = {}): Promise<Report> {
    let text = '';
    const print = (more: string): void => {
      text += more;
    };
    const { machine } = this;
    const warn = (warning: string): void => this.onWarning(warning);
    const deps = { paths: pathsOf(machine.env), env: machine.env, machine, examine: examineStore, print, warn };
    const wanted = { store: flags.store === true, json: flags.json === true, account: flags.account ?? null };
    return { code: await doctorCommand(deps, wanted), text };
  }

  dispose(): void {
    this.home.dispose();
  }
}

/** An authority of one's own, and servers with certificates of it. */
export class Authority {
  readonly certificateFile: string;
  readonly #directory: string;

  constructor(directory: string) {
    this.#directory = directory;
    mkdirSync(directory);
    this.certificateFile = this.#path('ca.pem');
    this.#openssl('req', '-x509', ...KEY, '-keyout', 'ca.key', '-out', 'ca.pem', '-subj', '/CN=authority');
    const config = ['[ca]', 'default_ca=d', '[d]', `dir=${directory}`, `database=${this.#path('index.txt')}`];
    config.push(`new_certs_dir=${directory}`, 'rand_serial=yes', 'default_md=sha256', 'policy=p');
    config.push('copy_extensions=copy', 'unique_subject=no', '[p]', 'commonName=supplied', '');
    writeFileSync(this.#path('ca.cnf'), config.join('\n'));
    writeFileSync(this.#path('index.txt'), '');
  }

  /** @param life first and last day as `20200101000000Z` @param name of the certificate, as a subjectAltName */
  serve(
    life?: readonly [string, string],
    name?: string,
  ): Promise<{ readonly origin: string; requests(): number; close(): void }> {
    let asked = 0;
    const server = createTlsServer(this.certify(life, name), async (request, response) => {
      asked++;
      // As the service: it tells a sign-in that it does not know from a request without one.
      response.writeHead((await text(request)).includes('<tokenAuthRequest/>') ? 400 : 401).end();
    });
    return new Promise((resolve) => {
      server.listen(0, '127.0.0.1', () => {
        const origin = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
        resolve({ origin, requests: () => asked, close: () => void server.close() });
      });
    });
  }

  /** A key and its certificate. Parameters as of `serve`. */
  certify(
    life: readonly [string, string] = ['20200101000000Z', '20490101000000Z'],
    name = 'IP:127.0.0.1',
  ): { readonly key: Buffer; readonly cert: Buffer } {
    const alternative = `subjectAltName=${name}`;
    this.#openssl('req', ...KEY, '-keyout', 's.key', '-out', 's.csr', '-subj', '/CN=s', '-addext', alternative);
    const dates = ['-startdate', life[0], '-enddate', life[1]];
    const paths = ['-config', 'ca.cnf', '-cert', 'ca.pem', '-keyfile', 'ca.key', '-in', 's.csr', '-out', 's.pem'];
    this.#openssl('ca', '-batch', '-notext', ...paths, ...dates);
    return { key: readFileSync(this.#path('s.key')), cert: readFileSync(this.#path('s.pem')) };
  }

  #path(name: string): string {
    return join(this.#directory, name);
  }

  #openssl(...args: string[]): void {
    execFileSync('openssl', args, { cwd: this.#directory, stdio: 'ignore' });
  }
}

const KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];
