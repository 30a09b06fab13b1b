// Small requests to `cfs serve`: one server and two with a database, and one without. The clients share this process.
import { connect } from 'node:net';

export const CLIENTS = 8;

/**
 * Creates files and saves 1 KiB with eight clients at once.
 * @param {{ origin: string, token: string, folder: string }[]} places for each client: its server, token and folder
 * @param {number} seconds of each kind
 * @returns {Promise<{ creations: number, uploads: number }>} per second
 */
export async function smallRequests(places, seconds) {
  const clients = await Promise.all(places.map((place) => SmallClient.open(place)));
  const rateOf = async (/** @type {(client: SmallClient) => Promise<void>} */ action) => {
    const startMs = performance.now();
    const endMs = startMs + seconds * 1000;
    const counts = await Promise.all(
      clients.map(async (client) => {
        let count = 0;
        for (; performance.now() < endMs; count++) await action(client);
        return count;
      }),
    );
    return counts.reduce((sum, count) => sum + count, 0) / ((performance.now() - startMs) / 1000);
  };
  const creations = await rateOf((client) => client.create());
  const uploads = await rateOf((client) => client.upload());
  for (const client of clients) client.close();
  return { creations, uploads };
}

/** One connection, one request at a time. Reads no more of a response than it must: the processors are the server's. */
class SmallClient {
  #socket;
  #head;
  #count = 0;
  #create;
  #file = '';
  /** @type {(text: string) => void} */
  #answered = () => {};

  /** @param {{ origin: string, token: string, folder: string }} place */
  static async open(place) {
    const client = new SmallClient(place);
    await client.create();
    return client;
  }

  /** @param {{ origin: string, token: string, folder: string }} place */
  constructor({ origin, token, folder }) {
    const { hostname, port, host } = new URL(origin);
    this.#socket = connect(Number(port), hostname).setNoDelay(true);
    this.#socket.on('data', (data) => this.#answered(data.toString('latin1')));
    this.#head = `HTTP/1.1\r\nHost: ${host}\r\nAuthorization: ${token}\r\nContent-Length: `;
    this.#create = `POST ${new URL(folder).pathname} ${this.#head}`;
  }

  async create() {
    const body = `<file><displayName>file ${this.#count++}</displayName><mediaType></mediaType></file>`;
    const text = await this.#send(`${this.#create}${body.length}\r\n\r\n${body}`, 'HTTP/1.1 201');
    this.#file ||= new URL(/location: (\S+)/i.exec(text)?.[1] ?? '').pathname;
  }

  async upload() {
    await this.#send(`PUT ${this.#file}/data ${this.#head}1024\r\n\r\n${'x'.repeat(1024)}`, 'HTTP/1.1 204');
  }

  close() {
    this.#socket.destroy();
  }

  /**
   * @param {string} request
   * @param {string} wanted
   * @returns {Promise<string>}
   */
  async #send(request, wanted) {
    const answer = new Promise((resolve) => {
      this.#answered = resolve;
    });
    this.#socket.write(request, 'latin1');
    const text = await answer;
    if (!text.startsWith(wanted)) throw new Error(text.slice(0, 200));
    return text;
  }
}
