import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { CommandHome } from '../cli/cli-harness.ts';

/**
 * A `systemctl` for PATH that acts for a user's manager, which a container does not have. As the real one, `enable` links a unit below the
 * target of its WantedBy=, `--now` starts or stops it and waits, and a unit gets the variables that it names, not those of the caller. It
 * writes down each call.
 */
const SYSTEMCTL = String.raw`
const { spawn } = require('node:child_process');
const fs = require('node:fs');
const { join } = require('node:path');
const [folder, log] = [process.env.STAND_IN_UNITS, process.env.STAND_IN_LOG];
const args = process.argv.slice(2);
fs.appendFileSync(log, args.join(' ') + '\n');
const fail = (said) => { process.stderr.write(said + '\n'); process.exit(1); };
if (fs.existsSync(log + '.no-bus')) fail('Failed to connect to bus: No medium found');
const unit = args.at(-1);
const text = () => fs.readFileSync(join(folder, unit), 'utf8');
const pidFile = log + '.pid';
const linkOf = (target) => join(folder, target + '.wants', unit);
const mounts = () => fs.readFileSync('/proc/mounts', 'utf8');
const isAlive = (pid) => { try { process.kill(pid, 0); return !/^State:\s+Z/m.test(fs.readFileSync('/proc/' + pid + '/status', 'utf8')); } catch { return false; } };
const start = () => {
  const command = /^ExecStart=(.*)$/m.exec(text())[1];
  const directory = /^# (\/.*)$/m.exec(text())[1];
  const env = { PATH: '/usr/bin:/bin', HOME: process.env.HOME, XDG_RUNTIME_DIR: process.env.XDG_RUNTIME_DIR };
  for (const [, name, value] of text().matchAll(/^Environment=([A-Z_]+)=(.*)$/gm)) env[name] = value;
  const out = fs.openSync(log + '.unit', 'a');
  const child = spawn('/bin/sh', ['-c', 'exec ' + command], { detached: true, stdio: ['ignore', out, out], env });
  fs.writeFileSync(pidFile, String(child.pid));
  child.once('exit', () => fail('Job for ' + unit + ' failed because the control process exited with error code.'));
  setInterval(() => { if (mounts().includes(' ' + directory + ' ')) process.exit(0); }, 50);
};
const stop = () => {
  const pid = fs.existsSync(pidFile) ? Number(fs.readFileSync(pidFile, 'utf8')) : 0;
  if (pid === 0 || !isAlive(pid)) process.exit(0);
  process.kill(pid, 'SIGTERM');
  setInterval(() => { if (!isAlive(pid)) process.exit(0); }, 50);
};
switch (args.slice(0, -1).join(' ')) {
  case '--user': {
    if (unit !== 'daemon-reload') fail('Unknown command verb ' + unit + '.');
    break;
  }
  case '--user enable --now': {
    if (!fs.existsSync(join(folder, unit))) fail('Failed to enable unit: Unit file ' + unit + ' does not exist.');
    const link = linkOf(/^WantedBy=(.*)$/m.exec(text())[1]);
    fs.mkdirSync(join(link, '..'), { recursive: true });
    if (!fs.existsSync(link)) {
      fs.symlinkSync(join(folder, unit), link);
      process.stderr.write('Created symlink ' + link + ' → ' + join(folder, unit) + '.\n');
    }
    start();
    break;
  }
  case '--user disable --now': {
    const link = linkOf(/^WantedBy=(.*)$/m.exec(text())[1]);
    fs.rmSync(link, { force: true });
    process.stderr.write('Removed "' + link + '".\n');
    stop();
    break;
  }
  default:
    fail('Unknown command verb ' + args[1] + '.');
}
`;

export class StandInManager {
  readonly #log: string;
  readonly #units: string;
  /** For the programs that call it, beside those of the home. */
  readonly env: Readonly<Record<string, string>>;

  constructor(home: CommandHome) {
    mkdirSync(home.path('bin'));
    const program = home.path('bin/systemctl');
    writeFileSync(program, `#!${process.execPath}\n${SYSTEMCTL}`);
    chmodSync(program, 0o755);
    this.#log = home.path('systemctl.log');
    this.#units = home.path('config/systemd/user');
    this.env = {
      PATH: `${home.path('bin')}:${process.env.PATH}`,
      STAND_IN_LOG: this.#log,
      STAND_IN_UNITS: this.#units,
    };
  }

  /** The arguments of each call since the last question. */
  asked(): readonly string[] {
    const lines = existsSync(this.#log) ? readFileSync(this.#log, 'utf8').trim().split('\n') : [];
    writeFileSync(this.#log, '');
    return lines.filter((line) => line !== '');
  }

  /** From now on no manager answers, as without a session. */
  leave(): void {
    writeFileSync(`${this.#log}.no-bus`, '');
  }

  unit(name: string): string | null {
    const path = join(this.#units, name);
    return existsSync(path) ? readFileSync(path, 'utf8') : null;
  }

  /** What the unit printed. */
  get output(): string {
    return existsSync(`${this.#log}.unit`) ? readFileSync(`${this.#log}.unit`, 'utf8') : '';
  }
}
