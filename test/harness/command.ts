import { spawn } from 'node:child_process';

export interface CommandOptions {
  /** Where the script runs; entered by the shell, so that a hung mount never holds the test process. */
  readonly directory?: string;
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly input?: string | Uint8Array;
  readonly timeoutMs?: number;
  /** Give the exit code back instead of failing on one that is not 0. */
  readonly anyExitCode?: boolean;
}

export interface CommandResult {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Unsets the variables of the test runner: programs would warn about them. */
export const NOT_FOR_PROGRAMS: Readonly<Record<string, undefined>> = Object.fromEntries(
  Object.keys(process.env)
    .filter((name) => /^CFS_(?!TEST_)/.test(name))
    .map((name) => [name, undefined]),
);
const TIMEOUT_MS = 60_000;
const OUTPUT_SHOWN = 4_000;
const AFTER_EXIT_MS = 5_000;

/**
 * Runs a program in a process group of its own; past the timeout the whole group is killed.
 * @throws Error with both outputs when it fails, cannot be started or takes too long
 */
export function runCommand(argv: readonly string[], options: CommandOptions = {}): Promise<CommandResult> {
  const [program, ...args] = argv;
  if (program === undefined) throw new Error('no program');
  const timeoutMs = options.timeoutMs ?? TIMEOUT_MS;
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, {
      cwd: '/',
      detached: true,
      stdio: 'pipe',
      env: { ...process.env, ...NOT_FOR_PROGRAMS, ...options.env },
    });
    const output = { stdout: '', stderr: '' };
    // Decoded as streams: a character may lie across two pieces.
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      output.stdout += text;
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      output.stderr += text;
    });
    let late = false;
    const timer = setTimeout(() => {
      late = true;
      if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
      // A process that hangs in the kernel does not die: the test goes on without it.
      setTimeout(() => ended(null), 2_000).unref();
    }, timeoutMs);
    const said = () =>
      `${argv.join(' ').slice(0, 500)}\n${output.stdout.slice(-OUTPUT_SHOWN)}${output.stderr.slice(-OUTPUT_SHOWN)}`;
    const ended = (code: number | null) => {
      clearTimeout(timer);
      if (late) reject(new Error(`took longer than ${timeoutMs} ms: ${said()}`));
      else if (code === 0 || (options.anyExitCode === true && code !== null)) resolve({ code: code ?? 0, ...output });
      else reject(new Error(`ended with ${code ?? 'a signal'}: ${said()}`));
    };
    child.on('error', (error) => {
      clearTimeout(timer);
      reject(error);
    });
    child.on('close', (code) => ended(code));
    // What a program left in the background may hold its output open: then what came until a moment after its end must do.
    child.on('exit', (code) => setTimeout(() => ended(code), AFTER_EXIT_MS).unref());
    child.stdin.on('error', () => {});
    child.stdin.end(options.input ?? '');
  });
}

/** Runs a shell script, which stops at its first failing command. */
export function runScript(script: string, options: CommandOptions = {}): Promise<CommandResult> {
  return runCommand(['sh', '-euc', `cd "$1"; ${script}`, 'script', options.directory ?? '/'], options);
}
