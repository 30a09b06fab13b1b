import { randomUUID } from 'node:crypto';
import type { ResourceId } from '../../../src/protocol/endpoints.ts';
import { Refusal } from '../../../src/server/refusal.ts';
import type { AdministrationRules, Rules } from '../../../src/server/rules.ts';
import type { Sender } from '../../../src/server/sign-in.ts';
import type { ManualClock } from '../../tree/tree-fixture.ts';

/** An implementation of the rule interfaces under test. A test makes accounts of its own and sees those of others. */
export interface BackEnd {
  readonly rules: Omit<Rules, 'uploads' | 'blobs'>;
  readonly administration: AdministrationRules;
  /** The clock of the rules: its time passes only if a test advances it. */
  readonly clock: ManualClock;
  close(): Promise<void>;
}

export interface BackEndOptions {
  readonly uniqueNames?: boolean;
  readonly foldCase?: boolean;
  readonly pageMax?: number;
  readonly accessTokenMs?: number;
}

export type OpenBackEnd = (options: BackEndOptions) => Promise<BackEnd>;

export const PASSWORD = 'correct horse';

export interface Account {
  readonly uid: string;
  readonly email: string;
  /** The account's folder with the local id `local`. */
  at(local: string): ResourceId;
}

export async function newAccount({ administration }: BackEnd): Promise<Account> {
  const email = `${randomUUID()}@example.com`;
  const { userId: uid } = await administration.addUser(email, PASSWORD, { scryptCost: 16 });
  return { uid, email, at: (local) => ({ uid, local }) };
}

/** The content of a request for a token. */
export interface Credentials {
  readonly username: string;
  readonly password: string;
  readonly application: string;
  readonly accessKeyId: string;
  readonly privateAccessKey: string;
}

export async function newCredentials({ administration }: BackEnd, account: Account): Promise<Credentials> {
  const application = await administration.addApplication('test');
  return {
    username: account.email,
    password: PASSWORD,
    application,
    ...(await administration.addKeyPair(account.email)),
  };
}

export function from(network: string): Sender {
  return { network, isGone: () => false };
}

/** The status of the refusal; 'done' if there was none. */
export async function outcome(rule: Promise<unknown>): Promise<number | 'done'> {
  try {
    await rule;
    return 'done';
  } catch (error) {
    if (error instanceof Refusal) return error.status;
    throw error;
  }
}

/** Outcomes of rules that run at the same time, sorted. */
export async function outcomes(rules: readonly Promise<unknown>[]): Promise<readonly (number | 'done')[]> {
  return (await Promise.all(rules.map(outcome))).sort();
}
