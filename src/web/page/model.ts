import { useEffect, useState } from 'preact/hooks';
import type { Conflict } from '../../control/status-model.ts';
import { EVENTS_MAX, type LiveAccount, type LiveMessage } from '../live-model.ts';

export interface Notice {
  readonly id: number;
  readonly kind: 'done' | 'failed';
  readonly text: string;
}

/** A question in a dialog. */
export interface Question {
  readonly title: string;
  readonly text: string;
  readonly confirm: string;
  readonly answer: (isYes: boolean) => void;
}

export interface Conflicts {
  readonly conflicts: readonly Conflict[];
  readonly count: number;
}

/** What all views show. */
export interface Model {
  readonly state: 'connecting' | 'live' | 'lost' | 'signed-out';
  readonly version: string;
  readonly home: string;
  readonly accounts: readonly LiveAccount[];
  /** By the account's name. */
  readonly conflicts: Readonly<Record<string, Conflicts>>;
  /** The most bytes that waited since nothing waited, by the account's name. */
  readonly peaks: Readonly<Record<string, number>>;
  readonly notices: readonly Notice[];
  readonly question: Question | null;
}

const NOTICES_MAX = 3;
/** Failures stay until they are dismissed. */
const DONE_SHOWN_MS = 6_000;
const SAMPLES_MAX = 2_000;

let model: Model = {
  state: 'connecting',
  version: '',
  home: '',
  accounts: [],
  conflicts: {},
  peaks: {},
  notices: [],
  question: null,
};
const listeners = new Set<() => void>();
let lastNotice = 0;

export function getModel(): Model {
  return model;
}

export function update(changed: Partial<Model>): void {
  model = { ...model, ...changed };
  for (const listener of [...listeners]) listener();
}

export function useModel(): Model {
  const [, redraw] = useState(0);
  useEffect(() => {
    const listener = (): void => redraw((count) => count + 1);
    listeners.add(listener);
    listener(); // it may have changed between the first drawing and this effect
    return () => void listeners.delete(listener);
  }, []);
  return model;
}

export function announce(kind: Notice['kind'], text: string): void {
  const id = ++lastNotice;
  update({ notices: [...model.notices.slice(1 - NOTICES_MAX), { id, kind, text }] });
  if (kind === 'done') setTimeout(() => dismiss(id), DONE_SHOWN_MS);
}

export function dismiss(id: number): void {
  update({ notices: model.notices.filter((notice) => notice.id !== id) });
}

/** Asks in a dialog. */
export function ask(question: Omit<Question, 'answer'>): Promise<boolean> {
  return new Promise((resolve) => {
    const answer = (isYes: boolean): void => {
      update({ question: null });
      resolve(isYes);
    };
    update({ question: { ...question, answer } });
  });
}

/** Applies messages of the live stream. @returns the accounts in which a conflict may have appeared */
export function apply(messages: readonly LiveMessage[]): readonly string[] {
  const conflicting = new Set<string>();
  let accounts = model.accounts;
  let { version, home } = model;
  const change = (name: string, next: (account: LiveAccount) => LiveAccount): void => {
    accounts = accounts.map((account) => (account.name === name ? next(account) : account));
  };
  for (const message of messages) {
    switch (message.type) {
      case 'all':
        ({ accounts, version, home } = message);
        for (const { name } of accounts) conflicting.add(name);
        break;
      case 'change':
        if (message.changed.mount === 'running' && message.changed.status !== undefined) conflicting.add(message.name);
        change(message.name, (account) => ({ ...account, ...message.changed }));
        break;
      case 'status':
        change(message.name, (account) => {
          const status = account.status === null ? null : { ...account.status, ...message.changed };
          return { ...account, status };
        });
        break;
      case 'event':
        if (message.record.event.type === 'conflict') conflicting.add(message.name);
        change(message.name, (account) => ({
          ...account,
          events: [...account.events.slice(1 - EVENTS_MAX), message.record],
        }));
        break;
      case 'sample':
        change(message.name, (account) => ({
          ...account,
          samples: [...account.samples.slice(1 - SAMPLES_MAX), message.sample],
        }));
        break;
      case 'beat':
        break;
      default:
        message satisfies never;
    }
  }
  update({ state: 'live', version, home, accounts, peaks: peaksOf(accounts) });
  return [...conflicting].filter((name) =>
    accounts.some((account) => account.name === name && account.status !== null),
  );
}

function peaksOf(accounts: readonly LiveAccount[]): Model['peaks'] {
  return Object.fromEntries(
    accounts.map(({ name, status }) => {
      const bytes = status?.pending.bytes ?? 0;
      return [name, bytes === 0 ? 0 : Math.max(bytes, model.peaks[name] ?? 0)];
    }),
  );
}

/** How many things wait for a person, in one account or in all. */
export function needsOf({ accounts, conflicts }: Model): number {
  return accounts.reduce((sum, { name, status }) => {
    if (status === null) return sum;
    const signIn = status.connection.state === 'sign-in-needed' ? 1 : 0;
    return sum + signIn + status.parked.length + status.held.length + (conflicts[name]?.count ?? 0);
  }, 0);
}
