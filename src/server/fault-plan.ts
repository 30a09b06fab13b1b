import type { EndpointKind } from '../protocol/endpoints.ts';

/**
 * Fault injection, as data: which request is affected, and how. For tests and benchmarks; settable at run time
 * (`server.faults = [...]`) and from a file (`cfs serve --fault-file`, a JSON array of rules).
 */
export interface FaultRule {
  /** Method, or `*` for any. */
  readonly on: string;
  /** Kind of an endpoint (`fileVersionData`), or else the source of a RegExp that the path with its query must match. */
  readonly path?: string;
  /** First matching request that is hit, counted from 1 (the default) since the plan was set. */
  readonly nth?: number;
  /** How many matching requests in a row are hit from there on; 1 by default. */
  readonly times?: number | 'always';
  readonly then: Fault;
}

/** The effect. Several may be combined where that makes sense (`delayMs` with anything). */
export interface Fault {
  /** Waits before anything else. */
  readonly delayMs?: number;
  /**
   * Responds with this status and does nothing. With `acceptBytes` it does so within the body, and keeps the bytes as
   * after a cut.
   */
  readonly status?: number;
  /** With `status`: a Retry-After header. */
  readonly retryAfterSeconds?: number;
  /** Closes the connection before the request is processed (request lost). */
  readonly hangUpBefore?: boolean;
  /**
   * Processes the request, then closes the connection instead of responding (response lost). `hang`: keeps it open
   * without sending.
   */
  readonly actButNeverAnswer?: boolean | 'hang';
  /**
   * Closes the connection after this many bytes of the request body, or of the response body if the request has none: a
   * number, `'half'` of the announced length, or `'allButOne'`.
   */
  readonly hangUpAfterBytes?: number | 'half' | 'allButOne';
  /** Processes the request, then closes the connection within the response head. */
  readonly hangUpInHead?: boolean;
  /**
   * Accepts this many bytes of the body and reports that: an honest *incomplete* response (500 if there is none: plain
   * PUT).
   */
  readonly acceptBytes?: number;
  /** The limit for the bodies of this request, in both directions. */
  readonly bandwidthBytesPerSecond?: number;
  /** Repeats the previous listing response for the same query. */
  readonly staleListing?: boolean;
  /** The request's access token expires permanently. */
  readonly expireToken?: boolean;
  /** 206 that names another range than it carries. */
  readonly wrongContentRange?: boolean;
  /** 200 with everything to a request with Range. */
  readonly ignoreRange?: boolean;
  /** 200 with an HTML page; the request is not processed. */
  readonly garbage?: boolean;
  /** Never responds; the request is not processed. */
  readonly hang?: boolean;
}

export const NO_FAULT: Fault = {};

/** Counts requests against the rules. */
export class FaultPlan {
  readonly #rules: readonly { readonly rule: FaultRule; readonly path: RegExp | null; matched: number }[];

  /** @throws TypeError that names the invalid rule */
  constructor(rules: readonly FaultRule[]) {
    this.#rules = rules.map((rule, index) => {
      checkRule(rule, index);
      const path = rule.path === undefined || KIND.test(rule.path) ? null : new RegExp(rule.path);
      return { rule, path, matched: 0 };
    });
  }

  get rules(): readonly FaultRule[] {
    return this.#rules.map(({ rule }) => rule);
  }

  /** The combined fault for this request: later rules override earlier ones. */
  next(method: string, target: string, kind: EndpointKind | null): Fault {
    let fault = NO_FAULT;
    for (const entry of this.#rules) {
      const { rule, path } = entry;
      if (rule.on !== '*' && rule.on !== method) continue;
      if (path === null ? rule.path !== undefined && rule.path !== kind : !path.test(target)) continue;
      entry.matched += 1;
      const first = rule.nth ?? 1;
      const last = rule.times === 'always' ? Number.POSITIVE_INFINITY : first + (rule.times ?? 1) - 1;
      if (entry.matched >= first && entry.matched <= last) fault = { ...fault, ...rule.then };
    }
    return fault;
  }
}

const KIND = /^[a-zA-Z]+$/;

const KINDS: Readonly<Record<EndpointKind, true>> = {
  ...{ appAuthorization: true, authorization: true, user: true, userCollection: true, userCollectionContents: true },
  ...{ folder: true, folderContents: true, workspace: true, workspaceContents: true, album: true, albumContents: true },
  ...{ file: true, fileData: true, fileVersions: true, fileVersion: true, fileVersionData: true },
  ...{ receivedShare: true, contact: true, publicLink: true },
};

/** Allowed types or literal values of each fault. */
const FAULT_TYPES: Readonly<Record<keyof Fault, readonly string[]>> = {
  delayMs: ['number'],
  status: ['number'],
  retryAfterSeconds: ['number'],
  hangUpBefore: ['boolean'],
  actButNeverAnswer: ['boolean', 'hang'],
  hangUpAfterBytes: ['number', 'half', 'allButOne'],
  hangUpInHead: ['boolean'],
  acceptBytes: ['number'],
  bandwidthBytesPerSecond: ['number'],
  staleListing: ['boolean'],
  expireToken: ['boolean'],
  wrongContentRange: ['boolean'],
  ignoreRange: ['boolean'],
  garbage: ['boolean'],
  hang: ['boolean'],
};

/** Rejects unknown words: a misspelt plan would make a test pass without testing anything. */
function checkRule(rule: FaultRule, index: number): void {
  const fail = (what: string): never => {
    throw new TypeError(`fault rule ${index}: ${what}`);
  };
  if (typeof rule !== 'object' || rule === null) fail('not an object');
  for (const key of Object.keys(rule)) if (!RULE_KEYS.has(key)) fail(`unknown key ${key}`);
  if (typeof rule.on !== 'string') fail('on: a method or *');
  if (rule.path !== undefined && typeof rule.path !== 'string')
    fail('path: a kind of endpoint, or a regular expression');
  if (rule.path !== undefined && KIND.test(rule.path) && !(rule.path in KINDS))
    fail(`no kind of endpoint ${rule.path}`);
  for (const key of ['nth', 'times'] as const) {
    const count = rule[key];
    const isCount = Number.isInteger(count) && (count as number) >= 1;
    if (count !== undefined && !isCount && !(key === 'times' && count === 'always')) fail(`${key}: a number from 1`);
  }
  if (typeof rule.then !== 'object' || rule.then === null) fail('then: an object');
  for (const [key, value] of Object.entries(rule.then)) {
    const types = FAULT_TYPES[key as keyof Fault];
    if (types === undefined) fail(`unknown fault ${key}`);
    else if (!types.includes(typeof value) && !types.includes(`${value}`))
      fail(`${key}: expected ${types.join(' or ')}`);
  }
}

const RULE_KEYS: ReadonlySet<string> = new Set(['on', 'path', 'nth', 'times', 'then']);
