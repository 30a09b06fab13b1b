import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { type Browser, chromium, type Page } from 'playwright-core';
import { vi } from 'vitest';
import { missingPrograms } from '../harness/requirement.ts';
import { PROJECT } from '../imports.ts';

const CFS = join(PROJECT, 'dist/cli/cfs.js');
const START_MS_MAX = 60_000;

/** What a test with a browser needs; null if it is there. */
export function missingBrowser(): string | null {
  return missingPrograms('chromium');
}

/** A browser that asks nothing of the network. @param args further ones */
export function startBrowser(args: readonly string[] = []): Promise<Browser> {
  const quiet = ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update'];
  return chromium.launch({ executablePath: '/usr/bin/chromium', args: [...quiet, '--no-first-run', ...args] });
}

/** `cfs web` in a process of its own. */
export class PageProgram {
  readonly origin: string;
  readonly child: ChildProcess;
  readonly #output: { text: string };

  private constructor(child: ChildProcess, output: { text: string }, origin: string) {
    this.child = child;
    this.#output = output;
    this.origin = origin;
  }

  static async start(
    env: Readonly<Record<string, string | undefined>>,
    flags: readonly string[] = [],
  ): Promise<PageProgram> {
    const child = spawn(process.execPath, [CFS, 'web', ...flags], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, ...env },
    });
    process.once('exit', () => child.kill('SIGKILL'));
    const output = { text: '' };
    const origin = await new Promise<string>((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`cfs web did not start: ${output.text}`)), START_MS_MAX);
      const read = (chunk: Buffer): void => {
        output.text += chunk;
        const [, found] = /the page: (http:\S+?)\/\n[\s\S]*it ends with/.exec(output.text) ?? [];
        if (found === undefined) return;
        clearTimeout(timer);
        resolve(found);
      };
      child.stdout.on('data', read);
      child.stderr.on('data', read);
      child.once('exit', (code) => reject(new Error(`cfs web ended with ${code}: ${output.text}`)));
    });
    return new PageProgram(child, output, origin);
  }

  /** What it printed. */
  get output(): string {
    return this.#output.text;
  }

  get port(): number {
    return Number(new URL(this.origin).port);
  }

  /** The printed code. */
  get code(): string {
    return /code, for one browser: (\S+)/.exec(this.output)?.[1] ?? '';
  }

  async stop(): Promise<number | null> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return this.child.exitCode;
    const ended = new Promise<number | null>((resolve) => this.child.once('exit', (code) => resolve(code)));
    this.child.kill('SIGTERM');
    return ended;
  }
}

export interface Watched {
  readonly page: Page;
  /** Violations of the content security policy, and errors of scripts. */
  readonly troubles: string[];
}

/** A page of a browser of its own, with everything noted that the policy blocks. */
export async function openPage(
  browser: Browser,
  how: { readonly width?: number; readonly scheme?: 'light' | 'dark' } = {},
): Promise<Watched> {
  const { width = 1100, scheme = 'light' } = how;
  const context = await browser.newContext({
    viewport: { width, height: 800 },
    colorScheme: scheme,
    acceptDownloads: true,
  });
  const page = await context.newPage();
  const troubles: string[] = [];
  page.on('console', (message) => {
    // A refused call is a failure that the page shows; the browser logs its status as well.
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource'))
      troubles.push(message.text());
  });
  page.on('pageerror', (error) => troubles.push(String(error)));
  await page.addInitScript(`addEventListener('securitypolicyviolation', (event) => {
    console.error('policy: ' + event.violatedDirective + ' ' + event.blockedURI);
  })`);
  page.setDefaultTimeout(30_000);
  return { page, troubles };
}

/** Screenshots are kept where CFS_SCREENSHOTS says; elsewhere only their making is tested. */
export async function screenshot(page: Page, name: string): Promise<void> {
  const folder = process.env.CFS_SCREENSHOTS;
  if (folder !== undefined) mkdirSync(folder, { recursive: true });
  await page.screenshot({ fullPage: true, ...(folder !== undefined && { path: join(folder, `${name}.png`) }) });
}

/** Waits for a condition. */
export function until(holds: () => boolean | undefined | Promise<boolean>): Promise<unknown> {
  return vi.waitUntil(holds, { timeout: 30_000, interval: 50 });
}
