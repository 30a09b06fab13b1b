import { spawn } from 'node:child_process';

/** What a program asks at its terminal, and what a person types then. */
export type Turn = readonly [question: string, answer: string];

const TIMEOUT_MS = 60_000;

/**
 * Runs a program at a terminal of its own (script(1)), and answers each question once it stands there.
 * @returns exit code, and all that was seen on the terminal: questions, what was echoed, output of both kinds
 * @throws Error with what was seen, when a question does not come or the program does not end in time
 */
export function atTerminal(
  argv: readonly string[],
  options: { readonly env: Readonly<Record<string, string | undefined>>; readonly turns?: readonly Turn[] },
): Promise<{ readonly code: number; readonly seen: string }> {
  const turns = [...(options.turns ?? [])];
  const words = argv.map((word) => `'${word.replaceAll("'", "'\\''")}'`).join(' ');
  // Whatever $SHELL is: one that stays before the program hears Ctrl-C as well, and dash then answers 130 in its place.
  const command = `exec ${words}`;
  return new Promise((resolve, reject) => {
    const child = spawn('script', ['-qec', command, '/dev/null'], {
      stdio: 'pipe',
      detached: true,
      env: { ...process.env, ...options.env },
    });
    let seen = '';
    let answered = 0;
    const timer = setTimeout(() => {
      if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
      reject(new Error(`took longer than ${TIMEOUT_MS} ms, unasked: ${turns.map(([question]) => question)}: ${seen}`));
    }, TIMEOUT_MS);
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      seen += text;
      const [turn] = turns;
      const at = turn === undefined ? -1 : seen.indexOf(turn[0], answered);
      if (turn === undefined || at < 0) return;
      turns.shift();
      answered = at + turn[0].length;
      child.stdin.write(`${turn[1]}\r`);
    });
    child.on('error', reject);
    child.stdin.on('error', () => {});
    child.on('close', (code) => {
      clearTimeout(timer);
      if (turns.length > 0) reject(new Error(`ended before it asked ${turns[0]?.[0]}: ${seen}`));
      else resolve({ code: code ?? -1, seen });
    });
  });
}
