import { createHash } from 'node:crypto';
import type { AdministrationRules } from '../../../src/server/rules.ts';
import { RawClient, type RawRequest, signUpAt, type TestUser } from '../raw-client.ts';

/** One of two services that get the same requests. Its ids and times appear under common names. */
export class ServiceSide {
  readonly origin: string;
  readonly administration: AdministrationRules;
  /** Common names of ids, in the order of their first appearance. */
  readonly #names = new Map<string, string>();
  readonly #ids = new Map<string, string>();
  readonly #users: TestUser[] = [];

  constructor(origin: string, administration: AdministrationRules) {
    this.origin = origin;
    this.administration = administration;
  }

  async addUser(email: string, quotaBytes: number): Promise<string> {
    const user = await signUpAt(this.origin, this.administration, email, quotaBytes);
    this.#users.push(user);
    return user.uid;
  }

  /** Sends a request in which ids have common names. @returns the response with common names */
  async send(user: number, method: string, path: string, request: RawRequest = {}): Promise<string> {
    const { client } = this.#users[user] as TestUser;
    const text = typeof request.body === 'string' ? { body: this.#own(request.body) } : {};
    const { status, headers, bytes } = await new RawClient(this.origin, client.token).send(method, this.#own(path), {
      ...request,
      ...text,
    });
    const type = headers['content-type'] ?? '';
    const isData = type.startsWith('application/octet-stream');
    const content = isData
      ? `${bytes.byteLength} ${createHash('sha256').update(bytes).digest('hex')}`
      : bytes.toString();
    const shown = ['location', 'content-range', 'content-disposition', 'retry-after'].map(
      (name) => headers[name] ?? '-',
    );
    const response = this.#common(`${status} ${type} ${shown.join(' ')}\n${content}`);
    return path.includes('/publicLinks/') ? withSortedFiles(response) : response;
  }

  /** An action of the operator; ids in `path` have common names. */
  async administer(action: (administration: AdministrationRules, own: (name: string) => string) => Promise<unknown>) {
    try {
      const result = await action(this.administration, (name) => this.#own(name));
      return this.#common(`done ${JSON.stringify(result) ?? ''}`);
    } catch (error) {
      return this.#common(`${(error as Error).name} ${(error as Error).message}`);
    }
  }

  #own(text: string): string {
    return text.replaceAll('ORIGIN', this.origin).replace(/#\d+#/g, (name) => this.#ids.get(name) ?? name);
  }

  #common(text: string): string {
    return text
      .replaceAll(this.origin, 'ORIGIN')
      .replace(/\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-][\d:]+)/g, 'TIME')
      .replace(/D\d+_\d+_\d+|\d{4,}_\d+/g, (id) => {
        const known = this.#names.get(id);
        if (known !== undefined) return known;
        const name = `#${this.#names.size}#`;
        this.#names.set(id, name);
        this.#ids.set(name, id);
        return name;
      });
  }
}

/** Links are listed in the order of their random tokens. */
function withSortedFiles(document: string): string {
  const files = document.match(/<file>.*?<\/file>/gs) ?? [];
  return `${document.replace(/<file>.*<\/file>/s, '')}\n${files.sort().join('\n')}`;
}
