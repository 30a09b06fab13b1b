import type { Socket } from 'node:net';

/** Answers on a control socket as a mount whose files have these states, while it answers. It refuses everything else. */
export function answerStates(
  socket: Socket,
  directory: string,
  state: string | ((path: string) => string),
  isAnswering = () => true,
): void {
  const stateOf = typeof state === 'string' ? () => state : state;
  let text = '';
  socket.on('data', (chunk) => {
    text += chunk;
    const lines = text.split('\n');
    text = lines.pop() ?? '';
    for (const line of lines) {
      const { id, method, params } = JSON.parse(line);
      const paths: readonly string[] = params.paths ?? [];
      const states = paths.map((path) => ({ kind: 'file', state: stateOf(path), pinned: 'none', here: 'all' }));
      const answer = method === 'states' ? { result: { directory, states } } : { error: { message: 'not now' } };
      if (method !== 'watch' && isAnswering()) socket.write(`${JSON.stringify({ id, ...answer })}\n`);
    }
  });
}
