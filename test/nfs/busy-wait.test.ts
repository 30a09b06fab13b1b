import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import { BusyWait } from '../../src/nfs/busy-wait.ts';
import { DirectSocket } from '../../src/nfs/direct-socket.ts';
import { type RpcBody, type RpcProgram, RpcServer } from '../../src/nfs/rpc-server.ts';
import { XdrWriter } from '../../src/nfs/xdr.ts';

/** A client that sends each call so many microseconds after a reply; `null`: it sends none while the server waits. */
class Client {
  readonly replies: string[] = [];
  nowMs = 1_000;
  waits = 0;
  readonly #pauses: (number | null)[];
  readonly #busyWait: BusyWait;
  #calls = 0;

  constructor(pauses: readonly (number | null)[]) {
    this.#pauses = [...pauses];
    this.#busyWait = new BusyWait({
      clock: { elapsedMs: () => this.nowMs },
      receive: (target, waitNs) => this.#receive(target, waitNs),
    });
  }

  /** A call that arrives by the event loop. @param canGoOn whether no reply is pending */
  arrive(afterUs: number, canGoOn = true): void {
    this.nowMs += afterUs / 1_000;
    this.#busyWait.answer(
      Buffer.from(`loop ${++this.#calls}`),
      (chunk) => {
        this.nowMs += 0.005;
        this.replies.push(chunk.toString());
      },
      () => canGoOn,
    );
  }

  #receive(target: Buffer, waitNs: number): number {
    this.waits++;
    const pause = this.#pauses.shift() ?? null;
    if (pause === null || pause * 1_000 > waitNs) {
      this.nowMs += waitNs / 1e6;
      return 0;
    }
    this.nowMs += pause / 1_000;
    return target.write(`wait ${++this.#calls}`);
  }
}

describe('waiting awake for calls', () => {
  test('a call that follows a reply within 50 µs starts it, and the next calls are answered in the same turn', () => {
    const client = new Client([20, 20, null]);
    client.arrive(0);
    expect(client.waits, 'after the first call').toBe(0);
    client.arrive(30);
    expect(client.replies).toEqual(['loop 1', 'loop 2', 'wait 3', 'wait 4']);
  });

  test('a client that thinks for longer than 50 µs never starts it', () => {
    const client = new Client([20, 20]);
    for (let call = 0; call < 20; call++) client.arrive(60);
    expect(client.waits).toBe(0);
  });

  test('a wait in vain costs four that succeeded', () => {
    const client = new Client([10, 10, 10, 10, 10, 10, 10, null, null, null]);
    client.arrive(0);
    client.arrive(10); // trust 8 at its end, and 4 after a wait in vain
    client.arrive(10_000); // in vain: 0
    client.arrive(10_000);
    expect(client.waits).toBe(9);
  });

  test('a long row of calls earns no more than four waits in vain', () => {
    const pauses = Array.from({ length: 60 }, () => 1);
    const client = new Client(pauses);
    client.arrive(0);
    client.arrive(10);
    for (let call = 0; call < 10; call++) client.arrive(10_000);
    expect(client.waits).toBe(pauses.length + 4);
  });

  test('no call is received while a reply is pending', () => {
    const client = new Client([10]);
    client.arrive(0);
    client.arrive(10, false);
    expect(client.waits).toBe(0);
  });

  test('after half a millisecond the event loop has its turn', () => {
    const client = new Client(Array.from({ length: 1_000 }, () => 45));
    client.arrive(0);
    client.arrive(10);
    expect(client.replies.length).toBeLessThan(15);
    expect(client.replies.length).toBeGreaterThan(10);
  });

  test('the bytes of a reception stay the same while later ones arrive', () => {
    const chunks: Buffer[] = [];
    let nowMs = 0;
    let sent = 0;
    const receive = (target: Buffer): number => (sent < 40 ? target.fill(++sent).byteLength / 2 : 0);
    const busyWait = new BusyWait({ clock: { elapsedMs: () => nowMs }, receive });
    const turn = (): void =>
      busyWait.answer(
        Buffer.of(0),
        (chunk) => {
          chunks.push(chunk);
          nowMs += 0.001;
        },
        () => true,
      );
    turn();
    turn();
    expect(chunks.slice(2).map((chunk) => new Set(chunk).size)).toEqual(Array.from({ length: 40 }, () => 1));
    expect(chunks.slice(2).map(([first]) => first)).toEqual(Array.from({ length: 40 }, (_, call) => call + 1));
  });
});

describe('the server', () => {
  const FAST = 0;
  const SLOW = 1;
  const LONG = 2;
  const program: RpcProgram = {
    number: 100_003,
    version: 3,
    call: ({ procedure }) => {
      if (procedure === SLOW) return new Promise<RpcBody>(() => {});
      return procedure === LONG ? [Buffer.alloc(32 * 1024 * 1024)] : [];
    },
  };
  let end = async (): Promise<void> => {};
  afterEach(() => end());

  function recordOf(procedure: number): Buffer {
    const call = new XdrWriter().u32(1).u32(0).u32(2).u32(program.number).u32(program.version).u32(procedure);
    const record = call.u32(0).u32(0).u32(0).u32(0).done();
    return Buffer.concat([new XdrWriter().u32(0x8000_0000 + record.byteLength).done(), record]);
  }

  /** The calls after the second one come by waiting awake. @returns the number of waits when the second one is over */
  async function waitsFor(procedures: readonly number[]): Promise<number> {
    const records = procedures.map(recordOf);
    let waits = 0;
    const server = await RpcServer.listen({
      programs: [program],
      log: silentLogger,
      clock: { ...systemClock, elapsedMs: () => 0 }, // all calls come in time, and no turn ends
      receiveAwake: (_descriptor, target) => {
        waits++;
        const record = records.shift();
        target.set(record ?? []);
        return record?.byteLength ?? 0;
      },
    });
    const client = connect(server.port, '127.0.0.1');
    end = async () => {
      client.destroy();
      await server.close();
    };
    for (let call = 0; call < 2; call++) {
      client.write(recordOf(FAST));
      await once(client, 'data');
    }
    return waits;
  }

  test('waits awake for the next call', async () => {
    expect(await waitsFor([FAST, FAST])).toBe(3);
  });

  test.each([
    ['pending', SLOW],
    ['not sent yet', LONG],
  ])('does not wait awake while a reply is %s', async (_state, procedure) => {
    expect(await waitsFor([procedure, FAST])).toBe(1);
  });

  test.each([
    ['is paused', { isPaused: () => true, readableLength: 0 }],
    ['has received bytes before', { isPaused: () => false, readableLength: 1 }],
  ])('receives nothing past a stream that %s', (_state, stream) => {
    const socket = { ...stream, _handle: { fd: 0 } } as unknown as Socket;
    const direct = new DirectSocket(socket, () => expect.fail('received'));
    expect(direct.receive(Buffer.alloc(1), 50_000)).toBe(0);
  });
});
